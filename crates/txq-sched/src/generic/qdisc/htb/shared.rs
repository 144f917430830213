//! The buckets that a class of htb_mq shares with the same class of the other parts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use txq_core::arch::{Arch, Atomic, Nanos};

use super::buckets::{Buckets, Counted, Demand, Moment, Shown};
use super::class::Mode;
use super::gauge::{Gauge, Line};
use super::params::ClassParams;

/// What all parts have of a class.
struct Common<A: Arch> {
    rate: Arc<Line<A>>,
    ceil: Arc<Line<A>>,
    /// For each part what it had counted when its class was last read, and when it last sent or wanted to.
    counted: Mutex<Vec<(Counted, Nanos)>>,
}

/// The classes of all parts, by their minor numbers.
type All<A> = Arc<Mutex<BTreeMap<u16, Weak<Common<A>>>>>;

/// From which one part has its buckets.
pub(in crate::generic::qdisc) struct Source<A: Arch> {
    all: All<A>,
    /// Packets that each part has queued in its direct queue. Written by the part, read by all that show the sum. Relaxed: a word
    /// publishes no other memory.
    direct: Arc<[A::AtomicU64]>,
    part: usize,
}

impl<A: Arch> Common<A> {
    fn counted(&self) -> MutexGuard<'_, Vec<(Counted, Nanos)>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Arch> Source<A> {
    /// Returns the sources of so many parts.
    pub(in crate::generic::qdisc) fn among(parts: usize) -> impl Iterator<Item = Self> {
        let all = All::default();
        let direct: Arc<[_]> = (0..parts).map(|_| A::AtomicU64::new(0)).collect();
        (0..parts).map(move |part| Self { all: all.clone(), direct: direct.clone(), part })
    }

    /// Returns what the parts have of a class. The first part to add the class makes it, and it goes with the last one.
    fn class(&self, minor: u16) -> Arc<Common<A>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(common) = all.get(&minor).and_then(Weak::upgrade) {
            return common;
        }
        let line = || Arc::new(Line::new());
        let counted = Mutex::new(vec![Default::default(); self.direct.len()]);
        let common = Arc::new(Common { rate: line(), ceil: line(), counted });
        all.insert(minor, Arc::downgrade(&common));
        common
    }
}

/// The buckets of a class in one part.
pub(in crate::generic::qdisc) struct Shared<A: Arch> {
    rate: Gauge<A>,
    ceil: Gauge<A>,
    /// When the class last sent or wanted to.
    at: Nanos,
    common: Arc<Common<A>>,
    part: usize,
}

impl<A: Arch> Buckets<A> for Shared<A> {
    const KIND: &'static str = "htb_mq";
    const ACQUIRES: bool = true;
    type Source = Source<A>;

    fn new(source: &Source<A>, minor: u16) -> Self {
        let common = source.class(minor);
        let (rate, ceil) = (Gauge::new(common.rate.clone()), Gauge::new(common.ceil.clone()));
        Self { rate, ceil, at: 0, common, part: source.part }
    }

    /// A bucket from which no part has taken is full.
    fn fill(&mut self, _: &ClassParams, _: Nanos) {}

    #[inline]
    fn acquire(&mut self, params: &ClassParams, demand: &Demand, lends: bool) -> bool {
        self.at = demand.at.now;
        let by_rate = lends && !params.is_one();
        // Tokens of `rate` first: a class that lacks them takes no turn in the line of its ceiling.
        if by_rate && !self.rate.acquire(&params.rate, demand) {
            return false;
        }
        let has_both = self.ceil.acquire(&params.ceil, demand);
        if !has_both && by_rate {
            self.rate.release();
        }
        has_both
    }

    fn release(&mut self) {
        self.ceil.release();
    }

    #[inline]
    fn pay(&mut self, params: &ClassParams, len: u64, by_rate: bool, at: Moment) -> (Mode, Nanos) {
        self.at = at.now;
        self.ceil.pay(&params.ceil, len, at);
        if by_rate && !params.is_one() {
            self.rate.pay(&params.rate, len, at);
        }
        self.mode_at(params, at)
    }

    #[inline]
    fn mode_at(&self, params: &ClassParams, Moment { now, .. }: Moment) -> (Mode, Nanos) {
        let (ceil, rate) = (self.ceil.until(), self.rate.until());
        if ceil > now {
            (Mode::Wait, ceil - now)
        } else if rate > now && !params.is_one() {
            (Mode::Borrow, rate - now)
        } else {
            (Mode::Send, Nanos::MAX)
        }
    }

    fn begin(&mut self, _: &ClassParams, now: Nanos) {
        self.ceil.begin(now);
        self.rate.begin(now);
    }

    fn rest(&mut self, now: Nanos) {
        self.ceil.rest(now);
        self.rate.rest(now);
    }

    /// The numbers are those of all parts, as each has counted when it was last read.
    fn shown(&self, params: &ClassParams, counted: Counted) -> Box<dyn FnOnce() -> Shown + Send> {
        let (common, params) = (self.common.clone(), *params);
        common.counted()[self.part] = (counted, self.at);
        Box::new(move || {
            let parts = common.counted();
            let now = parts.iter().map(|&(_, at)| at).max().unwrap_or(0);
            let counted = parts.iter().fold(Counted::default(), |sum, (part, _)| Counted {
                stats: sum.stats + part.stats,
                lent: sum.lent + part.lent,
                borrowed: sum.borrowed + part.borrowed,
            });
            let tokens = |line, bucket: &super::params::Bucket| {
                let depth = bucket.time();
                if now == 0 { depth as i64 >> 6 } else { Gauge::tokens(line, depth, now) >> 6 }
            };
            let rate = if params.is_one() { &common.ceil } else { &common.rate };
            Shown {
                counted,
                tokens: tokens(&**rate, &params.rate),
                ctokens: tokens(&*common.ceil, &params.ceil),
            }
        })
    }

    #[inline]
    fn count_direct(source: &Source<A>, packets: u64) {
        source.direct[source.part].store(packets, Relaxed);
    }

    fn direct(source: &Source<A>, _: u64) -> u64 {
        source.direct.iter().map(|part| part.load(Relaxed)).sum()
    }
}
