//! The rates of devices, txqs, qdiscs and classes between two snapshots.
//!
//! A counter that went backwards belongs to something new, such as a restarted program or a replaced qdisc. Its row has
//! no rates until the next snapshot.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use txq_control::Info;

use crate::watch::snapshot::{Device, Node, Sender, Snapshot};

/// The number of samples that a quantile of 99 % takes, as in txq's reports.
const QUANTILE_SAMPLES: u64 = 100;
/// How far a quantile reaches back for them.
const BACK: Duration = Duration::from_secs(60);

/// Sampled times: the smallest of each bucket, and its count.
type Buckets = Arc<[(u64, u64)]>;

/// A snapshot, and the rates since the one before.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub(crate) program: Info,
    /// When the snapshot was taken, on a clock that never goes back.
    pub(crate) at: Duration,
    /// The time of day.
    pub(crate) time: SystemTime,
    /// The seconds since the snapshot before; `None` for the first snapshot of a process.
    pub(crate) seconds: Option<f64>,
    /// Devices, each before its txqs and its tree.
    pub(crate) rows: Vec<Row>,
    /// What devices have beside their rows, in the order of their rows.
    pub(crate) devices: Vec<Detail>,
}

/// A row of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Identifies the row in all snapshots.
    pub(crate) key: String,
    pub(crate) what: What,
    /// How many rows are above it.
    pub(crate) depth: usize,
    /// The index of its device.
    pub(crate) device: usize,
    pub(crate) name: String,
    /// Its place among its siblings by name.
    pub(crate) order: (u32, u32),
    pub(crate) total: Totals,
    /// `None` if the row is new.
    pub(crate) speed: Option<Speed>,
    /// Packets that wait; for a txq, those in the device.
    pub(crate) queued: u64,
    /// Bytes that wait; `None` where only packets are counted.
    pub(crate) backlog: Option<u64>,
    /// Of a device: the end of the bucket that 99 % of the times from xmit to the driver do not exceed, in nanoseconds; of the
    /// times since the last snapshot after which there are enough samples.
    pub(crate) p99: Option<u64>,
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Device,
    /// The row above the txqs of a device.
    Txqs,
    Txq(u32),
    /// A qdisc or a class; the index of its node.
    Node(usize),
    /// A qdisc whose classes are flows, which come and go.
    Flows(usize),
}

/// Counters of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) drops: u64,
    /// `None` for devices and txqs.
    pub(crate) overlimits: Option<u64>,
}

/// Counters per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Speed {
    pub(crate) bits: f64,
    pub(crate) packets: f64,
    pub(crate) drops: f64,
    pub(crate) overlimits: Option<f64>,
}

/// What a device has beside its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    pub(crate) device: Device,
    /// For each reason the packets dropped, and those per second.
    pub(crate) drops: Vec<(String, u64, Option<f64>)>,
    /// The rates of each sender's counters, by the ends of their names.
    pub(crate) senders: Vec<HashMap<String, f64>>,
    /// For each sender and reason with drops the same as in `drops`, behind the sender's place.
    pub(crate) sender_drops: Vec<(usize, String, u64, Option<f64>)>,
    /// The times to the driver in this snapshot and in those of the last minute, the newest first.
    past: VecDeque<(Duration, Buckets)>,
}

