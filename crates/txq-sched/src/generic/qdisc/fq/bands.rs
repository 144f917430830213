//! The order of turns: three bands by weighted round robin, and the flows of each band by deficit round robin.

use txq_core::arch::Arch;

use crate::generic::qdisc::fq::flow::FlowState;
use crate::generic::qdisc::fq::params::FQ_BANDS;
use crate::generic::qdisc::fq::table::Table;
use crate::generic::qdisc::fq::turns::Turns;

/// The number of flows beyond which the next flows are prefetched, because the near caches no longer hold all of them.
pub(super) const MANY_FLOWS: usize = 2048;
/// How many turns ahead a flow is prefetched, then its first packet, to which the flow points, then the second, to which
/// the first points.
const FETCH: [usize; 3] = [12, 7, 3];

/// One band's flows.
pub(super) struct Band {
    /// Flows that were idle before. They go first, once.
    new: Turns,
    /// The band's other flows that are neither idle nor throttled.
    old: Turns,
    /// Bytes that the band may send before its turn is over.
    credit: i64,
}

/// The three bands.
pub(super) struct Bands {
    bands: [Band; FQ_BANDS],
    /// The band that has the turn.
    turn: usize,
}

impl Bands {
    pub(super) fn new(weights: &[u32; FQ_BANDS]) -> Self {
        let band =
            |&weight: &u32| Band { new: Turns::default(), old: Turns::default(), credit: weight.into() };
        Self { bands: std::array::from_fn(|i| band(&weights[i])), turn: 0 }
    }

    /// Appends a flow, which is on no list, to its band's list of new or of old flows.
    #[inline]
    pub(super) fn append<A: Arch>(&mut self, table: &mut Table<A>, id: u32, place: FlowState) {
        let flow = table.flow_mut(id);
        flow.place = place;
        let band = &mut self.bands[usize::from(flow.band)];
        if place == FlowState::New { &mut band.new } else { &mut band.old }.push(id);
    }

    /// Takes the flow that has the turn off its list.
    #[inline]
    pub(super) fn unlink<A: Arch>(&mut self, table: &Table<A>, turn: FlowTurn) {
        let band = &mut self.bands[turn.band];
        let list = if turn.new { &mut band.new } else { &mut band.old };
        list.pop();
        if table.len > MANY_FLOWS {
            fetch_ahead(list, table);
        }
    }

    /// Returns the flow that has the turn, which has credit; `None` if no flow is on a list.
    #[inline]
    pub(super) fn turn<A: Arch>(
        &mut self,
        table: &mut Table<A>,
        quantum: i64,
        weights: &[u32; FQ_BANDS],
    ) -> Option<FlowTurn> {
        let mut vain = 0;
        loop {
            let band = self.band(weights)?;
            let lists = &self.bands[band];
            let new = !lists.new.is_empty();
            let turn = FlowTurn { band, new, flow: if new { &lists.new } else { &lists.old }.get(0)? };
            let flow = table.flow_mut(turn.flow);
            if flow.credit > 0 {
                return Some(turn);
            }
            vain += 1;
            if vain > lists.new.len() + lists.old.len() {
                // No flow of the band had credit, as with a quantum much smaller than a packet.
                self.skip_rounds(table, band, quantum);
                vain = 0;
                continue;
            }
            flow.credit += quantum;
            self.unlink(table, turn);
            self.append(table, turn.flow, FlowState::Old);
        }
    }

    /// Returns the band that has the turn, which has flows and credit; `None` if no band has flows.
    #[inline]
    fn band(&mut self, weights: &[u32; FQ_BANDS]) -> Option<usize> {
        let mut empty = 0;
        while empty < FQ_BANDS {
            let band = &self.bands[self.turn];
            if band.new.is_empty() && band.old.is_empty() {
                empty += 1;
            } else if band.credit > 0 {
                return Some(self.turn);
            } else {
                empty = 0;
            }
            self.turn = (self.turn + 1) % FQ_BANDS;
            let weight = i64::from(weights[self.turn]);
            let band = &mut self.bands[self.turn];
            band.credit = (band.credit + weight).min(weight);
        }
        None
    }

    /// Gives all flows of a band the credit of the rounds in which none of them would have credit.
    #[cold]
    fn skip_rounds<A: Arch>(&mut self, table: &mut Table<A>, band: usize, quantum: i64) {
        let Band { new, old, .. } = &self.bands[band];
        let mut rounds = i64::MAX;
        for id in new.iter().chain(old.iter()) {
            let flow = table.flow(id);
            // The flow's next visit adds the quantum that makes its credit positive.
            rounds = rounds.min(if flow.credit > 0 { 0 } else { -flow.credit / quantum });
        }
        for id in new.iter().chain(old.iter()) {
            table.flow_mut(id).credit += rounds * quantum;
        }
    }

    /// Charges a band for the bytes that one of its flows sent.
    #[inline]
    pub(super) fn charge(&mut self, band: usize, bytes: i64) {
        self.bands[band].credit -= bytes;
    }

    /// Returns whether the band has old flows.
    #[inline]
    pub(super) fn has_old(&self, band: usize) -> bool {
        !self.bands[band].old.is_empty()
    }
}

/// The flow that has the turn.
#[derive(Clone, Copy)]
pub(super) struct FlowTurn {
    pub(super) band: usize,
    /// Whether the flow is on its band's list of new flows.
    new: bool,
    pub(super) flow: u32,
}

impl FlowTurn {
    pub(super) fn is_new(&self) -> bool {
        self.new
    }
}

/// Prefetches the next flows of a list, and their packets.
fn fetch_ahead<A: Arch>(list: &Turns, table: &Table<A>) {
    let [flow, first, second] = FETCH.map(|ahead| list.get(ahead));
    flow.inspect(|&id| table.fetch_flow(id));
    first.inspect(|&id| table.flow(id).queue.fetch_front());
    second.inspect(|&id| table.flow(id).queue.fetch_second());
}
