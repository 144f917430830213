//! Adding, replacing, changing and deleting qdiscs under traffic (`tc_modify_qdisc`, `qdisc_graft`).
//!
//! The kernel stops all queues of a device to replace a qdisc in one of them. Here the thread that replaces a qdisc owns its
//! queue for a moment, and no other queue notices. Packets queued in the old qdisc are dropped (`QUEUE_PURGE`), as in the
//! kernel and as users of `tc qdisc replace` expect. Packets that have not reached the old qdisc go to the new one.
//!
//! If the number of queues changes, as from mq to one qdisc for all txqs, the rule that senders follow changes, too
//! (`netdev/rule.rs`).

use txq_core::arch::Arch;
use txq_sched::generic::qdisc::copying::Others;
use txq_sched::generic::qdisc::{self, Built, Parent, Qdisc};
use txq_sched::generic::tree::{Attach, Class, Found, taken};
use txq_sched::tc::{Handle, Header, ParseError, Verb, Words};

use super::NetDev;
use super::hook::is_hook_of;
use super::tree::{Plan, Tree, child, kept_child};
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Shape;
use crate::generic::panics::Panics;
use crate::generic::shared::Shared;

/// The place of a qdisc that a text names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Txq(u16),
    /// A class of a qdisc that a queue has, or of a qdisc below that one.
    Class(Class),
}

impl<A: Arch> NetDev<A> {
    /// Changes a qdisc's parameters: `"pfifo limit 10"` for the root, `"parent 1:2 pfifo limit 10"` for a child of mq.
    pub(super) fn change_qdisc(&self, text: &str) -> Result<(), ParseError> {
        self.reconfigure(|tree, cx| {
            let (header, mut words) = self.header(text)?;
            if is_hook_of(tree, header.parent) {
                return self.hook(tree, &header, &mut words, Verb::Change);
            }
            let (place, found) = self.find(tree, &header, cx)?;
            self.change(tree, place, &found, &header, &mut words, cx)
        })
    }

    /// Deletes a qdisc that has a handle; a default qdisc takes its place: `"root"`, `"parent 1:2"`.
    pub(super) fn delete_qdisc(&self, text: &str) -> Result<(), ParseError> {
        self.reconfigure(|tree, cx| {
            let (header, mut words) = self.header(text)?;
            if is_hook_of(tree, header.parent) {
                return self.hook(tree, &header, &mut words, Verb::Delete);
            }
            let (place, found) = self.find(tree, &header, cx)?;
            found.delete(&header)?;
            match place {
                Place::Root => {
                    let plan = tree.default_root()?;
                    self.graft(tree, plan, cx);
                }
                Place::Txq(txq) => self.graft_child(tree, txq, tree.default_child()?, Handle::UNSPEC, cx),
                Place::Class(class) => self.graft_leaf(tree, class, Vec::new(), Handle::UNSPEC, cx),
            }
            Ok(())
        })
    }

    /// Drops the packets that a qdisc has queued, or all children of mq (`QUEUE_PURGE`); counters stay (`qdisc_reset`).
    #[inline(never)]
    pub fn reset_qdisc(&self, text: &str) -> Result<(), ParseError> {
        self.reconfigure(|tree, cx| {
            let (header, _) = self.header(text)?;
            let (place, _) = self.find(tree, &header, cx)?;
            if let Place::Class(class) = place {
                if let Some(root) = self.shared.trees(tree, cx, |trees| trees.reset_leaf(class)) {
                    self.shared.hand_over_tree(tree, root);
                }
                return Ok(());
            }
            let mine = |txq| place == Place::Root || txq == Some(place);
            for root in self.shared.roots_in_force().iter().filter(|r| mine(r.txq.map(Place::Txq))) {
                root.with_core(&self.shared, |core| core.purge(cx));
                cx.free_dropped();
            }
            Ok(())
        })
    }

