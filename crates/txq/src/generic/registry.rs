//! The senders of a device: those that exist, and the counters of those that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use txq_core::arch::{Arch, CpuId};
use txq_core::pool::fate::Tally;
use txq_core::pool::{Cache, Pool};
use txq_core::stats::log2::Log2;
use txq_core::sync::spinlock::SpinLock;

use crate::generic::stats::device::SenderStats;

mod counters;

pub(crate) use counters::SenderCounters;

/// The maximum number of rows kept of senders that are gone. Older rows are added up in one.
const MAX_GONE_ROWS: usize = 256;

/// All senders that the device has had.
struct Senders<A: Arch> {
    /// By their serial numbers, which are in the order of creation.
    alive: BTreeMap<u64, Arc<SenderCounters<A>>>,
    gone: Vec<Gone<A>>,
    /// Number of senders created so far.
    made: u64,
    /// Packets that gone senders had handed in, and how long their calls took.
    gone_submitted: u64,
    gone_times: Log2,
    /// The sum of the rows of gone senders beyond [`MAX_GONE_ROWS`].
    earlier: Option<SenderStats>,
}

/// A sender that is gone. Its packets may still be on their way.
struct Gone<A: Arch> {
    serial: u64,
    /// `None` once all its packets are back, or once another sender has its home.
    counters: Option<Arc<SenderCounters<A>>>,
    row: SenderStats,
}

impl<A: Arch> Gone<A> {
    /// Updates the row.
    fn settle(&mut self) {
        let Some(counters) = &self.counters else { return };
        if counters.is_current() {
            self.row = counters.stats(false);
            if self.row.pending > 0 {
                return;
            }
        } else {
            // A sender of another device has moved in, once no packet was on its way.
            self.row.end(self.row.drops);
        }
        self.counters = None;
    }

    /// Updates the row for the last time if the sender of `next` has its home now.
    fn follow(&mut self, next: &Tally<A>) {
        if let Some(drops) = self.counters.as_ref().and_then(|counters| counters.final_drops(next)) {
            self.row.end(drops);
            self.counters = None;
        }
    }
}

impl<A: Arch> Senders<A> {
    fn new() -> Self {
        Self {
            alive: BTreeMap::new(),
            gone: Vec::new(),
            made: 0,
            gone_submitted: 0,
            gone_times: Log2::new(),
            earlier: None,
        }
    }

    fn leave(&mut self, serial: u64) {
        let Some(counters) = self.alive.remove(&serial) else { return };
        self.gone_submitted += counters.submitted();
        counters.add_times(&mut self.gone_times);
        if self.gone.len() == MAX_GONE_ROWS {
            self.settle_gone();
            // One without packets on their way, if there is one: nothing changes the sum later.
            let first = self.gone.iter().position(|gone| gone.counters.is_none()).unwrap_or(0);
            let first = self.gone.remove(first);
            let earlier = self.earlier.get_or_insert_with(|| SenderStats::named("earlier senders"));
            earlier.merge(&first.row);
        }
        let row = counters.stats(false);
        self.gone.push(Gone { serial, counters: Some(counters), row });
    }

    fn settle_gone(&mut self) {
        self.gone.iter_mut().for_each(Gone::settle);
    }

    fn rows(&mut self) -> Vec<SenderStats> {
        self.settle_gone();
        let gone = self.gone.iter().map(|gone| (gone.serial, gone.row.clone()));
        let alive = self.alive.iter().map(|(serial, counters)| (*serial, counters.stats(true)));
        let mut rows: Vec<_> = gone.chain(alive).collect();
        rows.sort_by_key(|(serial, _)| *serial);
        self.earlier.iter().cloned().chain(rows.into_iter().map(|(_, row)| row)).collect()
    }
}

/// The senders of a device, under their lock.
pub(crate) struct Registry<A: Arch>(SpinLock<A, Senders<A>>);

impl<A: Arch> Registry<A> {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(Senders::new()))
    }

    /// Adds a sender; returns its serial number.
    pub(crate) fn register(&self, counters: &Arc<SenderCounters<A>>) -> u64 {
        self.0.with(|held| {
            let senders = held.data();
            let serial = senders.made;
            senders.alive.insert(serial, counters.clone());
            senders.made += 1;
            serial
        })
    }

    /// Removes a sender that ends, by its serial number; its row stays.
    pub(crate) fn unregister(&self, serial: u64) {
        self.0.with(|held| held.data().leave(serial));
    }

    /// Wakes the senders that wait for credit or for a buffer, after the device has gone down or has ended: they check the
    /// device.
    pub(crate) fn wake_to_recheck(&self) {
        let alive: Vec<_> = self.0.with(|held| held.data().alive.values().cloned().collect());
        alive.iter().for_each(|counters| counters.wake_to_recheck());
    }

    /// Creates a stock of buffers. It may get the home of a sender that is gone, whose row is updated for the last time then.
    pub(crate) fn cache(&self, pool: &Pool<A>, name: &str, cpu: CpuId) -> Cache<A> {
        self.0.with(|held| {
            let senders = held.data();
            let cache = pool.cache(name, cpu);
            let tally = cache.tally();
            senders.gone.iter_mut().for_each(|gone| gone.follow(&tally));
            cache
        })
    }

    /// Returns the number of packets handed in by all senders that the device has had.
    pub(crate) fn submitted(&self) -> u64 {
        self.0.with(|held| {
            let senders = held.data();
            senders.gone_submitted + senders.alive.values().map(|counters| counters.submitted()).sum::<u64>()
        })
    }

    /// Returns how long calls of xmit took, of all senders that the device has had.
    pub(crate) fn xmit_times(&self) -> Log2 {
        self.0.with(|held| {
            let mut times = held.data().gone_times;
            held.data().alive.values().for_each(|counters| counters.add_times(&mut times));
            times
        })
    }

    /// Returns a row for each sender.
    pub(crate) fn rows(&self) -> Vec<SenderStats> {
        self.0.with(|held| held.data().rows())
    }
}
