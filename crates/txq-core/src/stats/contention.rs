//! The report of a device's contention records: where threads wait for each other (`sync/contention.rs`).

use crate::arch::Nanos;
use crate::stats::log2::Log2;

/// A plain enumeration with a list of all its members and a text or two for each.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $($text:ident: $of:literal),+; $($(#[$vdoc:meta])* $variant:ident => $($value:literal),+;)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All of them, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            named!(@texts $($text: $of),+; $($variant => $($value),+;)+);
        }
    };
    (@texts $text:ident: $of:literal; $($variant:ident => $value:literal;)+) => {
        #[doc = $of]
        pub fn $text(self) -> &'static str {
            match self { $(Self::$variant => $value),+ }
        }
    };
    (@texts $text:ident: $of:literal, $text2:ident: $of2:literal; $($variant:ident => $value:literal, $value2:literal;)+) => {
        named!(@texts $text: $of; $($variant => $value;)+);
        named!(@texts $text2: $of2; $($variant => $value2;)+);
    };
}

named! {
    /// A kind of lock that a device has, usually one of each for each txq.
    Lock, name: "What it is called here.", class: "The kernel's name for its class, as lock_stat prints it.";
    /// The root lock: guards a queue's qdisc.
    Root => "root lock", "&sch->root_lock_key";
    /// The busylock: contended senders queue there before they queue at the root lock.
    Busy => "busylock", "&sch->busylock";
    /// The lock of a band's producers, which guards their ring in the kernel: `lockless` has it in simulations of the kernel.
    Producers => "producer lock", "&r->producer_lock";
    /// The tx lock: guards a txq's driver (`netif_tx_lock`).
    Tx => "tx lock", "_xmit_ETHER";
    /// The completion lock: guards the reaping of a txq, which in the kernel NAPI's state does.
    Completion => "completion lock", "&napi->state";
}

named! {
    /// A place in the code that takes a lock. A new one is a line here.
    Site, name: "What it does with the lock.", caller: "The kernel's function that does the same, as perf names callers.";
    /// A sender enqueues: takes the root lock, or the lock in its place if there is no qdisc.
    Enqueue => "enqueue", "__dev_queue_xmit";
    /// The owner of a queue retakes the root lock after the driver.
    Retake => "retake after the driver", "dev_hard_start_xmit";
    /// A worker runs a queue.
    Worker => "worker", "net_tx_action";
    /// A thread gives a batch to the driver.
    Driver => "driver", "sch_direct_xmit";
    /// A thread reaps completions.
    Reap => "reap", "napi_poll";
    /// A thread reads counters, changes parameters, or asks whether a queue is idle.
    Control => "control", "dev_get_stats";
}

named! {
    /// A lock-free word whose exchange can fail and is then retried. A new one is a line here.
    Retry, name: "What the word is.";
    /// The defer list, when a sender pushes packets.
    DeferList => "push to the defer list";
    /// The inbox of a sender's home, when another thread frees buffers into it.
    Inbox => "push to a home's inbox";
    /// The pool's depot, when a thread puts a batch of buffers there.
    DepotPush => "push to the pool's depot";
    /// The pool's depot, when a thread takes a batch of buffers.
    DepotPop => "pop from the pool's depot";
}

/// Contention in a device since recording was switched on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentionReport {
    /// A row for each lock kind and site with acquisitions, sorted by lock and site. Sums over all locks of the kind.
    pub sites: Vec<SiteReport>,
    /// Failed exchanges on lock-free words, in the order of [`Retry::ALL`]. Devices that share a pool share the pool's
    /// counters; they count while the device switched last is on.
    pub retries: [u64; Retry::ALL.len()],
    /// Packets that an owner took at a time from the senders' lists.
    pub drained: Log2,
    /// Queues with packets in them that an owner left to a worker.
    pub hand_offs: u64,
}

/// The acquisitions of one lock kind by one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteReport {
    /// The kind of lock.
    pub lock: Lock,
    /// The place in the code that takes the lock.
    pub site: Site,
    /// The counters.
    pub stats: LockStats,
}

