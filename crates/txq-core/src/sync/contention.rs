//! Records of lock contention: for each lock of a device and each site, the acquisitions, holds and waits that `perf lock
//! contention` and `/proc/lock_stat` report of the kernel's locks.
//!
//! Recording can be switched on and off while the device works (`NetDev::set_contention`).
//! A lock's record lies under that lock. Only its holder writes it, in plain memory, so the counts are exact and no thread
//! competes for them. A waiter reads the clock before it queues, and records its wait when it has the lock.
//!
//! Recording costs nothing while it is off, because the lock word says whether the lock is recorded: a free recorded lock
//! holds another word than the fast path expects, so the fast path fails and the slow path records. The fast path only tests
//! that the lock is free, which it does anyway.
//!
//! Failed attempts at a lock-free word are counted where they fail ([`Retries`]).

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CpuId, Nanos};
use crate::stats::contention::{ContentionReport, Lock, LockStats, Retry, Site};

/// The record of one lock. Lies under that lock.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    sites: [LockStats; Site::ALL.len()],
    /// The site of the holder, or of the last one.
    site: Site,
    /// The CPU of that holder.
    cpu: CpuId,
    /// When that holder took the lock.
    since: Nanos,
    /// When recording began.
    started: Nanos,
}

impl Record {
    /// Creates a record whose first acquisition is the caller's, which holds the lock.
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

    /// Returns the counts of `site`. A hold counts when it ends.
    pub fn at(&self, site: Site) -> &LockStats {
        &self.sites[site as usize]
    }

    /// Records that the lock has been taken, after `wait` if there was one.
    pub(super) fn acquired(&mut self, site: Site, cpu: CpuId, now: Nanos, wait: Option<Wait>) {
        let moved = u64::from(cpu != self.cpu);
        let stats = &mut self.sites[site as usize];
        stats.acquisitions += 1;
        stats.acquisition_bounces += moved;
        if let Some(Wait { began, behind }) = wait {
            // A wait that began before recording counts from the beginning of recording.
            let wait = now.saturating_sub(began.max(self.started));
            stats.contended += 1;
            stats.contention_bounces += moved;
            stats.wait.add(wait);
            stats.waits.record(wait);
            if behind {
                stats.queued.add(wait);
            }
            self.sites[self.site as usize].held_up += 1;
        }
        (self.site, self.cpu, self.since) = (site, cpu, now);
    }

    /// Records the end of the hold. The lock is about to be released.
    pub(super) fn released(&mut self, now: Nanos) {
        self.sites[self.site as usize].hold.add(now.saturating_sub(self.since));
    }
}

/// The wait before an acquisition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// When it began.
    pub(super) began: Nanos,
    /// Another thread waited already.
    pub(super) behind: bool,
}

/// A lock that can be recorded.
pub trait Recorded {
    /// Switches recording on, from zero, or off, which keeps the record.
    fn set_recording(&self, on: bool);
    /// Adds the record to the report. Returns whether recording was ever switched on.
    fn report(&self, lock: Lock, report: &mut ContentionReport) -> bool;
}

/// Failed attempts at lock-free words, for all words of a kind together.
pub struct Retries<A: Arch>(CachePadded<Counts<A>>);

/// On a line of its own: a thread whose attempt fails reads `on`, and while it is off no thread writes here. All accesses
/// are relaxed: the counts order nothing.
struct Counts<A: Arch> {
    /// 1 while failed attempts are counted, else 0. Written by the control path, read by threads whose attempt has failed.
    on: A::AtomicU32,
    /// Failed attempts by [`Retry`]. Incremented by the threads that fail; read, and cleared when counting begins, by the
    /// control path.
    counts: [A::AtomicU64; Retry::ALL.len()],
}

impl<A: Arch> Retries<A> {
    /// Creates counters at zero, switched off.
    pub fn new() -> Self {
        let counts = std::array::from_fn(|_| A::AtomicU64::new(0));
        Self(CachePadded::new(Counts { on: A::AtomicU32::new(0), counts }))
    }

    /// Names its line ([`Arch::name`]).
    pub fn name_lines(&self, what: &str) {
        A::name(&self.0, what);
    }

    /// Counts a failed attempt if counting is on. The caller has just missed the cache line of its word, which costs far
    /// more than the load of the switch.
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

    /// Returns whether counting is on.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Relaxed) != 0
    }

    /// Returns the number of failed attempts counted.
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
        record.acquired(Site::Worker, 1, 151, Some(Wait { began: 131, behind: false }));
        record.released(200);
        // It began to wait before recording did.
        record.acquired(Site::Enqueue, 1, 210, Some(Wait { began: 0, behind: true }));
        let enqueue = record.at(Site::Enqueue);
        assert_eq!((enqueue.acquisitions, enqueue.contended), (2, 1));
        assert_eq!((enqueue.acquisition_bounces, enqueue.contention_bounces, enqueue.held_up), (0, 0, 1));
        assert_eq!((enqueue.hold.count, enqueue.hold.total), (1, 30));
        assert_eq!((enqueue.wait.min, enqueue.wait.max, enqueue.wait.total), (110, 110, 110));
        let worker = record.at(Site::Worker);
        assert_eq!((worker.acquisitions, worker.contended, worker.held_up), (1, 1, 1));
        assert_eq!((worker.acquisition_bounces, worker.contention_bounces), (1, 1));
        assert_eq!((worker.wait.total, worker.hold.total), (20, 49));
        assert_eq!((worker.queued.count, enqueue.queued.count, enqueue.queued.total), (0, 1, 110));
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
        let counts: Vec<_> = Retry::ALL.iter().map(|&retry| retries.count(retry)).collect();
        assert_eq!(counts, [0, 2, 0, 1]);
        retries.set(true);
        assert_eq!(retries.count(Retry::Inbox), 0);
    }
}
