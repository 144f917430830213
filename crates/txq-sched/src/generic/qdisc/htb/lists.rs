//! The lists of active classes, by level and priority, from which htb takes the next leaf.
//!
//! An active class that may send by its own rate is in the row of its level; one that may borrow is in the feed of its
//! parent, which makes the parent active as well. So the first non-empty row leads down, feed by feed, to the next leaf; two
//! find-first-sets find that row. Each list marks the class whose turn it is. When the mark comes around to the beginning of
//! the list, the turn passes on in the list above as well.

use txq_core::arch::Arch;

use super::Htb;
use super::buckets::Buckets;
use super::class::{CLASS_LEVELS, Mode};
use crate::generic::qdisc::idle::Warmth;

/// Priorities (`TC_HTB_NUMPRIO`).
pub(super) const PRIOS: usize = 8;
/// No class.
pub(super) const NIL: u32 = u32::MAX;

/// A class's neighbours in a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListLink {
    prev: u32,
    next: u32,
}

impl Default for ListLink {
    fn default() -> Self {
        Self { prev: NIL, next: NIL }
    }
}

/// Classes that take turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
    /// The class whose turn it is.
    turn: u32,
    /// The class that left in its turn; if it returns, the turn is its own again. Meanwhile `turn` is the class that would send next. Once
    /// that class sends, the turn is lost (`last_ptr_id`). Where a class leaves because other parts hold its tokens
    /// ([`Buckets::ACQUIRES`]), the turn is lost at the end of another one's, so a class that is deleted holds none.
    left: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, turn: NIL, left: NIL }
    }
}

/// The classes that may send by their own rates: a list for each level and priority.
#[derive(Debug, Default)]
pub(super) struct Rows {
    lists: [[List; PRIOS]; CLASS_LEVELS],
    /// For each level, the priorities whose lists are not empty, as a bit mask.
    used: [u8; CLASS_LEVELS],
    /// The levels with such a priority, as a bit mask.
    levels: u8,
}

/// Returns the numbers of the bits of a mask, the lowest first.
fn bits(mut mask: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(bit)
    })
}

impl<A: Arch, B: Buckets<A>> Htb<A, B> {
    /// Returns the next leaf, and the level of the class that lends it the tokens.
    #[inline]
    pub(super) fn next_leaf(&mut self) -> Option<(u32, u8)> {
        if self.next.is_none() {
            self.next = self.find_next();
            self.next.iter().for_each(|&(id, _)| self.fetch_behind(id));
        }
        self.next
    }

    fn find_next(&mut self) -> Option<(u32, u8)> {
        let level = (self.rows.levels != 0).then(|| self.rows.levels.trailing_zeros() as usize)?;
        let prio = self.rows.used[level].trailing_zeros() as usize;
        let mut id = self.rows.lists[level][prio].turn;
        while self.classes[id].level > 0 {
            let feed = &mut self.classes[id].feeds[prio];
            if !B::ACQUIRES {
                feed.left = NIL;
            }
            id = feed.turn;
        }
        Some((id, level as u8))
    }

    /// Prefetches the class behind a leaf in its list.
    fn fetch_behind(&self, id: u32) {
        let class = &self.classes[id];
        let ListLink { next, .. } = class.links[usize::from(class.params.prio) % PRIOS];
        if next != NIL {
            self.classes.fetch(next, super::CLASS_LINES);
        }
    }

    /// Activates the class of a leaf, which has packets to send.
    pub(super) fn activate(&mut self, id: u32) {
        let class = &mut self.classes[id];
        if class.active == 0 {
            let active = 1 << class.params.prio;
            class.active = active;
            if matches!(class.warmth, Warmth::Cold | Warmth::Seen) {
                self.warm(id);
            }
            self.link(id, active);
        }
    }

    /// Deactivates the class of a leaf, which has no packets to send.
    pub(super) fn deactivate(&mut self, id: u32) {
        let active = self.classes[id].active;
        if active != 0 {
            self.unlink(id, active, false);
            self.classes[id].active = 0;
        }
    }

    /// Sets a class's mode, counts when it begins to wait, and moves it to the list of the new mode.
    pub(super) fn set_mode(&mut self, id: u32, mode: Mode) {
        let class = &mut self.classes[id];
        let active = class.active;
        if class.mode == mode {
            return;
        }
        if mode == Mode::Wait {
            class.stats.overlimits += 1;
            self.stats.overlimits += 1;
        }
        // A mode that changes for a moment does not end its turn.
        self.unlink(id, active, true);
        self.classes[id].mode = mode;
        self.link(id, active);
    }

