//! The order of the flows' turns: lists of flows, linked by indices, and a calendar of rounds, each a list.

/// No flow: the end of a list.
pub(super) const NONE: u16 = u16::MAX;

/// The number of rounds in the calendar. A flow that waits for more rounds is visited in between.
pub(super) const ROUNDS: usize = 1024;

/// A flow that can be on a [`List`].
pub(super) trait Linked {
    /// Returns the link to the flow behind it, or [`NONE`].
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

    /// Appends a flow, which is on no list.
    #[inline]
    pub(super) fn push<F: Linked>(&mut self, flows: &mut [F], index: usize) {
        match self.tail {
            NONE => self.head = index as u16,
            tail => *flows[usize::from(tail)].next() = index as u16,
        }
        *flows[index].next() = NONE;
        self.tail = index as u16;
    }

    /// Takes the first flow off the list, which is not empty.
    #[inline]
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        self.head = *flows[usize::from(self.head)].next();
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

/// The calendar of rounds. The default one has no rounds, and takes no flow.
#[derive(Default)]
pub(super) struct Rounds {
    lists: Box<[List]>,
    /// One bit for each list: set while the list is not empty.
    bits: [u64; ROUNDS / 64],
    /// The present round.
    at: usize,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self { lists: vec![List::EMPTY; ROUNDS].into(), bits: [0; ROUNDS / 64], at: 0 }
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.lists.fill(List::EMPTY);
        (self.bits, self.at) = ([0; ROUNDS / 64], 0);
    }

    /// Appends a flow to the round `ahead` rounds after the present one; `ahead` is less than [`ROUNDS`].
    #[inline]
    pub(super) fn push<F: Linked>(&mut self, flows: &mut [F], index: usize, ahead: usize) {
        let round = (self.at + ahead) % ROUNDS;
        self.lists[round].push(flows, index);
        self.bits[round / 64] |= 1 << (round % 64);
    }

    /// Returns the first flow of the present round. If that is empty, moves on to the next round with a flow; `None` if
    /// there is none.
    #[inline]
    pub(super) fn front(&mut self) -> Option<usize> {
        if self.lists[self.at].head == NONE {
            let (word, bit) = (self.at / 64, self.at % 64);
            let words = self.bits.len();
            // The present word comes last once more, for the rounds behind the present bit.
            let next = (0..=words).find_map(|ahead| {
                let at = (word + ahead) % words;
                let bits = if ahead == 0 { self.bits[at] & (u64::MAX << bit) } else { self.bits[at] };
                (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
            });
            self.at = next?;
        }
        Some(self.lists[self.at].head.into())
    }

    /// Takes the flow that [`front`](Rounds::front) returned off its round.
    #[inline]
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        let list = &mut self.lists[self.at];
        list.pop(flows);
        if list.head == NONE {
            self.bits[self.at / 64] &= !(1 << (self.at % 64));
        }
    }
}
