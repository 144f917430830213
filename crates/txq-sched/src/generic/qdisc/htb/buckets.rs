//! The buckets of a class: for `rate`, and for `ceil`.
//!
//! The classes of an htb have their own ([`Own`]). Those of an htb_mq share them with the same class of the other parts
//! (`shared.rs`).

use txq_core::arch::{Arch, Nanos};
use txq_core::stats::QdiscStats;

use super::class::Mode;
use super::params::{Bucket, ClassParams};

/// The longest pause that is credited to a class, and the most that it owes, in nanoseconds (`HTB_MBUFFER`): a minute.
pub(super) const MBUFFER: Nanos = 60_000_000_000;

/// What a class counts.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::generic::qdisc) struct Counted {
    pub(super) stats: QdiscStats,
    /// Packets that the class sent by its own rate, or for which it lent.
    pub(super) lent: u64,
    /// Packets for which it borrowed.
    pub(super) borrowed: u64,
}

/// What tc shows of a class.
pub(in crate::generic::qdisc) struct Shown {
    pub(super) counted: Counted,
    /// Tokens of `rate`, in the kernel's units of 64 ns.
    pub(super) tokens: i64,
    /// The same of `ceil`.
    pub(super) ctokens: i64,
}

/// When a class is asked.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Moment {
    pub(super) now: Nanos,
    /// The tokens that a bucket may hold beyond its depth, because the dequeue was late.
    pub(super) credit: Nanos,
}

/// A packet that wants to leave.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Demand {
    /// Its bytes.
    pub(super) len: u64,
    /// Bytes that wait here, the packet's included.
    pub(super) queued: u64,
    /// How late timers are here.
    pub(super) late: Nanos,
    pub(super) at: Moment,
}

/// The two buckets of a class.
pub(in crate::generic::qdisc) trait Buckets<A: Arch>: Send + Sized {
    /// The kind of the qdisc.
    const KIND: &'static str;
    /// Whether a packet's tokens must be taken before the packet leaves ([`acquire`](Buckets::acquire)).
    const ACQUIRES: bool;
    /// From which a qdisc gets the buckets of a new class.
    type Source: Send;

    /// Returns the buckets of the class `minor`.
    fn new(source: &Self::Source, minor: u16) -> Self;

    /// Fills both buckets.
    fn fill(&mut self, params: &ClassParams, now: Nanos);

    /// Takes the tokens for a packet: those of `ceil`, and if the class lends also those of `rate`. Returns whether it has
    /// them. If not, the class's mode has changed.
    fn acquire(&mut self, params: &ClassParams, demand: &Demand, lends: bool) -> bool;

    /// Returns the tokens that were taken for a packet that does not leave now.
    fn release(&mut self);

    /// Charges a packet to `ceil`, and with `by_rate` to `rate`. Returns the mode then and how long it lasts.
    fn pay(&mut self, params: &ClassParams, len: u64, by_rate: bool, at: Moment) -> (Mode, Nanos);

    /// Returns the mode then, and how long it lasts if the class sends nothing.
    fn mode_at(&self, params: &ClassParams, at: Moment) -> (Mode, Nanos);

    /// Says that a packet arrived at `now` and none waited before. The class has no credit for the time until then.
    fn begin(&mut self, params: &ClassParams, now: Nanos);

    /// Says that there are no packets any more for which the class took tokens.
    fn rest(&mut self, now: Nanos);

    /// Returns a function that returns what tc shows of the class, which has counted `counted` here.
    fn shown(&self, params: &ClassParams, counted: Counted) -> Box<dyn FnOnce() -> Shown + Send>;

    /// Says how many packets went to the direct queue here.
    fn count_direct(source: &Self::Source, packets: u64);

    /// Returns how many did, of which `packets` here.
    fn direct(source: &Self::Source, packets: u64) -> u64;
}

/// The buckets of a class of htb.
#[derive(Default)]
pub(in crate::generic::qdisc) struct Own {
    /// Nanoseconds in the bucket of `rate` at the time `at`; below 0 the class owes them.
    tokens: i64,
    /// The same for the bucket of `ceil`.
    ctokens: i64,
    /// When both buckets were last computed.
    at: Nanos,
}

impl Own {
    /// Returns the tokens of both buckets.
    #[inline]
    fn tokens(&self, params: &ClassParams, Moment { now, credit }: Moment) -> (i64, i64) {
        let passed = now.saturating_sub(self.at).min(MBUFFER) as i64;
        let room = |bucket: &Bucket| (bucket.time() + credit) as i64;
        let tokens = (self.tokens + passed).min(room(&params.rate));
        (tokens, (self.ctokens + passed).min(room(&params.ceil)))
    }
}

impl<A: Arch> Buckets<A> for Own {
    const KIND: &'static str = super::params::SYNTAX.kind;
    const ACQUIRES: bool = false;
    type Source = ();

    fn new((): &(), _: u16) -> Self {
        Self::default()
    }

    fn fill(&mut self, params: &ClassParams, now: Nanos) {
        self.tokens = params.rate.time() as i64;
        self.ctokens = params.ceil.time() as i64;
        self.at = now;
    }

    #[inline]
    fn acquire(&mut self, _: &ClassParams, _: &Demand, _: bool) -> bool {
        true
    }

    fn release(&mut self) {}

    #[inline]
    fn pay(&mut self, params: &ClassParams, len: u64, by_rate: bool, at: Moment) -> (Mode, Nanos) {
        let (tokens, ctokens) = self.tokens(params, at);
        let cost = |bucket: &Bucket| bucket.rate.time(len).min(2 * MBUFFER) as i64;
        self.at = at.now;
        self.ctokens = (ctokens - cost(&params.ceil)).max(1 - MBUFFER as i64);
        self.tokens = match by_rate {
            true => (tokens - cost(&params.rate)).max(1 - MBUFFER as i64),
            false => tokens,
        };
        mode_of(self.tokens, self.ctokens)
    }

    fn mode_at(&self, params: &ClassParams, at: Moment) -> (Mode, Nanos) {
        let (tokens, ctokens) = self.tokens(params, at);
        mode_of(tokens, ctokens)
    }

    fn begin(&mut self, params: &ClassParams, now: Nanos) {
        (self.tokens, self.ctokens) = self.tokens(params, Moment { now, credit: 0 });
        self.at = now;
    }

    #[inline]
    fn rest(&mut self, _: Nanos) {}

    fn shown(&self, _: &ClassParams, counted: Counted) -> Box<dyn FnOnce() -> Shown + Send> {
        let shown = Shown { counted, tokens: self.tokens >> 6, ctokens: self.ctokens >> 6 };
        Box::new(move || shown)
    }

    #[inline]
    fn count_direct((): &(), _: u64) {}

    fn direct((): &(), packets: u64) -> u64 {
        packets
    }
}

/// Returns the mode of a class with these tokens, and how long it lasts.
#[inline]
fn mode_of(tokens: i64, ctokens: i64) -> (Mode, Nanos) {
    if ctokens < 0 {
        (Mode::Wait, ctokens.unsigned_abs())
    } else if tokens < 0 {
        (Mode::Borrow, tokens.unsigned_abs())
    } else {
        (Mode::Send, Nanos::MAX)
    }
}
