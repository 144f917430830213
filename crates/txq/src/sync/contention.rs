//! Who takes which lock, how often, and how long that takes: what `perf lock contention` and `/proc/lock_stat` tell of the
//! kernel's locks, for those of a device.
//!
//! Recording is switched on and off while the device works ([`NetDev::set_contention`](crate::NetDev::set_contention)).
//! A lock's record lies under that lock: only its holder writes it, in plain memory, so the counts are exact and
//! nobody fights for them. A waiter reads the clock before it queues and writes down its wait when it has the lock.
//!
//! Off is free, because a lock says by its word whether it is recorded: the word of a free lock is then another one than
//! the fast path expects, so the fast path fails and the slow path does the writing. There is nothing to test on the fast
//! path but that the lock is free, which it tests anyway.
//!
//! Attempts that failed on a lock-free word ([`Retries`]) are counted where they fail, beside the word.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CpuId, Nanos};
use crate::stats::contention::{ContentionReport, HandOffs, LockStats};
use crate::stats::log2::Log2;

/// A plain enumeration with a list of all its members and a text or two for each.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $($text:ident: $of:literal),+; $($(#[$vdoc:meta])* $variant:ident => $($value:literal),+;)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All of them, in the order of reports.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];
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
    /// The tx lock: guards a txq's driver (`netif_tx_lock`).
    Tx => "tx lock", "_xmit_ETHER";
    /// The completion lock: guards the reaping of a txq, which in the kernel NAPI's state does.
    Completion => "completion lock", "&napi->state";
}

named! {
    /// A place in the code that takes a lock. A new one is a line here.
    Site, name: "What it does with the lock.", caller: "The kernel's function that does the same, as perf names callers.";
    /// A sender enqueues: the root lock, or where there is no qdisc the lock in place of it.
    Enqueue => "enqueue", "__dev_queue_xmit";
    /// The owner of a queue takes the root lock again after the driver.
    Retake => "retake after the driver", "dev_hard_start_xmit";
    /// A worker runs a queue.
    Worker => "worker", "net_tx_action";
    /// A batch is handed to the driver.
    Driver => "driver", "sch_direct_xmit";
    /// Completions are reaped.
    Reap => "reap", "napi_poll";
    /// Counters are read, parameters changed, or somebody asks whether a queue is idle.
    Control => "control", "dev_get_stats";
}

named! {
    /// A lock-free word on which an exchange can fail, so that it is tried again. A new one is a line here.
    Retry, name: "What the word is.";
    /// The defer list, when packets are left on it.
    DeferList => "push to the defer list";
    /// The inbox of a sender's home, when buffers are freed into it.
    Inbox => "push to a home's inbox";
    /// The pool's depot, when a batch of buffers is put there.
    DepotPush => "push to the pool's depot";
    /// The pool's depot, when a batch of buffers is taken.
    DepotPop => "pop from the pool's depot";
}

/// To whom an owner leaves a queue that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOff {
    /// The worker goes on.
    Worker,
    /// Another sender does.
    Sender,
}

/// What has happened at one lock. Lies under it.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    sites: [LockStats; Site::ALL.len()],
    /// Who has the lock now, or had it last.
    site: Site,
    /// On which CPU that was.
    cpu: CpuId,
    /// Since when.
    since: Nanos,
    /// When recording began.
    started: Nanos,
}

impl Record {
    /// A record of which the caller, who has the lock, is the first entry.
    pub(super) fn new(cpu: CpuId, now: Nanos) -> Self {
        let mut record = Self {
            sites: [LockStats::default(); Site::ALL.len()],
            site: Site::Control,
            cpu,
            since: now,
            started: now,
        };
        record.acquired(Site::Control, cpu, now, None);
        record
    }

    /// What has happened at `site`. A hold counts when it ends.
    pub fn at(&self, site: Site) -> &LockStats {
        &self.sites[site as usize]
    }

    /// The lock has been taken, after a wait that began at `began` if there was one.
    pub(super) fn acquired(&mut self, site: Site, cpu: CpuId, now: Nanos, began: Option<Nanos>) {
        let moved = u64::from(cpu != self.cpu);
        let stats = &mut self.sites[site as usize];
        stats.acquisitions += 1;
        stats.acquisition_bounces += moved;
        if let Some(began) = began {
            // A wait that began before recording did counts from there on.
            let wait = now.saturating_sub(began.max(self.started));
            stats.contended += 1;
            stats.contention_bounces += moved;
            stats.wait.add(wait);
            stats.waits.record(wait);
            self.sites[self.site as usize].held_up += 1;
        }
        (self.site, self.cpu, self.since) = (site, cpu, now);
    }