impl Rates {
    /// Compares a snapshot with the one before.
    pub(crate) fn between(before: Option<&Self>, snapshot: Snapshot, at: Duration, time: SystemTime) -> Self {
        let Snapshot { program, devices, .. } = snapshot;
        let before = before.filter(|before| before.program.pid == program.pid);
        let seconds = before.map(|before| at.saturating_sub(before.at).as_secs_f64()).filter(|&s| s > 0.0);
        let before = before.filter(|_| seconds.is_some());
        let span = seconds.unwrap_or(1.0);
        let mut rows = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            of_device(index, device, &mut rows);
        }
        if let Some(before) = before {
            let known: HashMap<_, _> = before.rows.iter().map(|row| (row.key.as_str(), &row.total)).collect();
            for row in &mut rows {
                row.speed = known.get(row.key.as_str()).and_then(|total| row.total.since(total, span));
            }
        }
        let detail = |device: Device| {
            let old = before.and_then(|before| before.devices.iter().find(|d| d.device.name == device.name));
            Detail::of(device, old, at, span)
        };
        let devices: Vec<_> = devices.into_iter().map(detail).collect();
        for row in rows.iter_mut().filter(|row| row.what == What::Device && row.speed.is_some()) {
            row.p99 = devices[row.device].p99();
        }
        Self { program, at, time, seconds, rows, devices }
    }

    /// Returns the sum of all devices with rates; `None` without any.
    pub(crate) fn sum(&self) -> Option<Speed> {
        let devices = self.rows.iter().filter(|row| row.what == What::Device);
        devices.filter_map(|row| row.speed).reduce(|a, b| Speed {
            bits: a.bits + b.bits,
            packets: a.packets + b.packets,
            drops: a.drops + b.drops,
            overlimits: None,
        })
    }
}

impl Totals {
    /// Returns what was counted per second after `before`; `None` if a counter went backwards.
    fn since(&self, before: &Self, seconds: f64) -> Option<Speed> {
        let rate = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
        Some(Speed {
            bits: rate(self.bytes, before.bytes)? * 8.0,
            packets: rate(self.packets, before.packets)?,
            drops: rate(self.drops, before.drops)?,
            overlimits: match (self.overlimits, before.overlimits) {
                (Some(now), Some(then)) => Some(rate(now, then)?),
                _ => None,
            },
        })
    }
}

impl Detail {
    fn of(device: Device, old: Option<&Self>, at: Duration, seconds: f64) -> Self {
        let before = old.map(|old| &old.device);
        let rate = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
        // A reason appears with its first drop.
        let then = |old: &BTreeMap<String, u64>, reason: &str| old.get(reason).copied().unwrap_or(0);
        let drops = device.drops.iter().map(|(reason, &now)| {
            let then = before.map(|before| then(&before.drops, reason));
            (reason.clone(), now, then.and_then(|then| rate(now, then)))
        });
        let earlier = |sender: &Sender| {
            let old = before.and_then(|before| before.senders.iter().find(|old| old.index == sender.index));
            old.filter(|old| old.name == sender.name)
        };
        let sender_drops = device.senders.iter().enumerate().flat_map(|(at, sender)| {
            let old = earlier(sender);
            sender.drops.iter().map(move |(reason, &now)| {
                let then = old.map(|old| then(&old.drops, reason));
                (at, reason.clone(), now, then.and_then(|then| rate(now, then)))
            })
        });
        let senders = device.senders.iter().map(|sender| {
            let old = earlier(sender);
            // Pending packets are a state, not a counter.
            let counted = sender.counters.iter().filter(|(name, _)| *name != "pending");
            let rates = counted
                .filter_map(|(name, &now)| Some((name.clone(), rate(now, *old?.counters.get(name)?)?)));
            rates.collect()
        });
        let (drops, senders, sender_drops) = (drops.collect(), senders.collect(), sender_drops.collect());
        let mut past = old.map(|old| old.past.clone()).unwrap_or_default();
        past.retain(|(then, _)| at.saturating_sub(*then) <= BACK);
        past.push_front((at, Arc::from(device.to_driver.as_slice())));
        Self { device, drops, senders, sender_drops, past }
    }

    /// Returns the quantile of the times since the last snapshot after which there are enough; `None` if there is no such snapshot, or
    /// times began again since.
    fn p99(&self) -> Option<u64> {
        let (_, now) = self.past.front()?;
        for (_, before) in self.past.iter().skip(1) {
            let new = since(before, now)?;
            if new.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count)) >= QUANTILE_SAMPLES {
                return Some(p99(&new));
            }
        }
        None
    }
}

