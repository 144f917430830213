//! Packets that meet the filters of a hook (`shared/hook.rs`): a sender's own before the root qdisc, and those that another device
//! has received. What the filters redirect goes through a sender of this sender's own on the other device.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Native};
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::Verdict;

use super::{Begun, Sender};
use crate::generic::datapath::Ctx;
use crate::generic::shared::hook::{Side, Sorted};
use crate::generic::shared::{Shared, hook::Hooks};

/// How often filters may redirect a packet from device to device (`MIRRED_RECURSION_LIMIT`).
const MAX_REDIRECTS: u8 = 4;

/// What a sender needs to serve a hook. It is made for the first batch that meets one.
pub(super) struct Hooked<A: Arch> {
    sorted: Sorted<A>,
    /// Senders on the devices that filters send to.
    peers: Vec<Sender<A>>,
}

/// The filters of the packets that a device has received, for the thread that receives them ([`NetDev::ingress`](crate::NetDev::ingress)).
pub struct Ingress<A: Arch = Native>(pub(crate) Arc<Shared<A>>);

impl<A: Arch> fmt::Debug for Ingress<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ingress").field(&self.0.info.name).finish()
    }
}

impl<A: Arch> Ingress<A> {
    /// Runs the ingress filters on packets that the device has received, in buffers of `sender`.
    #[inline]
    pub fn filter(&self, sender: &mut Sender<A>, batch: &mut PacketList<A>) {
        if self.0.hooks.has_ingress() {
            sender.filter_ingress(&self.0, batch);
        }
    }
}

impl<A: Arch> Sender<A> {
    #[cold]
    fn filter_ingress(&mut self, dev: &Arc<Shared<A>>, batch: &mut PacketList<A>) {
        let mut hooked = self.take_hooked();
        dev.hooks.run(Side::Ingress, batch, 0, &mut self.cache, &mut hooked.sorted);
        // They were not handed in, so no sender has lost them.
        self.cache.free(&mut hooked.sorted.dropped);
        self.redirect(&dev.hooks, &mut hooked);
        self.hooked = Some(hooked);
    }

    fn take_hooked(&mut self) -> Box<Hooked<A>> {
        let make = || Box::new(Hooked { sorted: Sorted::new(), peers: Vec::new() });
        self.hooked.take().unwrap_or_else(make)
    }

    /// Runs the egress filters on a batch that is handed in. Packets for which a txq was chosen are parts of the split batch,
    /// and counted here; the caller counts the packets that stay in the batch.
    #[cold]
    pub(super) fn filter_egress(&mut self, batch: &mut PacketList<A>) -> Begun {
        let dev = self.dev.clone();
        let (mut hooked, before) = (self.take_hooked(), batch.len());
        dev.hooks.run(Side::Egress, batch, self.steer.in_use(), &mut self.cache, &mut hooked.sorted);
        let sorted = &mut hooked.sorted;
        let mut chosen = 0;
        for (txq, list) in &mut sorted.chosen {
            chosen += list.len();
            self.add_part(*txq, list);
        }
        let (dropped, went_on) = (sorted.dropped.len(), batch.len() + chosen);
        if dropped > 0 {
            self.counters.submit(dropped as u64);
            dev.hooks.dropped.fetch_add(dropped as u64, Relaxed);
            Ctx::under(self.rule, &dev, &mut self.cache).free_list(&mut sorted.dropped);
        }
        self.counters.submit(chosen as u64);
        self.redirect(&dev.hooks, &mut hooked);
        self.hooked = Some(hooked);
        match (went_on, dropped) {
            (0, 0) => Begun::None(Verdict::Success),
            (0, n) if n == before => Begun::None(Verdict::Drop),
            (0, _) => Begun::None(Verdict::Congested),
            (_, 0) => Begun::All,
            _ => Begun::Some,
        }
    }

    /// Sends packets through the devices that filters have chosen for them.
    fn redirect(&mut self, hooks: &Hooks<A>, hooked: &mut Hooked<A>) {
        for (port, list) in hooked.sorted.out.iter_mut().filter(|(_, list)| !list.is_empty()) {
            let mut list = mem::take(list);
            let peers = &mut hooked.peers;
            if let Some(dev) =
                hooks.device(*port).filter(|dev| !dev.is_stopping() && self.depth < MAX_REDIRECTS)
            {
                let at = peers.iter().position(|peer| Arc::ptr_eq(&peer.dev, &dev)).unwrap_or_else(|| {
                    // Senders on devices that have ended are of no use.
                    peers.retain(|peer| !peer.dev.is_stopping());
                    let mut peer = Sender::new(dev, "mirred", self.pinned);
                    peer.depth = self.depth + 1;
                    peers.push(peer);
                    peers.len() - 1
                });
                let (peer, mut copies) = (&mut peers[at], PacketList::new());
                for packet in list.iter() {
                    // Without a buffer the packet ends here.
                    if let Ok(copy) = peer.cache.copy_own(packet, 0, 0..packet.len()) {
                        copies.push_back(copy);
                    }
                }
                let _ = peer.xmit_batch(&mut copies);
            }
            self.cache.free(&mut list);
        }
    }
}