    /// The lock is about to be let go.
    pub(super) fn released(&mut self, now: Nanos) {
        self.sites[self.site as usize].hold.add(now.saturating_sub(self.since));
    }
}

/// A lock that can be recorded.
pub(crate) trait Recorded {
    /// Switches recording on, from zero, or off, which keeps what was recorded.
    fn set_recording(&self, on: bool);
    /// Adds what was recorded to the report. Tells whether it ever was switched on.
    fn report(&self, lock: Lock, report: &mut ContentionReport) -> bool;
}

/// What only a queue's owner can count: lies in the queue's core.
#[derive(Debug, Default)]
pub(crate) struct OwnerRecord {
    pub(crate) on: bool,
    /// Packets taken from those who left them, at a time.
    pub(crate) drained: Log2,
    pub(crate) hand_offs: HandOffs,
}

/// Failed attempts at lock-free words, for all words of a kind together.
pub struct Retries<A: Arch>(CachePadded<Counts<A>>);

/// On a line of its own: who fails reads `on`, and while it is off nobody writes here.
struct Counts<A: Arch> {
    on: A::AtomicU32,
    counts: [A::AtomicU64; Retry::ALL.len()],
}

impl<A: Arch> Retries<A> {
    /// Nothing is counted yet.
    pub fn new() -> Self {
        let counts = std::array::from_fn(|_| A::AtomicU64::new(0));
        Self(CachePadded::new(Counts { on: A::AtomicU32::new(0), counts }))
    }

    /// Names its line ([`Arch::name`]).
    pub(crate) fn name_lines(&self, what: &str) {
        A::name(&self.0, what);
    }

    /// An attempt has failed. Who calls this has just missed its word's cache line, which dwarfs the look at the switch.
    #[cold]
    pub fn note(&self, retry: Retry) {
        if self.0.on.load(Relaxed) != 0 {
            self.0.counts[retry as usize].fetch_add(1, Relaxed);
        }
    }

    /// Switches counting on, from zero, or off.
    pub fn set(&self, on: bool) {
        if on && self.0.on.load(Relaxed) == 0 {
            self.0.counts.iter().for_each(|count| count.store(0, Relaxed));
        }
        self.0.on.store(on.into(), Relaxed);
    }

    /// How many were counted.
    pub fn count(&self, retry: Retry) -> u64 {
        self.0.counts[retry as usize].load(Relaxed)
    }
}

impl<A: Arch> Default for Retries<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    /// Each number of a record, from a hand-made story of two CPUs.
    #[test]
    fn a_record_tells_who_waited_how_long_and_for_whom() {
        let mut record = Record::new(0, 100);
        record.released(110);
        record.acquired(Site::Enqueue, 0, 120, None);
        record.released(150);
        record.acquired(Site::Worker, 1, 151, Some(131));
        record.released(200);
        // It began to wait before recording did.
        record.acquired(Site::Enqueue, 1, 210, Some(0));
        let enqueue = record.at(Site::Enqueue);
        assert_eq!((enqueue.acquisitions, enqueue.contended), (2, 1));
        assert_eq!((enqueue.acquisition_bounces, enqueue.contention_bounces, enqueue.held_up), (0, 0, 1));
        assert_eq!((enqueue.hold.count, enqueue.hold.total), (1, 30));
        assert_eq!((enqueue.wait.min, enqueue.wait.max, enqueue.wait.total), (110, 110, 110));
        let worker = record.at(Site::Worker);
        assert_eq!((worker.acquisitions, worker.contended, worker.held_up), (1, 1, 1));
        assert_eq!((worker.acquisition_bounces, worker.contention_bounces), (1, 1));
        assert_eq!((worker.wait.total, worker.hold.total), (20, 49));
        assert_eq!(worker.waits.buckets().next().map(|b| (b.min, b.count)), Some((16, 1)));
        assert_eq!(record.at(Site::Control).hold.total, 10);
    }

    #[test]
    fn retries_are_counted_while_it_is_on() {
        let retries = Retries::<Native>::new();
        retries.note(Retry::Inbox);
        retries.set(true);
        retries.note(Retry::Inbox);
        retries.note(Retry::Inbox);
        retries.set(true);
        retries.note(Retry::DepotPop);
        retries.set(false);
        retries.note(Retry::Inbox);
        let counts = Retry::ALL.map(|retry| retries.count(retry));
        assert_eq!(counts, [0, 2, 0, 1]);
        retries.set(true);
        assert_eq!(retries.count(Retry::Inbox), 0);
    }
}
