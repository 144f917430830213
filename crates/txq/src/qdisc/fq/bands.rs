//! Whose turn it is: three bands by weighted round robin, and the flows of each by deficit round robin.

use crate::arch::Arch;
use crate::qdisc::fq::flow::{NIL, Place};
use crate::qdisc::fq::params::BANDS;
use crate::qdisc::fq::table::{List, Table};

/// One band's flows.
pub(super) struct Band {
    /// Flows that were idle until just now: served first, once.
    new: List,
    old: List,
    /// Bytes that the band may send before its turn is over.
    credit: i64,
}

pub(super) struct Bands {
    bands: [Band; BANDS],
    turn: usize,
}

impl Bands {
    pub(super) fn new(weights: &[u32; BANDS]) -> Self {
        let band = |&weight: &u32| Band { new: List::new(), old: List::new(), credit: weight.into() };
        Self { bands: std::array::from_fn(|i| band(&weights[i])), turn: 0 }
    }

    /// Puts a flow, which is on no list, at the end of one of its band's.
    #[inline]
    pub(super) fn append<A: Arch>(&mut self, table: &mut Table<A>, id: u32, place: Place) {
        let flow = table.flow_mut(id);
        flow.place = place;
        let band = &mut self.bands[usize::from(flow.band)];
        table.append(if place == Place::New { &mut band.new } else { &mut band.old }, id);
    }

    /// Takes the flow whose turn it is off its list.
    #[inline]
    pub(super) fn unlink<A: Arch>(&mut self, table: &mut Table<A>, turn: Turn) {
        let band = &mut self.bands[turn.band];
        table.unlink(if turn.new { &mut band.new } else { &mut band.old }, turn.flow);
    }

    /// The flow whose turn it is, if any has one. It has credit.
    #[inline]
    pub(super) fn turn<A: Arch>(
        &mut self,
        table: &mut Table<A>,
        quantum: i64,
        weights: &[u32; BANDS],
    ) -> Option<Turn> {
        let mut vain = 0;
        loop {
            let band = self.band(weights)?;
            let lists = &self.bands[band];
            let new = lists.new.head != NIL;
            let turn = Turn { band, new, flow: if new { lists.new.head } else { lists.old.head } };
            let flow = table.flow_mut(turn.flow);
            if flow.credit > 0 {
                return Some(turn);
            }
            vain += 1;
            if vain > lists.new.len + lists.old.len {
                // All flows of the band were asked in vain, as with a quantum much smaller than a packet.
                self.skip_rounds(table, band, quantum);
                vain = 0;
                continue;
            }
            flow.credit += quantum;
            self.unlink(table, turn);
            self.append(table, turn.flow, Place::Old);
        }
    }

    /// The band whose turn it is.
    #[inline]
    fn band(&mut self, weights: &[u32; BANDS]) -> Option<usize> {
        let mut empty = 0;
        while empty < BANDS {
            let band = &self.bands[self.turn];
            if band.new.head == NIL && band.old.head == NIL {
                empty += 1;
            } else if band.credit > 0 {
                return Some(self.turn);
            } else {
                empty = 0;
            }
            self.turn = (self.turn + 1) % BANDS;
            let weight = i64::from(weights[self.turn]);
            let band = &mut self.bands[self.turn];
            band.credit = (band.credit + weight).min(weight);
        }
        None
    }

    /// Gives all flows of a band the credit of the rounds in which none of them would have its turn.
    #[cold]
    fn skip_rounds<A: Arch>(&mut self, table: &mut Table<A>, band: usize, quantum: i64) {
        let heads = [self.bands[band].new.head, self.bands[band].old.head];
        let mut rounds = i64::MAX;
        for mut id in heads {
            while id != NIL {
                let flow = table.flow(id);
                // The quantum that makes its credit positive comes when it is asked.
                rounds = rounds.min(if flow.credit > 0 { 0 } else { -flow.credit / quantum });
                id = flow.next;
            }
        }
        for mut id in heads {
            while id != NIL {
                let flow = table.flow_mut(id);
                flow.credit += rounds * quantum;
                id = flow.next;
            }
        }
    }

    /// The flow has sent so many bytes.
    #[inline]
    pub(super) fn charge(&mut self, band: usize, bytes: i64) {
        self.bands[band].credit -= bytes;
    }

    /// Whether a flow of the band waits behind the new ones.
    #[inline]
    pub(super) fn has_old(&self, band: usize) -> bool {
        self.bands[band].old.head != NIL
    }
}

/// Whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) band: usize,
    /// On the list of new flows.
    new: bool,
    pub(super) flow: u32,
}

impl Turn {
    pub(super) fn is_new(&self) -> bool {
        self.new
    }
}
