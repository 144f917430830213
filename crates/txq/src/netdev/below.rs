//! Qdiscs below the classes of others: found, exchanged, changed and listed by whoever has their queue for a moment.

use super::tree::Tree;
use super::{Root, Shared};
use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::qdisc::copying::Others;
use crate::qdisc::{Cx, Qdisc, child};
use crate::tc::{Handle, ParseError, QdiscInfo, Style, Words};

/// Qdiscs from the root of a device down to the deepest that somebody named, so that a walk through the tree has a bounded
/// stack. The depth that the kernel looks for loops to (`check_loop`).
const LEVELS: usize = 8;

/// A class that has a qdisc for a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// The qdisc that it is a class of.
    parent: Handle,
    minor: u16,
}

impl<A: Arch> Shared<A> {
    /// The queues that are in force, and their qdiscs' handles.
    pub(super) fn owned<'s>(&'s self, tree: &'s Tree) -> impl Iterator<Item = (&'s Root<A>, Handle)> {
        let handles = tree.children.as_deref().unwrap_or(std::slice::from_ref(&tree.root));
        self.roots_in_force().iter().zip(handles.iter().copied())
    }

    /// Calls `f` with the qdisc that has a handle, wherever it is, and tells the queue it is in.
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

    /// Whether a qdisc below another has this handle, or one at the top.
    pub(super) fn names_below(&self, tree: &Tree, handle: Handle, cx: &mut Ctx<'_, A>) -> bool {
        self.with_qdisc(tree, handle, cx, |_, _| ()).is_some()
    }

    /// The class `minor` of the qdisc `major`, and the handle and kind of its leaf.
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

    /// Puts a qdisc in the place of a class's leaf, or what the class has when somebody deletes that.
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

    /// Checks that a qdisc in the place of a class's leaf has at most [`LEVELS`] - 1 above it.
    pub(super) fn admit_below(&self, tree: &Tree, class: Class) -> Result<(), ParseError> {
        let mut above = None;
        for (root, own) in self.owned(tree) {
            root.with_core(self, |core| {
                let levels = core.qdisc.as_mut().and_then(|q| child::levels(&mut **q, own, class.parent));
                above = above.or(levels);
            });
        }
        // mq is one more.
        let above = above.unwrap_or(0) + usize::from(tree.children.is_some());
        if above < LEVELS {
            return Ok(());
        }
        let error = ParseError::new("RTNETLINK answers: Too many levels of symbolic links");
        let class = Handle::new(class.parent.major(), class.minor);
        Err(error
            .with_remedy(format!("class {class} has {above} qdiscs above it, and a tree at most {LEVELS}")))
    }

    /// The qdiscs of a class's tree that could copy packets, but for the class's own leaf.
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

    /// Calls `f` with a class's leaf.
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
        // A packet may be due now that was not.
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
            // What is below it stays.
            cx.copying.others = others.and(Others::below(leaf, Handle::UNSPEC));
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

/// The named qdiscs below one, each after the one that it is below.
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
