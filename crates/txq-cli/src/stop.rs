//! The end of all sending: who asked for it first, and everybody told.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There was nothing left to send.
    Done,
    /// The time was up.
    Duration,
    /// A signal.
    Signal(&'static str),
    /// A sender failed.
    Failure,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "end of work",
            Self::Duration => "duration",
            Self::Signal(name) => name,
            Self::Failure => "failure",
        }
    }
}

/// What senders look at between batches.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    asked: AtomicBool,
    /// When that was; set before `asked` is, by the first caller.
    at: OnceLock<Instant>,
}

impl Stop {
    pub(crate) fn ask(&self) {
        self.at.get_or_init(Instant::now);
        self.asked.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Returns when the end was asked for first, `None` if it has not been.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at.get().copied()
    }
}

/// SIGINT and SIGTERM, remembered. A second one of a kind ends the program at once.
pub(crate) struct Signals([(&'static str, Arc<AtomicBool>); 2]);

impl Signals {
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let catch = |name, signal| {
            let seen = Arc::new(AtomicBool::new(false));
            // In this order: the first signal finds the flag unset and only sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, seen.clone())
                .and_then(|_| signal_hook::flag::register(signal, seen.clone()))
                .with_context(|| format!("{name} cannot be caught"))?;
            anyhow::Ok((name, seen))
        };
        Ok(Self([catch("SIGINT", SIGINT)?, catch("SIGTERM", SIGTERM)?]))
    }

    pub(crate) fn seen(&self) -> Option<Cause> {
        self.0.iter().find(|(_, seen)| seen.load(Relaxed)).map(|(name, _)| Cause::Signal(name))
    }
}
