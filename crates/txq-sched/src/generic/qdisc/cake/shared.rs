//! A cake's part of the rate that all cakes of a cake_mq share.
//!
//! Every 200 us a cake that dequeues counts the cakes that have packets, or had some since it last counted. It sends at the
//! rate divided by that number. What another cake does not use of its part, it does not get.

use std::sync::Arc;

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::activity::Activity;

/// Time between two counts.
const COUNT_INTERVAL: Nanos = 200_000;

pub(in crate::generic::qdisc) struct Shared<A: Arch> {
    all: Arc<Activity<A>>,
    /// This cake's number.
    own: usize,
    is_busy: bool,
    /// When it last counted.
    counted: Nanos,
    /// The cakes that were active then, with this one.
    active: u64,
}

impl<A: Arch> Shared<A> {
    /// Returns the shares of so many cakes.
    pub(in crate::generic::qdisc) fn among(cakes: usize) -> impl Iterator<Item = Self> {
        let all = Arc::new(Activity::new(cakes));
        all.name();
        (0..cakes).map(move |own| Self { all: all.clone(), own, is_busy: false, counted: 0, active: 1 })
    }

    /// Says whether the cake has packets.
    pub(super) fn note(&mut self, has_packets: bool, now: Nanos) {
        if has_packets != self.is_busy {
            self.is_busy = has_packets;
            match has_packets {
                true => self.all.begin(self.own),
                false => self.all.end(self.own, now),
            }
        }
    }

    /// Counts the active cakes if it is time; returns whether the number has changed.
    pub(super) fn count(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.counted) < COUNT_INTERVAL {
            return false;
        }
        let since = now - COUNT_INTERVAL.min(now);
        self.counted = now;
        let before = std::mem::replace(&mut self.active, (self.all.count(since.max(1)) as u64).max(1));
        before != self.active
    }

    /// Returns the cake's part of a rate in bytes a second; 0, for none, stays 0.
    pub(super) fn of(&self, rate: u64) -> u64 {
        if rate == 0 { 0 } else { (rate / self.active).max(1) }
    }
}
