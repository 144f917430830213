//! Whose turn it is: lists of flows, linked by indices, and a calendar of rounds of them.

/// No flow, the end of a list.
pub(super) const NONE: u16 = u16::MAX;

/// Rounds that can be told apart; a flow that has to wait for longer is looked at in between.
pub(super) const ROUNDS: usize = 1024;

/// What can be on a list.
pub(super) trait Linked {
    /// The one behind it.
    fn next(&mut self) -> &mut u16;
}

/// A first-in first-out list of flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) head: u16,
    tail: u16,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(super) fn push<F: Linked>(&mut self, flows: &mut [F], index: usize) {
        match self.tail {
            NONE => self.head = index as u16,
            tail => *flows[usize::from(tail)].next() = index as u16,
        }
        *flows[index].next() = NONE;
        self.tail = index as u16;
    }

    #[inline]
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        self.head = *flows[usize::from(self.head)].next();
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

/// The calendar.
pub(super) struct Rounds {
    lists: Box<[List]>,
    /// Which of them are not empty.
    bits: [u64; ROUNDS / 64],
    /// The round that it is.
    at: usize,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self { lists: vec![List::EMPTY; ROUNDS].into(), bits: [0; ROUNDS / 64], at: 0 }
    }

    #[inline]
    pub(super) fn push<F: Linked>(&mut self, flows: &mut [F], index: usize, ahead: usize) {
        let round = (self.at + ahead) % ROUNDS;
        self.lists[round].push(flows, index);
        self.bits[round / 64] |= 1 << (round % 64);
    }

    /// The flow whose turn it is, in this round or in the next that has one.
    #[inline]
    pub(super) fn front(&mut self) -> Option<usize> {
        if self.lists[self.at].head == NONE {
            let (word, bit) = (self.at / 64, self.at % 64);
            let words = self.bits.len();
            // The word that it is comes last once more, for what is behind.
            let next = (0..=words).find_map(|ahead| {
                let at = (word + ahead) % words;
                let bits = if ahead == 0 { self.bits[at] & (u64::MAX << bit) } else { self.bits[at] };
                (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
            });
            self.at = next?;
        }
        Some(self.lists[self.at].head.into())
    }

    #[inline]
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        let list = &mut self.lists[self.at];
        list.pop(flows);
        if list.head == NONE {
            self.bits[self.at / 64] &= !(1 << (self.at % 64));
        }
    }
}