/// Returns the new samples, in order; `None` if a bucket has fewer than before.
fn since(before: &[(u64, u64)], now: &[(u64, u64)]) -> Option<Vec<(u64, u64)>> {
    let mut old: HashMap<_, _> = before.iter().copied().collect();
    let new = now.iter().map(|&(min, count)| Some((min, count.checked_sub(old.remove(&min).unwrap_or(0))?)));
    let mut new = new.collect::<Option<Vec<_>>>()?;
    new.sort_unstable();
    old.is_empty().then_some(new)
}

/// Returns the end of the bucket that 99 % of the samples do not exceed.
fn p99(samples: &[(u64, u64)]) -> u64 {
    let all: u128 = samples.iter().map(|&(_, count)| u128::from(count)).sum();
    let mut below = 0;
    let bucket = samples.iter().find(|&&(_, count)| {
        below += u128::from(count);
        below * 100 >= all * 99
    });
    bucket.map_or(0, |(min, _)| min.max(&1).saturating_mul(2))
}

/// Appends the rows of a device.
fn of_device(index: usize, device: &Device, rows: &mut Vec<Row>) {
    let row = |what, depth, key: String, name: String| Row {
        key,
        what,
        depth,
        device: index,
        name,
        order: (0, 0),
        total: Totals::default(),
        speed: None,
        queued: 0,
        backlog: None,
        p99: None,
    };
    let name = plain(&device.name);
    let total = Totals {
        bytes: device.counter("tx_bytes"),
        packets: device.counter("tx_packets"),
        drops: device.counter("tx_dropped"),
        overlimits: None,
    };
    rows.push(Row {
        total,
        queued: device.counter("queued"),
        ..row(What::Device, 0, device.name.clone(), name)
    });
    let key = |end: String| format!("{} {end}", device.name);
    if !device.txqs.is_empty() {
        let counter = |counters: &BTreeMap<String, u64>, name| counters.get(name).copied().unwrap_or(0);
        let of = |counters| Totals {
            bytes: counter(counters, "bytes"),
            packets: counter(counters, "packets"),
            drops: counter(counters, "dropped"),
            overlimits: None,
        };
        let all = device.txqs.values().map(of).fold(Totals::default(), |a, b| Totals {
            bytes: a.bytes.saturating_add(b.bytes),
            packets: a.packets.saturating_add(b.packets),
            drops: a.drops.saturating_add(b.drops),
            overlimits: None,
        });
        let queued = device.txqs.values().map(|txq| counter(txq, "in_flight")).fold(0, u64::saturating_add);
        let name = format!("txqs: {}", device.txqs.len());
        rows.push(Row { total: all, queued, ..row(What::Txqs, 1, key("txqs".to_owned()), name) });
        for (&txq, counters) in &device.txqs {
            let queued = counter(counters, "in_flight");
            let (key, name) = (key(format!("txq {txq}")), format!("txq {txq}"));
            let order = (txq, 0);
            rows.push(Row { total: of(counters), queued, order, ..row(What::Txq(txq), 2, key, name) });
        }
    }
    for (at, node) in device.tree.iter().enumerate() {
        let kind = if node.class { "class" } else { "qdisc" };
        let own = key(format!("{kind} {} {} {}", node.kind, node.handle, node.parent));
        let name = plain(&format!("{} {}", node.kind, node.handle));
        let flows = !node.class && matches!(node.kind.as_str(), "fq_codel" | "cake");
        let what = if flows { What::Flows(at) } else { What::Node(at) };
        rows.push(Row {
            total: Totals {
                bytes: node.bytes,
                packets: node.packets,
                drops: node.drops,
                overlimits: Some(node.overlimits),
            },
            queued: node.qlen,
            backlog: Some(node.backlog),
            order: order(node),
            ..row(what, node.depth + 1, own, name)
        });
    }
}

/// Returns the numbers of a handle, which tc writes in hexadecimal.
fn order(node: &Node) -> (u32, u32) {
    let (major, minor) = node.handle.split_once(':').unwrap_or((&node.handle, ""));
    let number = |text| u32::from_str_radix(text, 16).unwrap_or(0);
    (number(major), number(minor))
}

/// Returns a text without control characters, which a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.trim().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests;
