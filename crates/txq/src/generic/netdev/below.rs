//! The trees of qdiscs below a device's queues, for tc's commands. The calling thread owns a queue while it is in its tree.

use txq_core::arch::Arch;
use txq_sched::generic::tree::{Roots, Trees, Visit};
use txq_sched::tc::Handle;

use super::tree::Tree;
use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::shared::Shared;

/// The queues in force, for the duration of a command.
struct InForce<'s, 'c, 'x, A: Arch> {
    dev: &'s Shared<A>,
    tree: &'s Tree,
    cx: &'c mut Ctx<'x, A>,
    /// Whether each visit is one portion of a long list.
    in_portions: bool,
}

impl<A: Arch> Roots<A> for InForce<'_, '_, '_, A> {
    fn any(&mut self, f: &mut Visit<'_, A>) {
        for (root, own) in self.dev.owned(self.tree) {
            let mut over = false;
            let visit = |core: &mut Core<A>| {
                let done = core.with_qdisc(self.cx, |qdisc, cx| f(root.index, own, qdisc, cx));
                over = done == Some(true);
            };
            match self.in_portions {
                true => root.with_core_for_portion(self.dev, visit),
                false => root.with_core(self.dev, visit),
            }
            if over {
                break;
            }
        }
        self.cx.free_dropped();
    }
}

impl<A: Arch> Shared<A> {
    /// Returns the queues in force, with the handles of their qdiscs.
    pub(super) fn owned<'s>(&'s self, tree: &'s Tree) -> impl Iterator<Item = (&'s Root<A>, Handle)> {
        let handle = |queue: usize| match &tree.children {
            Some(children) => children[queue],
            // One qdisc, or the parts of one.
            None => tree.root,
        };
        self.roots_in_force().iter().enumerate().map(move |(queue, root)| (root, handle(queue)))
    }

    /// Lets a worker run the queue of a tree that a command has changed, or of all trees that are replicas: packets may have
    /// become due. Where none are queued, no worker is woken.
    pub(super) fn hand_over_tree(&self, tree: &Tree, changed: usize) {
        let roots = match tree.replicas {
            true => self.roots_in_force(),
            false => &self.roots[changed..=changed],
        };
        roots.iter().filter(|root| !root.is_idle(self)).for_each(|root| self.hand_over(root.index));
    }

    /// Calls `f` with the trees of the queues in force.
    pub(super) fn trees<R>(
        &self,
        tree: &Tree,
        cx: &mut Ctx<'_, A>,
        f: impl FnOnce(&mut Trees<'_, A>) -> R,
    ) -> R {
        self.in_force(InForce { dev: self, tree, cx, in_portions: false }, f)
    }

    /// As [`trees`](Shared::trees), for a list that `f` reads in portions: after each visit of a tree, the packets that wait for
    /// its queue have a time of the same length.
    pub(super) fn trees_in_portions<R>(
        &self,
        tree: &Tree,
        cx: &mut Ctx<'_, A>,
        f: impl FnOnce(&mut Trees<'_, A>) -> R,
    ) -> R {
        self.in_force(InForce { dev: self, tree, cx, in_portions: true }, f)
    }

    fn in_force<R>(&self, mut in_force: InForce<'_, '_, '_, A>, f: impl FnOnce(&mut Trees<'_, A>) -> R) -> R {
        let tree = in_force.tree;
        f(&mut Trees::new(&mut in_force, tree.root, tree.children.is_some(), tree.env)
            .replicas(tree.replicas))
    }
}
