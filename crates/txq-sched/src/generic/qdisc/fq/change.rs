//! Applies changed parameters to the packets that are queued.

use txq_core::arch::Arch;
use txq_core::drop::DropReason;

use crate::generic::qdisc::Cx;
use crate::generic::qdisc::fq::Fq;
use crate::generic::qdisc::fq::params::{FQ_BANDS, Params};

impl<A: Arch> Fq<A> {
    /// Sets new parameters: counts the bands anew, sets the times of waiting flows, and drops packets beyond the limit.
    pub(super) fn go_by(&mut self, params: Params, cx: &mut Cx<'_, A>) {
        self.params = params;
        self.count_bands();
        self.retime();
        self.trim(cx);
    }

    /// Drops packets of bands that exceed the limit: first those in the FIFO, then the first packets of flows, in turns.
    fn trim(&mut self, cx: &mut Cx<'_, A>) {
        let limit = self.params.limit as usize;
        if self.band_pkts.iter().all(|&pkts| pkts <= limit) {
            return;
        }
        let mut fifo = std::mem::take(&mut self.fifo);
        while let Some(packet) = fifo.pop_front() {
            let pkts = &mut self.band_pkts[self.params.band(&packet)];
            if *pkts > limit {
                *pkts -= 1;
                let _ = self.refuse(packet, DropReason::QdiscOverlimit, cx);
            } else {
                self.fifo.push_back(packet);
            }
        }
        let mut flows: Vec<_> = self.table.backlogged().collect();
        while !flows.is_empty() {
            flows.retain(|&id| {
                let (params, band_pkts) = (&self.params, &mut self.band_pkts);
                let Some(packet) = self.table.take(id, |p| band_pkts[params.band(p)] > limit) else {
                    return false;
                };
                band_pkts[params.band(&packet)] -= 1;
                self.queued.0 -= 1;
                self.queued.1 -= packet.len() as u64;
                let flow = self.table.flow_mut(id);
                let empty = flow.len == 0;
                self.busy -= usize::from(empty);
                if empty && let Some(ticket) = flow.ticket.take() {
                    self.wheel.remove(ticket);
                    self.table.set_idle(id, self.now);
                }
                let _ = self.refuse(packet, DropReason::QdiscOverlimit, cx);
                !empty
            });
        }
    }

    /// Sets the times of waiting flows by the present parameters. A flow that still waited for a removed rate would be
    /// overtaken on the fast path.
    fn retime(&mut self) {
        if self.params.rate().is_none() {
            self.table.flows_mut().for_each(|flow| flow.next_time = 0);
        }
        let waiting: Vec<_> = self.wheel.clear().collect();
        for id in waiting {
            let due = self.table.due(id).unwrap_or(self.now);
            self.table.flow_mut(id).ticket = Some(self.wheel.insert(due, id));
        }
    }

    /// Counts the packets of each band anew.
    fn count_bands(&mut self) {
        let flows = self.table.backlogged().flat_map(|id| self.table.packets(id));
        self.band_pkts = [0; FQ_BANDS];
        for packet in self.fifo.iter().chain(flows) {
            self.band_pkts[self.params.band(packet)] += 1;
        }
    }
}
