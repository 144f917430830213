//! The time that a call has to wait.

use libc::{c_int, timespec};

use crate::memory::Readable;

/// The time that a call has to wait.
#[derive(Clone, Copy)]
pub(super) struct Left {
    since: txq::Instant,
    /// `None` for ever.
    limit: Option<u64>,
}

impl Left {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { since: txq::Instant::now(), limit }
    }

    pub(super) fn millis(timeout: c_int) -> Self {
        Self::new(u64::try_from(timeout).ok().map(|millis| millis * 1_000_000))
    }

    /// Returns the time of a program's `timespec`, or null for ever; `None` if the kernel refuses it.
    pub(super) fn at(time: *const timespec) -> Option<Self> {
        if time.is_null() {
            return Some(Self::new(None));
        }
        // SAFETY: any bytes are two integers.
        let time = unsafe { Readable::new().read(time) }?;
        Self::of(time.tv_sec, time.tv_nsec, 1_000_000_000)
    }

    /// Returns a time of seconds and parts of a second.
    pub(super) fn of(seconds: i64, parts: i64, all: u64) -> Option<Self> {
        let (seconds, parts) = (u64::try_from(seconds).ok()?, u64::try_from(parts).ok()?);
        let whole = seconds.saturating_mul(1_000_000_000);
        (parts < all).then(|| Self::new(Some(whole.saturating_add(parts * (1_000_000_000 / all)))))
    }

    /// Returns what is left of it, in nanoseconds; `None` for ever.
    pub(super) fn nanos(self) -> Option<u64> {
        let passed = (txq::Instant::now() - self.since).as_nanos() as u64;
        self.limit.map(|limit| limit.saturating_sub(passed))
    }

    pub(super) fn is_over(self) -> bool {
        self.nanos() == Some(0)
    }

    /// Returns the time of the next sleep, `longest` at most; `None` for ever.
    pub(super) fn next(self, longest: Option<u64>) -> Option<timespec> {
        let nanos = [self.nanos(), longest].into_iter().flatten().min()?;
        Some(timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ })
    }
}
