//! Counters of a measurement, each on a cache line of its own, and the watch that samples the packets sent and the calls of
//! xmit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use histogram::Histogram;

use super::lab::Lab;

/// Time between two samples of the watch. Stalls shorter than this are not reported.
const SAMPLE_PERIOD: Duration = Duration::from_millis(1);
/// One call in this many is timed. A prime, so that it is not always the same call of a run's quota.
const SAMPLED: u32 = 61;

/// A counter that one thread at a time writes.
#[derive(Clone, Default)]
pub(super) struct Counter(Arc<CachePadded<AtomicU64>>);

impl Counter {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One sender's calls of xmit: odd while the sender is inside a call.
#[derive(Clone, Default)]
pub(super) struct Calls(Counter);

impl Calls {
    /// Returns how many calls have begun so far.
    pub(super) fn begun(&self) -> u64 {
        self.0.get().div_ceil(2)
    }
}

/// Whether the measurement is under way: no call is timed before or after.
#[derive(Default)]
pub(super) struct Measuring(AtomicBool);

impl Measuring {
    pub(super) fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Records a sender's calls, and the times of some.
pub(super) struct Log<'a> {
    calls: Counter,
    measuring: &'a Measuring,
    until_sample: u32,
    times: Histogram,
}

impl<'a> Log<'a> {
    pub(super) fn new(calls: &Calls, measuring: &'a Measuring) -> Self {
        // 2^7 buckets for each power of two, up to 2^40 ns.
        let times = Histogram::new(7, 40).expect("constants in range");
        Self { calls: calls.0.clone(), measuring, until_sample: SAMPLED, times }
    }

    /// Makes a call.
    #[inline]
    pub(super) fn call(&mut self, xmit: impl FnOnce()) {
        self.calls.add(1);
        self.until_sample -= 1;
        if self.until_sample == 0 {
            self.until_sample = SAMPLED;
            let start = Instant::now();
            xmit();
            let took = (start.elapsed().as_nanos() as u64).min((1 << 40) - 1);
            if self.measuring.get() {
                self.times.increment(took).expect("within the histogram's range");
            }
        } else {
            xmit();
        }
        self.calls.add(1);
    }

    /// Returns the times of the timed calls, in nanoseconds.
    pub(super) fn times(self) -> Histogram {
        self.times
    }
}

/// The result of a watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchResult {
    /// Packets that left the driver, and the time in which they did.
    pub(super) packets: u64,
    pub(super) wall: Duration,
    /// The longest time in which no packet left; zero if some had left at each sample.
    pub(super) stall: Duration,
    /// The longest time for which one sender was inside the same call.
    pub(super) xmit: Duration,
}

/// A value, and since when it has been the same at each sample.
#[derive(Clone, Copy)]
struct Same {
    value: u64,
    since: Instant,
}

impl Same {
    /// Updates the value; returns how long it has been the same.
    fn update(&mut self, value: u64, now: Instant) -> Duration {
        if value != self.value {
            *self = Self { value, since: now };
        }
        now - self.since
    }
}

/// Returns a value and the time at which it was read. Reads again if the thread may have lost its CPU in between: beside many
/// senders that is a slice of each, which would count as time without packets or as packets without time.
fn at_once(value: impl Fn() -> u64) -> (u64, Instant) {
    const READ_TRIES: u32 = 16;
    let mut start = Instant::now();
    for _ in 1..READ_TRIES {
        let (value, end) = (value(), Instant::now());
        if end - start < SAMPLE_PERIOD / 10 {
            return (value, end);
        }
        start = end;
    }
    (value(), start)
}

/// Samples the number of packets sent, and the calls, until `time` is over or a signal comes. Events shorter than [`SAMPLE_PERIOD`] may be
/// missed; the reported times are lower bounds.
pub(super) fn watch(lab: &Lab, sent: impl Fn() -> u64, calls: &[Calls], time: Duration) -> WatchResult {
    let (first, start) = at_once(&sent);
    let mut count = Same { value: first, since: start };
    let mut inside: Vec<Same> =
        calls.iter().map(|calls| Same { value: calls.0.get(), since: start }).collect();
    let mut seen = WatchResult::default();
    loop {
        let left = time.saturating_sub(start.elapsed());
        let go_on = lab.sleep(left.min(SAMPLE_PERIOD)) && left > SAMPLE_PERIOD;
        let (packets, now) = at_once(&sent);
        seen.stall = seen.stall.max(count.update(packets, now));
        for (same, calls) in inside.iter_mut().zip(calls) {
            let value = calls.0.get();
            let lasted = same.update(value, now);
            if value % 2 == 1 {
                seen.xmit = seen.xmit.max(lasted);
            }
        }
        if !go_on {
            // Only the last two samples are less than `SAMPLE_PERIOD` apart.
            let whole = |time: Duration| if time < SAMPLE_PERIOD { Duration::ZERO } else { time };
            let (stall, xmit) = (whole(seen.stall), whole(seen.xmit));
            return WatchResult { packets: packets - first, wall: now - start, stall, xmit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_the_time_since_the_count_was_first_seen() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut same = Same { value: 7, since: start };
        let lasted = [(1, 7), (2, 8), (3, 8), (9, 8), (10, 9)].map(|(ms, value)| same.update(value, at(ms)));
        assert_eq!(lasted.map(|time| time.as_millis()), [1, 0, 1, 7, 0]);
    }

    #[test]
    fn a_value_read_late_is_read_again() {
        let reads = AtomicU64::new(0);
        let value = || {
            if reads.fetch_add(1, Relaxed) < 2 {
                std::thread::sleep(SAMPLE_PERIOD);
            }
            reads.load(Relaxed)
        };
        assert!(at_once(value).0 >= 3);
        // It gives up at last.
        let late = || {
            std::thread::sleep(SAMPLE_PERIOD / 5);
            7
        };
        assert_eq!(at_once(late).0, 7);
    }

    #[test]
    fn calls_are_odd_inside_and_some_are_timed() {
        let (calls, measuring) = (Calls::default(), Measuring::default());
        let mut log = Log::new(&calls, &measuring);
        for call in 0..400 {
            measuring.set(call >= 200);
            log.call(|| assert_eq!(calls.0.get(), 2 * call + 1));
        }
        assert_eq!(calls.0.get(), 800);
        let timed = u64::from(400 / SAMPLED - 200 / SAMPLED);
        assert_eq!(log.times().as_slice().iter().sum::<u64>(), timed);
    }
}
