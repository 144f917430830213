//! The qdiscs below classes: found, replaced, changed and reset.

use txq_core::arch::Arch;

use super::{Found, MAX_TREE_LEVELS, Trees, has_class};
use crate::generic::qdisc::copying::Others;
use crate::generic::qdisc::{self, Cx, Qdisc, child};
use crate::tc::{Handle, Header, ParseError, Words};

/// A class that has a qdisc as its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The handle of the qdisc that the class belongs to.
    parent: Handle,
    minor: u16,
    /// The minor number by which the command names it.
    named: u16,
}

impl<A: Arch> Trees<'_, A> {
    /// Returns the class `minor` of the qdisc `major`, and the handle and kind of its leaf.
    ///
    /// # Errors
    /// tc's errors, if there is no such class or it takes no qdisc.
    #[inline(never)]
    pub fn find_class(
        &mut self,
        major: Handle,
        minor: u16,
    ) -> Result<(Class, Handle, &'static str), ParseError> {
        let named = minor;
        let found = self.with_parent(major, minor, |qdisc, _| {
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
            None => Err(self.no_qdisc("Error: Failed to find specified qdisc.", major)),
            Some((_, Err(()))) => {
                let error = ParseError::new("Error: Parent qdisc is not classful.");
                Err(error.with_remedy(format!("qdisc {major} has no classes")))
            }
            Some((_, Ok(Err(mut minors)))) => {
                // The parts of one qdisc have one class each.
                self.roots.any(&mut |_, own, qdisc, _| {
                    let all = qdisc.classes().map(|classes| classes.minors()).filter(|_| own == major);
                    minors.extend(all.unwrap_or_default());
                    false
                });
                minors.sort_unstable();
                minors.dedup();
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
                Ok((Class { parent: major, minor, named }, handle, kind))
            }
        }
    }

    /// Checks that `new` may become the leaf of a class: at most 7 qdiscs are above it, it has no size table, and no other netem of
    /// the tree copies packets if it does.
    ///
    /// # Errors
    /// The kernel's errors.
    #[inline(never)]
    pub fn admit(&mut self, class: Class, new: &dyn Qdisc<A>) -> Result<(), ParseError> {
        let mut above = None;
        if class.parent == self.root && self.above == 0 {
            // The most frequent parent: no queue need be owned to count.
            above = Some(1);
        } else {
            self.roots.any(&mut |_, own, qdisc, _| {
                above = child::levels(qdisc, own, class.parent);
                above.is_some()
            });
        }
        let above = above.unwrap_or(0) + self.above;
        if above >= MAX_TREE_LEVELS {
            let error = ParseError::new("RTNETLINK answers: Too many levels of symbolic links");
            let class = Handle::new(class.parent.major(), class.minor);
            return Err(error.with_remedy(format!(
                "class {class} has {above} qdiscs above it, and a tree at most {MAX_TREE_LEVELS}"
            )));
        }
        if new.stab().is_some() {
            let error = ParseError::new("Error: STAB not supported on a non root.");
            return Err(error.with_remedy("give the root the stab: it is one for all qdiscs below"));
        }
        match new.copies() {
            Some(copies) => self.others(class).allow(copies),
            None => Ok(()),
        }
    }

    /// Replaces the leaf of a class by one of `new`, which has one for each replica; by the default leaf of the class if it is
    /// empty. Returns the number of the tree.
    #[inline(never)]
    pub fn graft(&mut self, class: Class, mut new: Vec<Box<dyn Qdisc<A>>>, handle: Handle) -> Option<usize> {
        let done = self.with_class(class, |qdisc, cx| {
            let classes = qdisc.classes().expect("the class was found");
            let mut new = new.pop().unwrap_or_else(|| classes.default_leaf(class.minor));
            new.set_handle(handle);
            let (leaf, total) = classes.leaf(class.minor).expect("the class has a leaf");
            leaf.replace(new, handle, total, cx);
            leaf.set_parent(class.minor, class.named);
            classes.leaf_changed(class.minor);
        });
        done.map(|(tree, ())| tree)
    }

    /// Makes `new` the leaf of a class of the root if `may` agrees, which gets the present one. Returns the number of the tree;
    /// `None` if nothing has changed.
    pub fn try_graft(
        &mut self,
        class: Handle,
        new: Box<dyn Qdisc<A>>,
        handle: Handle,
        may: impl Fn(&Found) -> bool,
    ) -> Option<usize> {
        let mut new = Some(new);
        let done = self.with_parent(Handle::new(class.major(), 0), class.minor(), |qdisc, cx| {
            let classes = qdisc.classes()?;
            let minor = classes.find(class.minor())?;
            let (leaf, total) = classes.leaf(minor)?;
            let found = Found { handle: leaf.handle(), kind: leaf.qdisc().kind() };
            let mut new = new.take_if(|_| may(&found))?;
            new.set_handle(handle);
            leaf.replace(new, handle, total, cx);
            leaf.set_parent(minor, class.minor());
            classes.leaf_changed(minor);
            Some(())
        });
        done.and_then(|(tree, done)| done.map(|()| tree))
    }

    /// Changes the parameters of a class's leaf, and its estimator if the header has one. Returns the number of the tree; `None` if the
    /// class is gone.
    ///
    /// # Errors
    /// Those of the leaf. Nothing has changed then.
    #[inline(never)]
    pub fn change_leaf(
        &mut self,
        class: Class,
        header: &Header<'_>,
        words: &Words<'_>,
    ) -> Option<(usize, Result<(), ParseError>)> {
        let (others, env) = (self.others(class), self.env);
        self.with_leaf(class, |leaf, cx| {
            // The qdiscs below the leaf stay, so they count.
            cx.set_others(others.and(Others::below(leaf, Handle::UNSPEC)));
            qdisc::change(leaf, header, &mut words.clone(), &env, cx)
        })
    }

    /// Drops the packets queued in a class's leaf. Returns the number of the tree; `None` if the class is gone.
    #[inline(never)]
    pub fn reset_leaf(&mut self, class: Class) -> Option<usize> {
        self.with_leaf(class, |leaf, cx| leaf.reset(cx)).map(|(tree, ())| tree)
    }

    /// Returns the qdiscs in a class's tree that could copy packets, except the class's own leaf.
    fn others(&mut self, class: Class) -> Others {
        let mut others = None;
        self.roots.any(&mut |_, own, qdisc, _| {
            let is_its = own != class.parent || has_class(qdisc, class.minor);
            if is_its && child::levels(qdisc, own, class.parent).is_some() {
                others = Some(Others::of(qdisc, own, Some((class.parent, class.minor))));
            }
            others.is_some()
        });
        others.unwrap_or_default()
    }

    /// Calls `f` with the qdisc of a class; in replicas, with that of each tree. Returns what the first call returned, and the
    /// number of its tree.
    fn with_class<R>(
        &mut self,
        class: Class,
        f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        match self.replicas {
            true => self.with_each(class.parent, f),
            false => self.with_parent(class.parent, class.minor, f),
        }
    }

    /// Calls `f` with a class's leaf. Returns the number of the tree and the result; `None` if the class's qdisc is gone.
    fn with_leaf<R>(
        &mut self,
        class: Class,
        mut f: impl FnMut(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<(usize, R)> {
        self.with_class(class, |qdisc, cx| {
            let classes = qdisc.classes().expect("the class was found");
            let (leaf, total) = classes.leaf(class.minor).expect("the class has a leaf");
            let done = f(leaf.qdisc_mut(), cx);
            leaf.settle(total);
            classes.leaf_changed(class.minor);
            done
        })
    }
}
