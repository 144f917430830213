//! Finds, replaces, changes and lists qdiscs below the classes of other qdiscs. The calling thread owns their queue
//! meanwhile.

use txq_core::arch::Arch;
use txq_sched::qdisc::copying::Others;
use txq_sched::qdisc::{Cx, Qdisc, child};
use txq_sched::tc::{Handle, ParseError, QdiscInfo, Style, Words};

use super::tree::Tree;
use super::{Root, Shared};
use crate::ctx::Ctx;

/// The maximum number of qdiscs from the root of a device down to the deepest one that has a handle, so that a walk through
/// the tree has a bounded stack. The kernel looks for loops to the same depth (`check_loop`).
const LEVELS: usize = 8;

/// A class that has a qdisc as its leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// The handle of the qdisc that the class belongs to.
    parent: Handle,
    minor: u16,
}

impl<A: Arch> Shared<A> {
    /// Returns the queues in force, with the handles of their qdiscs.
    pub(super) fn owned<'s>(&'s self, tree: &'s Tree) -> impl Iterator<Item = (&'s Root<A>, Handle)> {
        let handles = tree.children.as_deref().unwrap_or(std::slice::from_ref(&tree.root));
        self.roots_in_force().iter().zip(handles.iter().copied())
    }

    /// Calls `f` with the qdisc that has this handle, wherever it is. Returns the number of its root and the result; `None`
    /// if there is no such qdisc.
    pub(super) fn with_qdisc<R>(
        &self,
        tree: &Tree,
        handle: Handle,
        cx: &mut Ctx<'_, A>,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        if handle == Handle::UNSPEC {
            return None;
        }
        let found = self.owned(tree).find_map(|(root, own)| {
            let mut found = None;
            root.with_core(self, |core| {
                found = core
                    .with_qdisc(cx, |qdisc, cx| child::find(qdisc, own, handle, &mut |q| f(q, cx)))
                    .flatten();
            });
            found.map(|found| (root.index, found))
        });
        cx.free_dropped();
        found
    }

    /// Returns whether a qdisc in force, at the top or below another, has this handle.
    pub(super) fn names_below(&self, tree: &Tree, handle: Handle, cx: &mut Ctx<'_, A>) -> bool {
        self.with_qdisc(tree, handle, cx, |_, _| ()).is_some()
    }

    /// Returns the class `minor` of the qdisc `major`, and the handle and kind of its leaf.
    pub(super) fn find_class(
        &self,
        tree: &Tree,
        major: Handle,
        minor: u16,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(Class, Handle, &'static str), ParseError> {
        let found = self.with_qdisc(tree, major, cx, |qdisc, _| {
            let classes = qdisc.classes().ok_or(())?;
            let Some(minor) = classes.find(minor) else {
                let mut minors = classes.minors();
                minors.retain(|&minor| classes.find(minor).is_some());
                return Ok(Err(minors));
            };
            let leaf = classes.leaf(minor).map(|(leaf, _)| (leaf.handle(), leaf.qdisc().kind()));
            Ok(Ok((minor, leaf)))
        });
        match found {
            None => {
                let error = ParseError::new("Error: Failed to find specified qdisc.");
                Err(error.with_remedy(format!("there is no qdisc {major} (the root is {})", tree.root)))
            }
            Some((_, Err(()))) => {
                let error = ParseError::new("Error: Parent qdisc is not classful.");
                Err(error.with_remedy(format!("qdisc {major} has no classes")))
            }
            Some((_, Ok(Err(minors)))) => {
                let names: Vec<_> = minors.iter().map(|minor| format!("{major}{minor:x}")).collect();
                let error = ParseError::new("Error: Specified class not found.");
                Err(error.with_remedy(match names.is_empty() {
                    true => format!("qdisc {major} has no class that takes a qdisc"),
                    false => format!("there are {}", names.join(", ")),
                }))
            }
            Some((_, Ok(Ok((minor, None))))) => {
                let error = ParseError::new("RTNETLINK answers: Invalid argument");
                let class = Handle::new(major.major(), minor);
                Err(error
                    .with_remedy(format!("class {class} has classes below it: give them qdiscs instead")))
            }
            Some((_, Ok(Ok((minor, Some((handle, kind))))))) => {
                Ok((Class { parent: major, minor }, handle, kind))
            }
        }
    }

    /// Replaces the leaf of a class by `new`; by the default leaf of the class if that is `None`.
    pub(super) fn graft_leaf(
        &self,
        tree: &Tree,
        class: Class,
        mut new: Option<Box<dyn Qdisc<A>>>,
        handle: Handle,
        cx: &mut Ctx<'_, A>,
    ) {
        let done = self.with_qdisc(tree, class.parent, cx, |qdisc, cx| {
            let classes = qdisc.classes().expect("the class was found");
            let mut new = new.take().unwrap_or_else(|| classes.default_leaf(class.minor));
            new.set_handle(handle);
            let (leaf, total) = classes.leaf(class.minor).expect("the class has a leaf");
            leaf.replace(new, handle, total, cx);
            classes.leaf_changed(class.minor);
        });
        if let Some((root, ())) = done {
            self.hand_over(root);
        }
    }

    /// Checks that a qdisc grafted below a class has at most [`LEVELS`] - 1 qdiscs above it.
    pub(super) fn admit_below(&self, tree: &Tree, class: Class) -> Result<(), ParseError> {
        let mut above = None;
        for (root, own) in self.owned(tree) {
            root.with_core(self, |core| {
                let levels = core.qdisc.as_mut().and_then(|q| child::levels(&mut **q, own, class.parent));
                above = above.or(levels);
            });
        }
        // mq is one level more.
        let above = above.unwrap_or(0) + usize::from(tree.children.is_some());
        if above < LEVELS {
            return Ok(());
        }
        let error = ParseError::new("RTNETLINK answers: Too many levels of symbolic links");
        let class = Handle::new(class.parent.major(), class.minor);
        Err(error
            .with_remedy(format!("class {class} has {above} qdiscs above it, and a tree at most {LEVELS}")))
    }

    /// Returns the qdiscs in a class's tree that could copy packets, except the class's own leaf.
    pub(super) fn others(&self, tree: &Tree, class: Class, cx: &mut Ctx<'_, A>) -> Others {
        let Some((index, ())) = self.with_qdisc(tree, class.parent, cx, |_, _| ()) else {
            return Others::default();
        };
        let mut others = None;
        for (root, own) in self.owned(tree).filter(|(root, _)| root.index == index) {
            root.with_core(self, |core| {
                let leaf = Some((class.parent, class.minor));
                others = core.with_qdisc(cx, |qdisc, _| Others::of(qdisc, own, leaf));
            });
        }
        others.unwrap_or_default()
    }

    /// Calls `f` with a class's leaf. Returns the result; `None` if the class's qdisc is gone.
    fn with_leaf<R>(
        &self,
        tree: &Tree,
        class: Class,
        cx: &mut Ctx<'_, A>,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<R> {
        let (root, done) = self.with_qdisc(tree, class.parent, cx, |qdisc, cx| {
            let classes = qdisc.classes().expect("the class was found");
            let (leaf, total) = classes.leaf(class.minor).expect("the class has a leaf");
            let done = f(leaf.qdisc_mut(), cx);
            leaf.settle(total);
            classes.leaf_changed(class.minor);
            done
        })?;
        // A packet may have become due by the change.
        self.hand_over(root);
        Some(done)
    }

    pub(super) fn change_leaf(
        &self,
        tree: &Tree,
        class: Class,
        words: &Words<'_>,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(), ParseError> {
        let others = self.others(tree, class, cx);
        let change = |leaf: &mut dyn Qdisc<A>, cx: &mut Cx<'_, A>| {
            // The qdiscs below the leaf stay, so they count.
            cx.set_others(others.and(Others::below(leaf, Handle::UNSPEC)));
            leaf.change(&mut words.clone(), &tree.env, cx)
        };
        self.with_leaf(tree, class, cx, change).unwrap_or(Ok(()))
    }

    pub(super) fn reset_leaf(
        &self,
        tree: &Tree,
        class: Class,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(), ParseError> {
        let _ = self.with_leaf(tree, class, cx, |leaf, cx| leaf.reset(cx));
        Ok(())
    }
}

/// Appends the named qdiscs below a qdisc to `info`, each after the one that it is below.
pub(super) fn list<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, style: Style, info: &mut Vec<QdiscInfo>) {
    let Some(classes) = qdisc.classes() else { return };
    for minor in classes.minors() {
        let Some((leaf, _)) = classes.leaf(minor) else { continue };
        let handle = leaf.handle();
        if handle != Handle::UNSPEC {
            let qdisc = leaf.qdisc();
            info.push(QdiscInfo {
                kind: qdisc.kind().to_owned(),
                handle,
                dev: None,
                parent: Handle::new(own.major(), minor),
                refcnt: 1,
                options: qdisc.options(style),
                stats: qdisc.stats(),
                xstats: qdisc.xstats(style),
            });
        }
        list(leaf.qdisc_mut(), handle, style, info);
    }
}
