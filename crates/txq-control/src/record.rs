//! Records of a running device: waits between threads, and times by powers of two.

mod wire;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use txq::NetDev;
use txq::netdev::WeakNetDev;
use txq::stats::contention::ContentionReport;
use txq::stats::log2::Log2;

use crate::Interval;
use crate::answer::{Answer, REFUSED, absent};
use crate::devices::Devices;

/// The contention of a device during a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contention {
    /// The device's name.
    pub device: String,
    /// How long the device was recorded, in seconds.
    pub seconds: f64,
    /// The packets sent meanwhile.
    pub sent: u64,
    /// The recorded waits.
    #[serde(with = "wire::contention")]
    pub report: ContentionReport,
}

/// Times of a device, by powers of two of a nanosecond.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Times {
    /// The device's name.
    pub device: String,
    /// The times.
    #[serde(with = "wire::log2")]
    pub times: Log2,
}

/// The devices on which a client has switched recording on. No two clients record the same device.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<Vec<WeakNetDev>>);

/// A recording of one device; its end switches recording off, unless the program itself had switched it on.
struct OpenRecording<'r> {
    all: &'r Recordings,
    dev: WeakNetDev,
    own: bool,
    name: String,
    since: Instant,
    sent: u64,
}

impl Recordings {
    fn all(&self) -> std::sync::MutexGuard<'_, Vec<WeakNetDev>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches recording on; `None` if another client records the device.
    fn start(&self, dev: &NetDev) -> Option<OpenRecording<'_>> {
        let (mut all, weak) = (self.all(), dev.downgrade());
        if all.iter().any(|other| other.is_same(&weak)) {
            return None;
        }
        all.push(weak.clone());
        drop(all);
        // The record of a program that records itself goes on.
        let (own, name) = (!dev.is_recording_contention(), dev.info().name.clone());
        let (since, sent) = (Instant::now(), dev.stats().sent);
        let recorded = OpenRecording { all: self, dev: weak, own, name, since, sent };
        if own {
            dev.set_contention(true);
        }
        Some(recorded)
    }
}

impl Drop for OpenRecording<'_> {
    fn drop(&mut self) {
        if self.own
            && let Some(dev) = self.dev.upgrade()
        {
            dev.set_contention(false);
        }
        self.all.all().retain(|dev| !dev.is_same(&self.dev));
    }
}

/// Records the contention of a device, or of all devices, until `wait` returns; `wait` returns false if nobody waits for the
/// answer any more.
pub(crate) fn contention(
    devices: &Devices,
    recordings: &Recordings,
    dev: Option<&str>,
    wait: impl FnOnce() -> bool,
) -> Answer {
    let mut running = Vec::new();
    for dev in devices.handles(dev) {
        match recordings.start(&dev) {
            Some(recorded) => running.push(recorded),
            None => return busy(&dev.info().name),
        }
    }
    if let Some(answer) = absent(devices, dev, running.is_empty()) {
        return answer;
    }
    if !wait() {
        return Answer::default();
    }
    let done = running.iter().filter_map(|recorded| {
        let dev = recorded.dev.upgrade()?;
        Some(Contention {
            device: recorded.name.clone(),
            seconds: recorded.since.elapsed().as_secs_f64(),
            sent: dev.stats().sent.saturating_sub(recorded.sent),
            report: dev.contention().unwrap_or_default(),
        })
    });
    Answer::of(done.collect::<Vec<_>>())
}

/// Counts times of a device, or of all devices, until `wait` returns; without a time, those since each device was built.
pub(crate) fn hist(
    devices: &Devices,
    dev: Option<&str>,
    what: Interval,
    time: Duration,
    wait: impl FnOnce() -> bool,
) -> Answer {
    let of = |dev: &NetDev| match what {
        Interval::Xmit => dev.xmit_times(),
        Interval::Driver => dev.latency().to_driver.log2(),
        Interval::Completion => dev.latency().to_completion.log2(),
        Interval::Lateness => dev.lateness(),
    };
    let before: Vec<_> = devices.handles(dev).iter().map(|dev| (dev.downgrade(), of(dev))).collect();
    if let Some(answer) = absent(devices, dev, before.is_empty()) {
        return answer;
    }
    if !time.is_zero() && !wait() {
        return Answer::default();
    }
    let done = before.iter().filter_map(|(dev, before)| {
        let dev = dev.upgrade()?;
        let times = if time.is_zero() { *before } else { difference(&of(&dev), before) };
        Some(Times { device: dev.info().name.clone(), times })
    });
    Answer::of(done.collect::<Vec<_>>())
}

fn busy(name: &str) -> Answer {
    let remedy = format!("another command records device \"{name}\": wait for its end");
    Answer::bad(REFUSED, "RTNETLINK answers: Device or resource busy", Some(&remedy))
}

/// Returns the values that were counted after `before`.
fn difference(after: &Log2, before: &Log2) -> Log2 {
    let mut counts = [0; Log2::BUCKETS];
    after.buckets().for_each(|bucket| counts[Log2::index(bucket.min)] += bucket.count);
    // A sender that ends, or a device that is reset, may take its counts with it.
    before.buckets().for_each(|bucket| {
        let count: &mut u64 = &mut counts[Log2::index(bucket.min)];
        *count = count.saturating_sub(bucket.count);
    });
    let mut left = Log2::new();
    counts.iter().enumerate().for_each(|(index, &count)| left.add_to_bucket(index, count));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_only_the_new_values() {
        let mut before = Log2::new();
        [0, 1, 5, 5].iter().for_each(|&value| before.record(value));
        let mut after = before;
        [5, u64::MAX].iter().for_each(|&value| after.record(value));
        let left = difference(&after, &before);
        let found: Vec<_> = left.buckets().filter(|b| b.count > 0).map(|b| (b.min, b.count)).collect();
        assert_eq!(found, [(4, 1), (1 << 63, 1)]);
        assert_eq!(difference(&before, &after).count(), 0);
    }
}
