//! A handle for one flow: the counterpart of a connected socket in the kernel's transmit path.
//!
//! A sender cannot tell when the packets of a single flow have left; it knows only when its txqs are idle. A program that
//! serves many connections on one thread, or hands them from thread to thread, gives each connection a [`Flow`]. A `Flow`
//! remembers its txq and counts its outstanding packets. While packets are outstanding, it keeps its txq. When none is, the
//! next packet cannot overtake another (`skb->ooo_okay`), and the sender's CPU, the map and the hash choose the txq anew.
//!
//! A flow that always has packets outstanding would stay on its txq for ever. So it chooses again when the reselection
//! interval has passed since its last choice ([`Builder::txq_reselection`], `net.core.txq_reselection_ms`). This may
//! reorder packets, at most once in the interval. A txq that is no longer in use ([`NetDev::set_txqs`]) is left at once, as
//! in the kernel.
//!
//! [`Builder::txq_reselection`]: crate::generic::netdev::Builder::txq_reselection
//! [`NetDev::set_txqs`]: crate::NetDev::set_txqs

use std::fmt;
use std::sync::Arc;

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::packet::outstanding::Outstanding;
use txq_core::packet::{Packet, PacketList};
use txq_sched::generic::qdisc::Verdict;

use super::{Begun, Sender};
use crate::generic::shared::Shared;
use crate::generic::steering::Here;

/// One flow, usable by any sender, one at a time. Its packets stay in order whichever thread sends them, as long as
/// reselection is off. Dropping a `Flow` leaves its packets on their way.
pub struct Flow<A: Arch = Native> {
    outstanding: Outstanding<A>,
    /// The txq of its packets; `None` before the first.
    choice: Option<Choice>,
    /// The flow's hash, 0 while unknown (`sk_txhash`).
    hash: u32,
}

#[derive(Debug, Clone, Copy)]
struct Choice {
    txq: u16,
    /// The address of the device, for comparison only.
    dev: usize,
    made: Nanos,
}

impl<A: Arch> Flow<A> {
    /// Creates a flow that has not sent anything.
    #[inline(never)]
    pub fn new() -> Self {
        Self { outstanding: Outstanding::new(), choice: None, hash: 0 }
    }

    /// Returns how many packets were handed in and are neither dropped nor completed yet.
    #[inline(never)]
    pub fn outstanding(&self) -> u64 {
        self.outstanding.get()
    }

    /// Returns the txq that its last packets went to (`sk_tx_queue_get`).
    #[inline(never)]
    pub fn txq(&self) -> Option<u16> {
        self.choice.map(|choice| choice.txq)
    }

    /// Returns the txq for a batch that begins with `packet` (`netdev_pick_tx`).
    #[inline]
    fn steer(&mut self, packet: &Packet<A>, here: &mut Here<A>, dev: &Arc<Shared<A>>) -> u16 {
        let in_use = here.refresh();
        let id = Arc::as_ptr(dev).addr();
        if let Some(choice) = self.choice {
            let fresh = dev.reselection == 0 || here.now.saturating_sub(choice.made) < dev.reselection;
            if fresh && choice.dev == id && choice.txq < in_use && self.outstanding.get() > 0 {
                return choice.txq;
            }
        }
        let txq = here.pick(packet, &mut self.hash);
        self.choice = Some(Choice { txq, dev: id, made: here.now });
        txq
    }
}

impl<A: Arch> Default for Flow<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> fmt::Debug for Flow<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("txq", &self.txq())
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

impl<A: Arch> Sender<A> {
    /// Sends one packet of a flow, as [`xmit`](Sender::xmit) does.
    #[inline]
    pub fn xmit_on(&mut self, flow: &mut Flow<A>, packet: Packet<A>) -> Verdict {
        let mut batch = PacketList::new();
        batch.push_back(packet);
        self.xmit_batch_on(flow, &mut batch)
    }

    /// Returns the txq for a batch of a flow that begins with `packet`.
    #[inline]
    pub(super) fn txq_of_flow(&mut self, flow: &mut Flow<A>, packet: &Packet<A>) -> u16 {
        let here = self.here.get_or_insert_with(|| {
            let cpu = self.pinned.unwrap_or_else(A::cpu);
            Here::new(&self.dev.steering, self.dev.hasher, self.dev.reselection, cpu)
        });
        flow.steer(packet, here, &self.dev)
    }

    /// Sends packets of one flow, in order, and leaves the list empty, as [`xmit_batch`](Sender::xmit_batch) does.
    #[inline(never)]
    pub fn xmit_batch_on(&mut self, flow: &mut Flow<A>, batch: &mut PacketList<A>) -> Verdict {
        let Some(first) = batch.front() else { return Verdict::Success };
        let txq = self.txq_of_flow(flow, first);
        flow.outstanding.add(batch);
        self.call(batch, |sender, batch| {
            let begun = match sender.begin(batch) {
                Begun::None(verdict) => return verdict,
                begun => begun,
            };
            begun.verdict(match sender.parts.is_empty() {
                true => sender.enter(txq, batch),
                // Actions have chosen another txq for some.
                false => {
                    sender.add_part(txq, batch);
                    sender.submit_split(batch)
                }
            })
        })
    }
}