/// Counters of a lock's acquisitions. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Acquisitions of the lock.
    pub acquisitions: u64,
    /// Acquisitions that found the lock taken and waited.
    pub contended: u64,
    /// Acquisitions on another CPU than the last one (lock_stat's `acq-bounces`).
    pub acquisition_bounces: u64,
    /// Those of them that waited (`con-bounces`).
    pub contention_bounces: u64,
    /// The times waited.
    pub wait: Spread,
    /// The times waited, by powers of two.
    pub waits: Log2,
    /// The times waited behind another waiter. `perf lock contention` has no others of Linux' spin locks: the first waiter at
    /// a qspinlock waits without a tracepoint (`queued_spin_lock_slowpath`).
    pub queued: Spread,
    /// The times that the lock was held. A hold counts when it ends.
    pub hold: Spread,
    /// Acquisitions by any site that waited until this site released the lock (lock_stat's holding points).
    pub held_up: u64,
}

impl LockStats {
    /// Adds the counters of another lock.
    pub fn merge(&mut self, other: &LockStats) {
        self.acquisitions += other.acquisitions;
        self.contended += other.contended;
        self.acquisition_bounces += other.acquisition_bounces;
        self.contention_bounces += other.contention_bounces;
        self.wait.merge(&other.wait);
        self.waits.merge(&other.waits);
        self.queued.merge(&other.queued);
        self.hold.merge(&other.hold);
        self.held_up += other.held_up;
    }
}

/// A summary of times: count, sum and extremes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// The number of times.
    pub count: u64,
    /// Their sum.
    pub total: Nanos,
    /// The shortest; 0 if there is none.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Spread {
    pub(crate) fn add(&mut self, time: Nanos) {
        self.merge(&Spread { count: 1, total: time, min: time, max: time });
    }

    fn merge(&mut self, other: &Spread) {
        if other.count > 0 {
            self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
            self.max = self.max.max(other.max);
            self.total += other.total;
            self.count += other.count;
        }
    }

    /// Returns the mean; 0 if there is none.
    pub fn mean(&self) -> Nanos {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

impl ContentionReport {
    /// Adds another device's report.
    pub fn merge(&mut self, other: &ContentionReport) {
        other.sites.iter().for_each(|row| self.add(row.lock, row.site, &row.stats));
        self.retries.iter_mut().zip(other.retries).for_each(|(mine, theirs)| *mine += theirs);
        self.drained.merge(&other.drained);
        self.hand_offs += other.hand_offs;
    }

    /// Adds the counters of a lock at one site, if it was taken there.
    pub(crate) fn add(&mut self, lock: Lock, site: Site, stats: &LockStats) {
        if stats.acquisitions == 0 {
            return;
        }
        match self.sites.binary_search_by_key(&(lock, site), |row| (row.lock, row.site)) {
            Ok(at) => self.sites[at].stats.merge(stats),
            Err(at) => self.sites.insert(at, SiteReport { lock, site, stats: *stats }),
        }
    }

    /// Returns the sum over all locks of a kind and all sites.
    pub fn of_lock(&self, lock: Lock) -> LockStats {
        let mut sum = LockStats::default();
        self.sites.iter().filter(|row| row.lock == lock).for_each(|row| sum.merge(&row.stats));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up_site_by_site() {
        let stats = |waits: &[Nanos]| {
            let mut stats =
                LockStats { acquisitions: 10, contended: waits.len() as u64, ..Default::default() };
            waits.iter().for_each(|&wait| stats.wait.add(wait));
            stats
        };
        let (mut one, mut other) = (ContentionReport::default(), ContentionReport::default());
        one.add(Lock::Tx, Site::Driver, &stats(&[]));
        one.add(Lock::Root, Site::Worker, &stats(&[5, 9]));
        other.add(Lock::Root, Site::Enqueue, &stats(&[3]));
        other.add(Lock::Root, Site::Worker, &stats(&[4]));
        other.add(Lock::Root, Site::Retake, &LockStats::default());
        one.merge(&other);
        let rows: Vec<_> = one.sites.iter().map(|r| (r.lock, r.site, r.stats.acquisitions)).collect();
        let expected =
            [(Lock::Root, Site::Enqueue, 10), (Lock::Root, Site::Worker, 20), (Lock::Tx, Site::Driver, 10)];
        assert_eq!(rows, expected);
        let root = one.of_lock(Lock::Root);
        assert_eq!((root.acquisitions, root.contended, root.wait.count), (30, 4, 4));
        assert_eq!((root.wait.min, root.wait.max, root.wait.total, root.wait.mean()), (3, 9, 21, 5));
    }
}
