//! The end of all sending: its cause, the request to stop, and the signals that end a run.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No frame was left to send.
    Done,
    /// The time was up.
    Duration,
    /// A signal of this name arrived.
    Signal(&'static str),
    /// A sender failed.
    Failure,
}

impl Cause {
    /// Returns the cause as reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "end of work",
            Self::Duration => "duration",
            Self::Signal(name) => name,
            Self::Failure => "failure",
        }
    }
}

/// A request to stop, which senders check between batches.
#[derive(Debug, Default)]
pub struct Stop {
    /// Whether a stop is requested. Any thread sets it, and none clears it; senders and servers read it. The accesses are
    /// relaxed: a reader that finds it set may still find `at` empty, and then takes the current time for that of the
    /// request.
    asked: AtomicBool,
    /// The time of the first request. [`Stop::ask`] sets it before `asked`; later requests leave it.
    at: OnceLock<Instant>,
}

impl Stop {
    /// Requests the stop; a later request changes nothing.
    pub fn ask(&self) {
        self.at.get_or_init(Instant::now);
        self.asked.store(true, Relaxed);
    }

    /// Returns whether a stop is requested.
    #[inline]
    pub fn asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Returns the time of the first request to stop; `None` if there is none.
    pub fn at(&self) -> Option<Instant> {
        self.at.get().copied()
    }
}

/// Flags that the handlers of SIGINT and SIGTERM set. A second signal of the same kind ends the program at once.
#[derive(Debug)]
pub struct Signals([(&'static str, Arc<AtomicBool>); 2]);

impl Signals {
    /// Installs the handlers.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |name, signal| {
            let seen = Arc::new(AtomicBool::new(false));
            // The order matters: the first signal finds the flag unset, and only sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, seen.clone())
                .and_then(|_| signal_hook::flag::register(signal, seen.clone()))
                .with_context(|| format!("{name} cannot be caught"))?;
            anyhow::Ok((name, seen))
        };
        Ok(Self([catch("SIGINT", SIGINT)?, catch("SIGTERM", SIGTERM)?]))
    }

    /// Returns the signal that arrived, if one did.
    pub fn seen(&self) -> Option<Cause> {
        self.0.iter().find(|(_, seen)| seen.load(Relaxed)).map(|(name, _)| Cause::Signal(name))
    }
}
