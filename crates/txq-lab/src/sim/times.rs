//! How long packets take: their calls of xmit, and their way from the hand-in to the end of the wire.
//!
//! The program that is simulated does not measure them, so measuring costs no virtual time. Only packets that were handed in
//! during the measured time count.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use histogram::Histogram;

use crate::sim::machine::Picos;

/// Values are exact to 1/128.
const GROUPING: u8 = 7;
/// Longer times count as this power of two nanoseconds.
const MAX_SIM_TIME_LOG2_NS: u8 = 40;
/// Picoseconds in a nanosecond.
const PICOS: Picos = 1000;

/// The times of packets. The mutex is held for a few instructions of the host, during which no virtual time passes.
#[derive(Debug)]
pub(crate) struct Times(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    xmit: Histogram,
    sojourn: Histogram,
    /// When the packet in a buffer was handed in, by the buffer's address. Nothing depends on the addresses' values or order.
    handed_in: HashMap<usize, Picos, BuildHasherDefault<AddressHasher>>,
}

/// Hashes an address by one multiplication (Fibonacci hashing).
#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    #[inline]
    fn write_usize(&mut self, address: usize) {
        self.write_u64(address as u64);
    }

    #[inline]
    fn write_u64(&mut self, address: u64) {
        let product = (self.0 ^ address).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The map takes the low bits for the place and the high ones for the tag; addresses differ in neither.
        self.0 = product ^ product >> 32;
    }
}

impl Default for Times {
    fn default() -> Self {
        let empty = || Histogram::new(GROUPING, MAX_SIM_TIME_LOG2_NS).expect("constants in range");
        Self(Mutex::new(Inner { xmit: empty(), sojourn: empty(), handed_in: HashMap::default() }))
    }
}

impl Times {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the packet with these bytes is handed in at `now`; `counts` says whether it is part of the measurement.
    pub(crate) fn hand_in(&self, data: &[u8], now: Picos, counts: bool) {
        let mut inner = self.lock();
        match counts {
            true => inner.handed_in.insert(data.as_ptr().addr(), now),
            false => inner.handed_in.remove(&data.as_ptr().addr()),
        };
    }

    /// Notes that a call of xmit took `time`.
    pub(crate) fn xmit(&self, time: Picos) {
        add(&mut self.lock().xmit, time);
    }

    /// Notes that the packet with these bytes leaves the wire at `at`.
    pub(crate) fn sent(&self, data: &[u8], at: Picos) {
        let mut inner = self.lock();
        if let Some(handed_in) = inner.handed_in.remove(&data.as_ptr().addr()) {
            add(&mut inner.sojourn, at.saturating_sub(handed_in));
        }
    }

    /// Returns a quantile of the calls' times and of the sojourns, in nanoseconds; `None` without any.
    pub(crate) fn quantile(&self, part: f64) -> [Option<f64>; 2] {
        let inner = self.lock();
        [&inner.xmit, &inner.sojourn]
            .map(|times| times.quantile_bucket(part).ok().flatten().map(|bucket| bucket.end() as f64))
    }
}

fn add(times: &mut Histogram, time: Picos) {
    let nanos = (time / PICOS).min((1 << MAX_SIM_TIME_LOG2_NS) - 1);
    times.increment(nanos).expect("within the histogram's range");
}
