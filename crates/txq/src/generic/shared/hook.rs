//! The filters that packets meet outside of qdiscs: those that a device sends before its root qdisc, and those that it has received
//! (`clsact`, `ingress`).
//!
//! A hook's filters are under a lock that a thread takes once for a batch. The egress hook costs nothing while it has no
//! filters: the bit that says so is in the word of the rule in force, which each call of xmit compares anyway
//! (`datapath/selector.rs`). The kernel's counterparts are `sch_handle_egress` and `sch_handle_ingress`.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use txq_core::arch::{Arch, Atomic};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;
use txq_core::pool::Cache;
use txq_core::stats::QdiscStats;
use txq_core::sync::spinlock::SpinLock;
use txq_sched::generic::filter::{Choice, Filters, Indexes};

use super::Shared;

/// Which packets of a device a hook sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Those that the device has received.
    Ingress,
    /// Those that the device is about to send.
    Egress,
}

/// A hook: its filters and counters.
pub(crate) struct Hook<A: Arch> {
    pub(crate) filters: Filters<A>,
    /// Packets that met the filters, and those that they dropped.
    pub(crate) stats: QdiscStats,
}

/// A device that filters may send to, with its name.
type Port<A> = (String, Weak<Shared<A>>);

/// The hooks of a device.
pub(crate) struct Hooks<A: Arch> {
    ingress: SpinLock<A, Hook<A>>,
    egress: SpinLock<A, Hook<A>>,
    /// Whether the ingress hook has filters: 1 or 0. Written by control operations after they have changed the filters, read
    /// before each batch (both relaxed: the lock orders the filters; a batch on its way may miss a new filter).
    ingress_on: A::AtomicU32,
    /// Packets that the egress hook has dropped. Relaxed: only shown, and only after the counters of senders.
    pub(crate) dropped: A::AtomicU64,
    /// The devices that filters may send to. A filter has the index of its own.
    ports: SpinLock<A, Vec<Port<A>>>,
    /// The numbers of all actions of the device.
    pub(crate) indexes: Indexes,
}

/// A batch after a hook. The lists are empty between two batches.
pub(crate) struct Sorted<A: Arch> {
    pub(crate) dropped: PacketList<A>,
    /// Packets for other devices, by the index of the port.
    pub(crate) out: Vec<(u16, PacketList<A>)>,
    /// Packets for which actions have chosen a txq.
    pub(crate) chosen: Vec<(u16, PacketList<A>)>,
}

impl<A: Arch> Sorted<A> {
    pub(crate) fn new() -> Self {
        Self { dropped: PacketList::new(), out: Vec::new(), chosen: Vec::new() }
    }
}

/// Returns the list of a number, which keeps its memory from batch to batch.
fn list_of<A: Arch>(lists: &mut Vec<(u16, PacketList<A>)>, number: u16) -> &mut PacketList<A> {
    let at = lists.iter().position(|(other, _)| *other == number).unwrap_or_else(|| {
        lists.push((number, PacketList::new()));
        lists.len() - 1
    });
    &mut lists[at].1
}

impl<A: Arch> Hooks<A> {
    pub(crate) fn new() -> Self {
        let hook = || SpinLock::new(Hook { filters: Filters::for_hook(), stats: QdiscStats::default() });
        Self {
            ingress: hook(),
            egress: hook(),
            ingress_on: A::AtomicU32::new(0),
            dropped: A::AtomicU64::new(0),
            ports: SpinLock::new(Vec::new()),
            indexes: Indexes::default(),
        }
    }

    /// Returns whether the ingress hook has filters.
    #[inline]
    pub(crate) fn has_ingress(&self) -> bool {
        self.ingress_on.load(Relaxed) != 0
    }

    /// Calls `f` with a hook; no packet meets it meanwhile.
    pub(crate) fn with<R>(&self, side: Side, f: impl FnOnce(&mut Hook<A>) -> R) -> R {
        let lock = if side == Side::Ingress { &self.ingress } else { &self.egress };
        lock.with(|held| f(held.data()))
    }

    pub(crate) fn set_ingress(&self, on: bool) {
        self.ingress_on.store(on.into(), Relaxed);
    }

    /// Returns the index of a device's port by its name.
    pub(crate) fn port_of(&self, name: &str) -> Option<u16> {
        self.ports.with(|held| {
            let ports = held.data();
            let is_it = |(other, dev): &Port<A>| other == name && dev.strong_count() > 0;
            ports.iter().position(is_it).map(|at| at as u16)
        })
    }

    /// Adds a device that filters may send to. A device of the same name that is gone gives it its place.
    pub(crate) fn connect(&self, name: &str, dev: Weak<Shared<A>>) {
        self.ports.with(|held| {
            let ports = held.data();
            match ports.iter().position(|(other, _)| other == name) {
                Some(at) => ports[at].1 = dev,
                None => ports.push((name.to_owned(), dev)),
            }
        });
    }

    /// Returns the device of a port; `None` if it is gone.
    pub(crate) fn device(&self, port: u16) -> Option<Arc<Shared<A>>> {
        self.ports.with(|held| held.data().get(usize::from(port)).and_then(|(_, dev)| dev.upgrade()))
    }

    /// Runs the filters of a hook on a batch. What goes on stays in the batch, in order. Copies come from `cache`. `txqs` are in
    /// use.
    pub(crate) fn run(
        &self,
        side: Side,
        batch: &mut PacketList<A>,
        txqs: u16,
        cache: &mut Cache<A>,
        sorted: &mut Sorted<A>,
    ) {
        let (mut clock, mut on) = (Clock::new(), PacketList::new());
        self.with(side, |hook| {
            while let Some(mut packet) = batch.pop_front() {
                let (segs, bytes) = (u64::from(packet.segs()), packet.len() as u64);
                hook.stats.count_sent(segs, bytes);
                let (choice, effects) = hook.filters.classify_and_act(&packet, &mut clock);
                if let Some(priority) = effects.priority {
                    packet.set_priority(priority);
                }
                if effects.mark.is_some() {
                    packet.set_mark(effects.marked(packet.mark()));
                }
                for &port in effects.mirrors() {
                    // Without a buffer there is no copy.
                    if let Ok(copy) = cache.copy(&packet, 0, 0..packet.len()) {
                        list_of(&mut sorted.out, port).push_back(copy);
                    }
                }
                match (choice, effects.redirect, effects.queue) {
                    (Some(Choice::Drop | Choice::Again), ..) | (Some(Choice::Stolen), None, _) => {
                        hook.stats.drops += segs;
                        packet.set_drop_reason(match side {
                            Side::Ingress => DropReason::TcIngress,
                            Side::Egress => DropReason::TcEgress,
                        });
                        sorted.dropped.push_back(packet);
                    }
                    (Some(Choice::Stolen), Some(port), _) => list_of(&mut sorted.out, port).push_back(packet),
                    (_, _, Some(txq)) if side == Side::Egress && txq < txqs => {
                        list_of(&mut sorted.chosen, txq).push_back(packet);
                    }
                    _ => on.push_back(packet),
                }
            }
        });
        batch.append(&mut on);
    }
}