    /// Ends a class's turn. The next class of its list has the turn; where that is the first one again, the turn passes on
    /// in the list above as well.
    pub(super) fn end_turn(&mut self, mut id: u32, prio: usize) {
        self.next = None;
        while id != NIL && self.classes[id].is_linked() {
            let next = self.classes[id].links[prio].next;
            let list = self.list_of(id, prio);
            if list.turn != id {
                return;
            }
            (list.turn, list.left) = (if next == NIL { list.head } else { next }, NIL);
            let class = &self.classes[id];
            if next != NIL || class.mode == Mode::Send {
                return;
            }
            id = class.parent;
        }
    }

    /// Returns the list that a linked class is in.
    fn list_of(&mut self, id: u32, prio: usize) -> &mut List {
        let class = &self.classes[id];
        match class.mode {
            Mode::Send => &mut self.rows.lists[usize::from(class.level)][prio],
            Mode::Borrow | Mode::Wait => {
                let parent = class.parent;
                &mut self.classes[parent].feeds[prio]
            }
        }
    }

    /// Links a class into its lists for the priorities of `mask`, and each class above whose feed was empty into its own. It
    /// goes to the end, or, if it left during its turn, back to where the turn is.
    fn link(&mut self, mut id: u32, mut mask: u8) {
        self.next = None;
        while mask != 0 && self.classes[id].is_linked() {
            let mut first = 0;
            for prio in bits(mask) {
                let list = self.list_of(id, prio);
                let is_first = list.head == NIL;
                let is_back = list.left == id;
                if is_back {
                    list.left = NIL;
                }
                let (prev, next) = match is_back && !is_first {
                    true => (NIL, list.turn),
                    false => (list.tail, NIL),
                };
                if is_first {
                    *list = List { head: id, tail: id, turn: id, ..*list };
                    first |= 1 << prio;
                } else if next == NIL {
                    list.tail = id;
                    self.classes[prev].links[prio].next = id;
                } else {
                    list.turn = id;
                }
                self.classes[id].links[prio] = ListLink { prev, next };
                if next != NIL {
                    self.insert_before(id, next, prio);
                }
            }
            let class = &self.classes[id];
            let (level, parent) = (usize::from(class.level), class.parent);
            if class.mode == Mode::Send {
                self.rows.used[level] |= first;
                self.rows.levels |= 1 << level;
                return;
            }
            self.classes[parent].active |= first;
            (id, mask) = (parent, first);
        }
    }

    /// Inserts a class before another one in the same list.
    fn insert_before(&mut self, id: u32, next: u32, prio: usize) {
        let prev = self.classes[next].links[prio].prev;
        match prev {
            NIL => self.list_of(id, prio).head = id,
            prev => self.classes[prev].links[prio].next = id,
        }
        self.classes[next].links[prio].prev = id;
        self.classes[id].links[prio] = ListLink { prev, next };
    }

    /// Unlinks a class from its lists for the priorities of `mask`, and each class above whose feed is then empty from its
    /// own. With `keeps_turn`, a class that borrows may continue its turn when it returns ([`List::left`]).
    fn unlink(&mut self, mut id: u32, mut mask: u8, keeps_turn: bool) {
        self.next = None;
        while mask != 0 && self.classes[id].is_linked() {
            let mut last = 0;
            for prio in bits(mask) {
                let borrows = self.classes[id].mode == Mode::Borrow;
                if keeps_turn && borrows && self.list_of(id, prio).turn == id {
                    let next = self.classes[id].links[prio].next;
                    let list = self.list_of(id, prio);
                    if list.left == NIL {
                        list.left = id;
                    }
                    list.turn = if next == NIL { list.head } else { next };
                } else {
                    self.end_turn(id, prio);
                }
                let ListLink { prev, next } = self.classes[id].links[prio];
                match prev {
                    NIL => self.list_of(id, prio).head = next,
                    prev => self.classes[prev].links[prio].next = next,
                }
                match next {
                    NIL => self.list_of(id, prio).tail = prev,
                    next => self.classes[next].links[prio].prev = prev,
                }
                let list = self.list_of(id, prio);
                if list.turn == id {
                    // The class was alone in the list.
                    list.turn = list.head;
                }
                if list.head == NIL {
                    last |= 1 << prio;
                }
            }
            let class = &self.classes[id];
            let (level, parent) = (usize::from(class.level), class.parent);
            if class.mode == Mode::Send {
                self.rows.used[level] &= !last;
                if self.rows.used[level] == 0 {
                    self.rows.levels &= !(1 << level);
                }
                return;
            }
            self.classes[parent].active &= !last;
            (id, mask) = (parent, last);
        }
    }
}
