//! tc's commands on a tree of qdiscs: what is below its classes is found, replaced, changed and listed here.
//!
//! A device with mq has a tree for each txq, a [`Scheduler`](crate::Scheduler) has one. [`Roots`] is the way to their tops,
//! and [`Trees`] has the commands.

mod attach;
mod class;
mod filter;
mod leaf;
mod show;

use txq_core::arch::Arch;

use crate::generic::qdisc::{Cx, Env, Qdisc, child};
use crate::tc::{Handle, ParseError};

pub use attach::{Attach, Found, Handles, taken};
pub use class::{ClassCommand, exists_already, no_class};
pub use leaf::Class;
pub use show::{PORTION, Walk, info, max_packets};

/// The maximum number of qdiscs from the root of a device down to the deepest one that has a handle, so that a walk through
/// the tree has a bounded stack. The kernel checks for loops to the same depth (`check_loop`).
const MAX_TREE_LEVELS: usize = 8;

/// Takes the number, the handle and the qdisc of a tree's top, and the context of a call of it. Returns whether no further
/// tree is needed.
pub type Visit<'v, A> = dyn FnMut(usize, Handle, &mut dyn Qdisc<A>, &mut Cx<'_, A>) -> bool + 'v;

/// Returns whether a qdisc has a class that a user means by `minor`.
fn has_class<A: Arch>(qdisc: &mut dyn Qdisc<A>, minor: u16) -> bool {
    qdisc.classes().is_some_and(|classes| classes.find(minor).is_some())
}

/// The qdiscs at the tops of the trees.
pub trait Roots<A: Arch> {
    /// Calls `f` with each tree's top until `f` returns true. No other thread uses that tree meanwhile.
    fn any(&mut self, f: &mut Visit<'_, A>);
}

/// The trees, and what commands on them need to know.
pub struct Trees<'r, A: Arch> {
    roots: &'r mut dyn Roots<A>,
    /// The handle of the device's root: of mq, or of the only tree's top.
    root: Handle,
    /// Qdiscs above the trees' tops: 1 under mq.
    above: usize,
    env: Env,
    /// Whether the trees are parts of one qdisc, all with the same classes.
    replicas: bool,
}

impl<'r, A: Arch> Trees<'r, A> {
    /// Returns the trees below `roots`. `root` is the handle of the device's root; with `is_mq` it is above the tops.
    #[inline(never)]
    pub fn new(roots: &'r mut dyn Roots<A>, root: Handle, is_mq: bool, env: Env) -> Self {
        Self { roots, root, above: is_mq.into(), env, replicas: false }
    }

    /// Says whether the tops are parts of one qdisc that all have the same classes. Then a change of one is one of all.
    #[inline(never)]
    pub fn replicas(self, replicas: bool) -> Self {
        Self { replicas, ..self }
    }

    /// Calls `f` with the qdisc that has this handle, wherever it is. Returns the number of its tree and the result; `None`
    /// if there is no such qdisc.
    fn with_qdisc<R>(
        &mut self,
        handle: Handle,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        if handle == Handle::UNSPEC {
            return None;
        }
        let mut found = None;
        self.roots.any(&mut |index, own, qdisc, cx| {
            found = child::find(qdisc, own, handle, &mut |q| f(q, cx)).map(|done| (index, done));
            found.is_some()
        });
        found
    }

    /// Calls `f` with the qdisc that has this handle; in replicas, with that of each tree. Returns what the first call returned,
    /// and the number of its tree.
    fn with_each<R>(
        &mut self,
        handle: Handle,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        if !self.replicas {
            return self.with_qdisc(handle, f);
        }
        let mut first = None;
        self.roots.any(&mut |index, own, qdisc, cx| {
            let done = child::find(qdisc, own, handle, &mut |q| f(q, cx)).map(|done| (index, done));
            first = first.take().or(done);
            false
        });
        first
    }

    /// As [`with_qdisc`](Trees::with_qdisc). The parts of one qdisc at the tops of many trees have one handle: `f` gets the
    /// one that has the class `minor`, or the first if none has it.
    fn with_parent<R>(
        &mut self,
        handle: Handle,
        minor: u16,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        let mut found = None;
        if handle == self.root && self.above == 0 {
            self.roots.any(&mut |index, _, qdisc, cx| {
                if has_class(qdisc, minor) {
                    found = Some((index, f(qdisc, cx)));
                }
                found.is_some()
            });
        }
        found.or_else(|| self.with_qdisc(handle, f))
    }

    /// Returns whether a qdisc, at the top or below another, has this handle.
    #[inline(never)]
    pub fn has(&mut self, handle: Handle) -> bool {
        self.with_qdisc(handle, |_, _| ()).is_some()
    }

    /// Returns the error for a qdisc that does not exist.
    fn no_qdisc(&self, message: &str, major: Handle) -> ParseError {
        let error = ParseError::new(message);
        error.with_remedy(format!("there is no qdisc {major} (the root is {})", self.root))
    }
}