    fn header<'t>(&self, text: &'t str) -> Result<(Header<'t>, Words<'t>), ParseError> {
        let mut words = Words::split(text);
        let header = Header::parse(&mut words)?;
        self.check_dev(header.dev)?;
        Ok((header, words))
    }

    /// Checks that a command names this device, if any.
    pub(super) fn check_dev(&self, dev: Option<&str>) -> Result<(), ParseError> {
        let name = &self.shared.info.name;
        match dev.filter(|dev| dev != name) {
            None => Ok(()),
            Some(dev) => {
                let error = ParseError::new(format!("Cannot find device \"{dev}\""));
                Err(error.with_remedy(format!("this one is \"{name}\"")))
            }
        }
    }

    /// Returns the place that a header names, and the qdisc attached there.
    fn find(
        &self,
        tree: &Tree,
        header: &Header<'_>,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(Place, Found), ParseError> {
        let parent = header.parent.unwrap_or(Handle::ROOT);
        if parent == Handle::ROOT {
            let kind = match &tree.parent {
                Some(parent) => parent.kind(),
                None => self.shared.kind_of(0),
            };
            return Ok((Place::Root, Found { handle: tree.root, kind }));
        }
        let (major, minor) = (Handle::new(parent.major(), 0), parent.minor());
        let of = if major == tree.root { tree.children.as_deref() } else { None };
        let Some(children) = of else {
            let (class, handle, kind) =
                self.shared.trees(tree, cx, |trees| trees.find_class(major, minor))?;
            return Ok((Place::Class(class), Found { handle, kind }));
        };
        if let Some(parent) = tree.parent.as_ref().filter(|parent| !parent.lends_children()) {
            return Err(kept_child(parent));
        }
        match minor.checked_sub(1).map(|txq| (txq, children.get(usize::from(txq)))) {
            Some((txq, Some(&handle))) => {
                Ok((Place::Txq(txq), Found { handle, kind: self.shared.kind_of(txq) }))
            }
            _ if tree.parent.as_ref().is_some_and(|parent| {
                (0..self.traffic_classes(parent).len()).any(|class| Parent::minor_of(class) == minor)
            }) =>
            {
                Err(ParseError::new("Error: No device queue given.")
                    .with_remedy(format!("use {major}1 to {major}{:x}", children.len())))
            }
            _ => Err(ParseError::new("Error: Specified class not found.")
                .with_remedy(format!("use {major}1 to {major}{:x}", children.len()))),
        }
    }

    pub(super) fn attach(&self, text: &str, add: bool) -> Result<(), ParseError> {
        self.reconfigure(|tree, cx| {
            let (header, mut words) = self.header(text)?;
            if is_hook_of(tree, header.parent) {
                let verb = if add { Verb::Add } else { Verb::Replace };
                return self.hook(tree, &header, &mut words, verb);
            }
            if self.attach_leaf(tree, &header, text, add, cx) {
                return Ok(());
            }
            let (place, found) = self.find(tree, &header, cx)?;
            let asked = match found.attach(&header, add)? {
                Attach::Change => return self.change(tree, place, &found, &header, &mut words, cx),
                Attach::Replace(asked) => asked,
            };
            if let Some(handle) = asked.filter(|&h| h != found.handle && self.names(tree, h, cx)) {
                return Err(taken(handle));
            }
            let before = tree.env.tx_queue_len;
            tree.named_qdisc();
            let done = qdisc::build::<A>(text, &tree.env)
                .and_then(|(_, built)| self.graft_built(tree, place, (text, built), asked, cx));
            if done.is_err() {
                tree.env.tx_queue_len = before;
            }
            done
        })
    }

    /// Attaches a qdisc with a new handle to a class of the root, and owns the queue only once: where a sender is busy, or its
    /// thread has no CPU, each time takes long, and thousands of leaves are attached so. Returns whether it did. If not,
    /// nothing has changed, and there is more to check.
    fn attach_leaf(
        &self,
        tree: &mut Tree,
        header: &Header<'_>,
        text: &str,
        add: bool,
        cx: &mut Ctx<'_, A>,
    ) -> bool {
        let is_of_root = |class: &Handle| class.major() == tree.root.major() && tree.children.is_none();
        let is_plain = !tree.replicas && tree.env.tx_queue_len > 0 && header.stab.is_none();
        let class = header.parent.filter(is_of_root).filter(|_| is_plain);
        let is_new =
            |&handle: &Handle| handle != Handle::UNSPEC && !tree.names(handle) && !tree.has_given(handle);
        let Some((class, handle)) = class.zip(header.handle.filter(is_new)) else { return false };
        let Ok((_, Built::Qdisc(new))) = qdisc::build::<A>(text, &tree.env) else { return false };
        if new.copies().is_some() {
            return false;
        }
        let replaces = |found: &Found| matches!(found.attach(header, add), Ok(Attach::Replace(Some(_))));
        let grafted = self.shared.trees(tree, cx, |trees| trees.try_graft(class, new, handle, replaces));
        if let Some(root) = grafted {
            tree.handle(Some(handle), |_, _| false);
            self.shared.hand_over_tree(tree, root);
        }
        grafted.is_some()
    }

    fn graft_built(
        &self,
        tree: &mut Tree,
        place: Place,
        (text, built): (&str, Built<A>),
        asked: Option<Handle>,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(), ParseError> {
        match place {
            Place::Root => {
                let plan = tree.plan(built, Handle::UNSPEC)?;
                let root = match plan.shape {
                    Shape::NoQueue => Handle::UNSPEC,
                    _ => tree.handle(asked, |tree, h| self.names(tree, h, cx)),
                };
                self.graft(tree, Plan { root, ..plan }, cx);
            }
            Place::Txq(txq) => {
                let qdisc = child(built)?;
                let handle = tree.handle(asked, |tree, h| self.names(tree, h, cx));
                self.graft_child(tree, txq, qdisc, handle, cx);
            }
            Place::Class(class) => {
                let mut qdiscs = vec![child(built)?];
                self.shared.trees(tree, cx, |trees| trees.admit(class, &*qdiscs[0]))?;
                if tree.replicas {
                    for _ in 1..tree.env.txqs {
                        qdiscs.push(child(qdisc::build::<A>(text, &tree.env)?.1)?);
                    }
                }
                let handle = tree.handle(asked, |tree, h| self.names(tree, h, cx));
                self.graft_leaf(tree, class, qdiscs, handle, cx);
            }
        }
        Ok(())
    }

    fn change(
        &self,
        tree: &Tree,
        place: Place,
        found: &Found,
        header: &Header<'_>,
        words: &mut Words<'_>,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(), ParseError> {
        if let Some(handle) = header.handle.filter(|&h| h != found.handle && self.names(tree, h, cx)) {
            return Err(taken(handle));
        }
        found.change(header)?;
        if place == Place::Root && tree.parent.is_some() && header.stab.is_some() {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(error.with_remedy("it counts no lengths by itself: give its children the stab"));
        }
        match &tree.parent {
            // mq has no parameters; a change of it succeeds.
            Some(Parent::Mq) if place == Place::Root => {
                return match words.peek() {
                    Some(word) => {
                        let error = format!("Unknown qdisc \"mq\", hence option \"{word}\" is unparsable");
                        Err(ParseError::new(error)
                            .with_remedy(format!("mq takes no options: remove \"{word}\"")))
                    }
                    None => Ok(()),
                };
            }
            Some(Parent::Mqprio(_)) if place == Place::Root => {
                let error = "Error: Change operation not supported by specified qdisc.";
                return Err(ParseError::new(error).with_remedy("replace it instead"));
            }
            _ => {}
        }
        let txq = match place {
            Place::Class(class) => {
                let changed = self.shared.trees(tree, cx, |trees| trees.change_leaf(class, header, words));
                // A packet may have become due by the change.
                return changed.map_or(Ok(()), |(root, changed)| {
                    self.shared.hand_over_tree(tree, root);
                    changed
                });
            }
            Place::Txq(txq) => Some(txq),
            // One qdisc, or all parts of one. A change that the first takes, all take.
            Place::Root => None,
        };
        for root in
            self.shared.roots_in_force().iter().filter(|root| txq.is_none_or(|txq| root.txq == Some(txq)))
        {
            let mut changed = Ok(());
            root.with_core(&self.shared, |core| {
                let done = core.with_qdisc(cx, |qdisc, cx| {
                    cx.set_others(Others::below(qdisc, found.handle));
                    qdisc::change(qdisc, header, &mut words.clone(), &tree.env, cx)
                });
                changed = done.unwrap_or(Ok(()));
            });
            cx.free_dropped();
            // A packet may have become due by the change.
            self.shared.hand_over(root.index);
            changed?;
        }
        Ok(())
    }

    /// Returns whether a qdisc of the device has this handle.
    fn names(&self, tree: &Tree, handle: Handle, cx: &mut Ctx<'_, A>) -> bool {
        tree.names(handle) || tree.has_given(handle) && self.shared.trees(tree, cx, |trees| trees.has(handle))
    }

    /// Replaces the leaf of a class by one of `new`, which has one for each replica; by the default leaf of the class if it is
    /// empty.
    fn graft_leaf(
        &self,
        tree: &Tree,
        class: Class,
        new: Vec<Box<dyn Qdisc<A>>>,
        handle: Handle,
        cx: &mut Ctx<'_, A>,
    ) {
        if let Some(root) = self.shared.trees(tree, cx, |trees| trees.graft(class, new, handle)) {
            self.shared.hand_over_tree(tree, root);
        }
    }

    fn graft_child(
        &self,
        tree: &mut Tree,
        txq: u16,
        mut qdisc: Box<dyn Qdisc<A>>,
        handle: Handle,
        cx: &mut Ctx<'_, A>,
    ) {
        qdisc.set_handle(handle);
        let mut panics = Panics::default();
        self.shared.exchange(self.shared.root_of(txq), Some(qdisc), tree.gate(), cx, &mut panics);
        if let Some(child) = tree.children.as_mut().and_then(|c| c.get_mut(usize::from(txq))) {
            *child = handle;
        }
        panics.raise();
    }

    /// Attaches the planned qdiscs in place of all that are attached.
    pub(super) fn graft(&self, tree: &mut Tree, mut plan: Plan<A>, cx: &mut Ctx<'_, A>) {
        let dev = &*self.shared;
        if plan.children.is_none() {
            plan.qdiscs.iter_mut().flatten().for_each(|qdisc| qdisc.set_handle(plan.root));
        }
        dev.change_rule(plan.shape, cx, |first, cx, panics| {
            for (root, qdisc) in (first..).zip(plan.qdiscs) {
                dev.exchange(root, qdisc, tree.gate(), cx, panics);
            }
            (tree.root, tree.children, tree.parent) = (plan.root, plan.children, plan.parent);
            tree.replicas = plan.replicas;
            let classes = tree.parent.as_ref().map(Parent::classes).unwrap_or_default();
            if classes != self.classes() {
                // The words were checked against all txqs. The call fails if a class has a txq that is not in use.
                let _ = self.set_classes(&classes);
            }
        });
    }
}

impl<A: Arch> Shared<A> {
    /// Returns the kind of the qdisc that a txq's packets enter.
    fn kind_of(&self, txq: u16) -> &'static str {
        let mut kind = "noqueue";
        self.roots[self.root_of(txq)].with_core(self, |core| {
            kind = core.qdisc.as_ref().map_or(kind, |q| q.kind());
        });
        kind
    }
}
