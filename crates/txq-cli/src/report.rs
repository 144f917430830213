//! The report of a run: the account of every packet, latency, the requested and the achieved rates, and the cost.
//!
//! One [`Report`] holds all of it. It is printed as text for people, or as one line of JSON for tools.

mod json;
mod quantile;
mod rows;
mod text;

use crate::common::out;
use crate::common::stop::Cause;
use txq::Discipline;
use txq::drop::DropCounts;
use txq::netdev::BandStats;
use txq::netdev::Latencies;
use txq::stats::contention::ContentionReport;
use txq::stats::device::DeviceStats;
use txq::stats::log2::Log2;
use txq::tc::QdiscInfo;

use crate::args::Output;
use crate::pump::{Account, Count};

/// The requested rate of one sender or several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// The rate as the user wrote it.
    pub(crate) text: String,
    /// Packets per second; `None` for as many as possible.
    pub(crate) pps: Option<f64>,
    /// Bits per second.
    pub(crate) bps: Option<f64>,
}

impl Asked {
    /// Returns the sum of the rates; `None` for a rate if any sender sends at max.
    pub(crate) fn sum(all: impl Iterator<Item = Asked>) -> Self {
        let add = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        all.reduce(|a, b| Self {
            text: if a.text == b.text && a.pps.is_none() {
                a.text
            } else {
                format!("{} + {}", a.text, b.text)
            },
            pps: add(a.pps, b.pps),
            bps: add(a.bps, b.bps),
        })
        .unwrap_or_default()
    }
}

/// How and when a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) cause: Cause,
    /// The time from the start until the last packet left the last device.
    pub(crate) seconds: f64,
    /// The CPU time of the whole process during the run.
    pub(crate) cpu_seconds: f64,
}

/// The report of one device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) discipline: Discipline,
    pub(crate) asked: Asked,
    pub(crate) account: Account,
    /// The time from the start until this device's last packet left; other devices may take longer.
    pub(crate) seconds: f64,
    pub(crate) stats: DeviceStats,
    /// The latency from xmit to the driver, and from xmit to the completion.
    pub(crate) latency: Latencies,
    /// How late packets left that a qdisc had held back until a time.
    pub(crate) lateness: Log2,
    /// The recorded waits for locks; `None` without a recording.
    pub(crate) contention: Option<ContentionReport>,
    /// The durations of calls of xmit, in nanoseconds; empty if they were not measured.
    pub(crate) xmit_times: Log2,
    /// Whether packets choose their txq by flow hash alone.
    pub(crate) by_hash: bool,
    pub(crate) qdiscs: Vec<QdiscInfo>,
    /// The bands and classes of the qdiscs.
    pub(crate) bands: Vec<BandStats>,
}

/// A whole run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ended: Ended,
    /// The devices of the run; never empty.
    pub(crate) devices: Vec<Device>,
}

/// Sums over all devices.
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    /// Copies of packets that qdiscs made.
    pub(crate) created: u64,
    pub(crate) sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) dropped: DropCounts,
    pub(crate) queued: u64,
    pub(crate) asked: Asked,
    pub(crate) account: Account,
    /// The sum of the rates of all devices, each over its own time.
    pub(crate) achieved: Rates,
    pub(crate) latency: Latencies,
}

/// The fewest sent packets from which the cost of one is computed: by then threads run and caches are warm for most.
const COSTED: u64 = 1000;

/// Packets and bits in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) pps: f64,
    pub(crate) bps: f64,
}

impl Rates {
    /// Returns the rates of packets and their bytes over `seconds`; zero if `seconds` is zero.
    fn over(count: Count, seconds: f64) -> Self {
        Self { pps: per_second(count.packets, seconds), bps: per_second(count.bytes, seconds) * 8.0 }
    }

    /// Returns the sum of the rates that devices achieved, each over its own time.
    pub(crate) fn achieved(devices: &[Device]) -> Self {
        devices
            .iter()
            .map(Device::achieved)
            .fold(Self::default(), |a, b| Self { pps: a.pps + b.pps, bps: a.bps + b.bps })
    }

    /// Returns the rate in millions of packets per second.
    pub(crate) fn mpps(self) -> f64 {
        self.pps / 1e6
    }
}

impl Device {
    /// Returns the rate of sent packets over the device's own time.
    pub(crate) fn achieved(&self) -> Rates {
        let sent = Count { packets: self.stats.sent, bytes: self.stats.bytes_sent };
        Rates::over(sent, self.seconds)
    }
}

impl Totals {
    /// Returns the sums over `devices`, of which there must be at least one.
    fn of(devices: &[Device]) -> Self {
        let sum = |f: fn(&DeviceStats) -> u64| devices.iter().map(|device| f(&device.stats)).sum();
        let (mut account, mut dropped) = (Account::default(), DropCounts::default());
        let mut latency = devices[0].latency.clone();
        let with_senders = devices.iter().filter(|device| !device.asked.text.is_empty());
        for device in devices {
            account.merge(&device.account);
            dropped.merge(&device.stats.dropped);
        }
        for device in &devices[1..] {
            latency.to_driver.merge(&device.latency.to_driver);
            latency.to_completion.merge(&device.latency.to_completion);
        }
        Self {
            accepted: sum(|s| s.accepted),
            created: sum(|s| s.created),
            sent: sum(|s| s.sent),
            bytes_sent: sum(|s| s.bytes_sent),
            dropped,
            queued: sum(|s| s.queued),
            asked: Asked::sum(with_senders.map(|device| device.asked.clone())),
            account,
            achieved: Rates::achieved(devices),
            latency,
        }
    }

    /// Returns the nanoseconds that a packet takes by the clock, or why the cost of a packet is not known.
    fn ns_per_packet(&self) -> Result<f64, &'static str> {
        if self.asked.pps.is_some() {
            Err("senders keep to a rate; send at max to measure it")
        } else if self.sent < COSTED {
            Err("it takes 1000 packets to measure it")
        } else {
            Ok(1e9 / self.achieved.pps)
        }
    }

    /// Returns the rate of `count`, a part of the offered packets, over the time in which packets were offered.
    fn offering(&self, count: Count) -> Rates {
        Rates::over(count, self.account.until as f64 / 1e9)
    }

    /// Returns the accepted and copied packets that are neither sent, dropped nor queued: 0 unless the path lost or invented
    /// packets.
    fn astray(&self) -> i128 {
        i128::from(self.accepted) + i128::from(self.created)
            - i128::from(self.sent)
            - i128::from(self.dropped.total())
            - i128::from(self.queued)
    }
}

/// Returns `count` divided by `seconds`; 0 if `seconds` is 0.
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Prints the report to stdout.
pub(crate) fn print(report: &Report, output: Output) -> anyhow::Result<()> {
    out::write(&if output.json { json::line(report).to_string() + "\n" } else { text::lines(report) })
}

#[cfg(test)]
mod tests;
