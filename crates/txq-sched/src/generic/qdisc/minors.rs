//! A table of classes for kinds whose user chooses the minor numbers: one lookup finds the class that a packet names.

use std::ops::{Index, IndexMut};

use txq_core::arch::fetch_to_write;

use crate::tc::{Handle, ParseError};

/// No class.
const NONE: u32 = u32::MAX;

/// Classes, each with a minor number and an id, which is its index. The id of a removed class is given to a later one.
pub(super) struct Minors<C> {
    /// The ids by minor numbers; [`NONE`] for a number without a class.
    ids: Vec<u32>,
    /// The classes by ids.
    classes: Vec<Option<C>>,
    /// The ids without a class.
    free: Vec<u32>,
}

impl<C> Minors<C> {
    pub(super) fn new() -> Self {
        Self { ids: Vec::new(), classes: Vec::new(), free: Vec::new() }
    }

    /// Returns the id of the class with a minor number, if there is one.
    #[inline]
    pub(super) fn get(&self, minor: u16) -> Option<u32> {
        self.ids.get(usize::from(minor)).copied().filter(|&id| id != NONE)
    }

    /// Returns how many classes there have been at most at one time.
    #[inline]
    pub(super) fn places(&self) -> usize {
        self.classes.len()
    }

    /// Returns the class with an id, if there is one.
    pub(super) fn with_id(&mut self, id: u32) -> Option<&mut C> {
        self.classes.get_mut(id as usize)?.as_mut()
    }

    /// Prefetches the first `lines` cache lines of a class.
    #[inline]
    pub(super) fn fetch(&self, id: u32, lines: usize) {
        if let Some(class) = self.classes.get(id as usize) {
            let first = std::ptr::from_ref(class).cast::<u8>();
            (0..lines).for_each(|line| fetch_to_write(first.wrapping_add(line * 64)));
        }
    }

    /// Returns the id of the class with the full handle `class`, if it is one of the qdisc with the handle `qdisc`.
    #[inline]
    pub(super) fn named(&self, class: Handle, qdisc: Handle) -> Option<u32> {
        let is_ours = class.major() == qdisc.major() && qdisc != Handle::UNSPEC;
        if is_ours { self.get(class.minor()) } else { None }
    }

    /// Returns the id of the class with a minor number, or tc's error.
    pub(super) fn find(&self, minor: u16) -> Result<u32, ParseError> {
        self.get(minor).ok_or_else(|| ParseError::new("RTNETLINK answers: No such file or directory"))
    }

    /// Checks that a new class may have a minor number: not 0, and not another class's. Returns tc's error if it may not.
    pub(super) fn admit(&self, minor: u16) -> Result<(), ParseError> {
        if minor == 0 || self.get(minor).is_some() {
            let error = ParseError::new("RTNETLINK answers: Invalid argument");
            return Err(error.with_remedy("give the class a minor number of its own, from 1 to ffff"));
        }
        Ok(())
    }

    /// Adds a class with a minor number that is free, and returns its id.
    pub(super) fn insert(&mut self, minor: u16, class: C) -> u32 {
        let id = self.free.pop().unwrap_or(self.classes.len() as u32);
        match self.classes.get_mut(id as usize) {
            Some(unused) => *unused = Some(class),
            None => {
                if self.classes.is_empty() {
                    // Many qdiscs never have a second one, and a class is large.
                    self.classes.reserve_exact(1);
                }
                self.classes.push(Some(class));
            }
        }
        let minor = usize::from(minor);
        self.ids.resize(self.ids.len().max(minor + 1), NONE);
        self.ids[minor] = id;
        id
    }

    /// Removes the class with a minor number, if there is one.
    pub(super) fn remove(&mut self, minor: u16) {
        if let Some(id) = self.get(minor) {
            self.ids[usize::from(minor)] = NONE;
            self.classes[id as usize] = None;
            self.free.push(id);
        }
    }

    /// Returns all minor numbers in ascending order.
    pub(super) fn list(&self) -> Vec<u16> {
        (0..=u16::MAX).zip(&self.ids).filter(|&(_, &id)| id != NONE).map(|(minor, _)| minor).collect()
    }

    /// Returns the first `most` minor numbers above `after`, in ascending order.
    pub(super) fn list_after(&self, after: Option<u16>, most: usize) -> Vec<u16> {
        let first = after.map_or(0, |after| usize::from(after) + 1);
        let ids = self.ids.iter().enumerate().skip(first).filter(|&(_, &id)| id != NONE);
        ids.map(|(minor, _)| minor as u16).take(most).collect()
    }

    /// Returns the ids of all classes, in the order of their minor numbers.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.ids.iter().copied().filter(|&id| id != NONE).collect()
    }
}

impl<C> Index<u32> for Minors<C> {
    type Output = C;

    #[inline]
    fn index(&self, id: u32) -> &C {
        self.classes[id as usize].as_ref().expect("the class exists")
    }
}

impl<C> IndexMut<u32> for Minors<C> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut C {
        self.classes[id as usize].as_mut().expect("the class exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_leaves_number_and_place_to_others() {
        let mut minors = Minors::new();
        let ids: Vec<_> = [5, 1, 0xffff].iter().map(|&minor| minors.insert(minor, minor)).collect();
        assert_eq!((minors.list(), minors.ids()), (vec![1, 5, 0xffff], vec![ids[1], ids[0], ids[2]]));
        assert_eq!((minors.get(5), minors.get(2)), (Some(ids[0]), None));
        let named = |class, qdisc| minors.named(Handle(class), Handle(qdisc));
        assert_eq!(
            [named(0x2_0005, 0x2_0000), named(0x1_0005, 0x2_0000), named(5, 0)],
            [Some(ids[0]), None, None]
        );
        for (minor, may) in [(0, false), (1, false), (2, true), (0xffff, false)] {
            assert_eq!(minors.admit(minor).is_ok(), may, "{minor}");
        }
        minors.remove(5);
        minors.remove(5);
        let message = "RTNETLINK answers: No such file or directory";
        assert_eq!(minors.find(5).unwrap_err().message(), message);
        let id = minors.insert(7, 7);
        assert_eq!((id, minors.find(7), minors[id]), (ids[0], Ok(id), 7));
        assert_eq!(minors.insert(5, 5), 3);
    }
}
