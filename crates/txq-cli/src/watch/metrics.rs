//! A snapshot as metrics for Prometheus, in its text format or in OpenMetrics.
//!
//! Names and units follow Prometheus' rules: base units, `_total` for counters. A queue has the labels `dev`, `kind`, `handle` and
//! `parent`, so that one query covers all queues of a kind and another one class.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::watch::snapshot::{Device, Node, Snapshot};

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that an `Accept` header asks for.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the metrics of a program. Without a snapshot the program cannot be reached, and `txq_up` is 0.
pub fn metrics(snapshot: Option<&Snapshot>, format: Format) -> String {
    let mut page = Page { text: String::new(), format };
    page.family("txq_up", Kind::Gauge, "Whether the program answers.");
    page.sample("txq_up", &[], u8::from(snapshot.is_some()));
    if let Some(snapshot) = snapshot {
        of_program(snapshot, &mut page);
        let devices = &snapshot.devices;
        of_devices(devices, &mut page);
        of_txqs(devices, &mut page);
        of_senders(devices, &mut page);
        of_nodes(devices, false, &mut page);
        of_nodes(devices, true, &mut page);
        of_locks(devices, &mut page);
        of_times(devices, &mut page);
    }
    if format == Format::OpenMetrics {
        page.text += "# EOF\n";
    }
    page.text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric of a device, a txq or a sender: its name without prefix and `_total`, the counter of the snapshot, the kind, the help.
type Row = (&'static str, &'static str, Kind, &'static str);

const DEVICE_ROWS: [Row; 14] = [
    ("sent_packets", "tx_packets", Kind::Counter, "Packets that the driver took."),
    ("sent_bytes", "tx_bytes", Kind::Counter, "Bytes that the driver took."),
    ("accepted_packets", "accepted", Kind::Counter, "Packets handed in."),
    ("created_packets", "created", Kind::Counter, "Packets that qdiscs created: copies and segments."),
    ("requeues", "requeues", Kind::Counter, "Packets that the driver refused."),
    ("queued_packets", "queued", Kind::Gauge, "Packets on their way to the driver."),
    ("in_flight_packets", "in_flight", Kind::Gauge, "Packets sent that the device keeps."),
    ("pool_buffers", "pool_buffers", Kind::Gauge, "Buffers of the pool."),
    ("pool_max_buffers", "pool_max_buffers", Kind::Gauge, "Buffers that the pool may grow to."),
    (
        "pool_backlog_buffers",
        "pool_backlog",
        Kind::Gauge,
        "Freed buffers on their way back to their senders.",
    ),
    ("defer_max_packets", "pool_defer_max", Kind::Gauge, "Freed buffers that may wait for a sender."),
    ("worker_restarts", "worker_restarts", Kind::Counter, "Panics that a worker has survived."),
    ("running", "active", Kind::Gauge, "Whether the device is up."),
    ("mtu_bytes", "mtu", Kind::Gauge, "The longest packet without its link-layer header."),
];

const TXQ_ROWS: [Row; 13] = [
    ("sent_packets", "packets", Kind::Counter, "Packets sent through the txq."),
    ("sent_bytes", "bytes", Kind::Counter, "Bytes sent through the txq."),
    ("batches", "batches", Kind::Counter, "Calls of the driver."),
    ("dropped_packets", "dropped", Kind::Counter, "Packets that the driver dropped."),
    ("stops", "stops", Kind::Counter, "How often the device was full."),
    ("timeouts", "tx_timeout", Kind::Counter, "Stops for longer than the watchdog allows."),
    ("driver_bugs", "driver_bugs", Kind::Counter, "Rules that the driver broke."),
    ("invented_packets", "invented", Kind::Counter, "Packets that the driver made up."),
    ("in_flight_packets", "in_flight", Kind::Gauge, "Packets that the device keeps."),
    ("stopped", "stopped", Kind::Gauge, "Whether the device is full."),
    ("bql_limit_bytes", "bql_limit", Kind::Gauge, "Byte queue limit."),
    ("bql_in_flight_bytes", "bql_inflight", Kind::Gauge, "Bytes that the byte queue limit counts."),
    ("bql_stalls", "bql_stall_cnt", Kind::Counter, "Stalls that the byte queue limit has seen."),
];

const SENDER_ROWS: [Row; 6] = [
    ("accepted_packets", "accepted", Kind::Counter, "Packets handed in by the sender."),
    ("sent_packets", "sent", Kind::Counter, "Packets of the sender that the device has completed."),
    ("dropped_packets", "dropped", Kind::Counter, "Packets of the sender that were dropped."),
    ("pending_packets", "pending", Kind::Gauge, "Packets of the sender on their way."),
    ("no_buffer", "no_buffer", Kind::Counter, "Allocations that failed because the pool was empty."),
    ("at_limit", "at_limit", Kind::Counter, "Allocations that failed at the sender's limit."),
];

/// The labels of a histogram, and its times: the smallest of each bucket, and its count.
type Series<'s> = (Vec<(&'s str, &'s str)>, &'s [(u64, u64)]);

/// A metric of a lock at a site: its name without prefix and `_total`, the counter of the snapshot, its unit, the help.
const LOCK: [(&str, &str, f64, &str); 5] = [
    ("acquisitions", "acquisitions", 1.0, "Acquisitions of the locks."),
    ("contended", "contended", 1.0, "Acquisitions that waited."),
    ("held_up", "held_up", 1.0, "Acquisitions elsewhere that waited for this site's release."),
    ("wait_seconds", "wait_ns", 1e9, "Time waited for the locks."),
    ("hold_seconds", "hold_ns", 1e9, "Time that the locks were held."),
];

/// A metric of a qdisc or class: its name without prefix and `_total`, the value, the kind, the help.
type NodeRow = (&'static str, fn(&Node) -> u64, Kind, &'static str);

const NODE: [NodeRow; 7] = [
    ("sent_packets", |node| node.packets, Kind::Counter, "Packets that left the queue."),
    ("sent_bytes", |node| node.bytes, Kind::Counter, "Bytes that left the queue."),
    ("dropped_packets", |node| node.drops, Kind::Counter, "Packets that the queue dropped."),
    ("overlimits", |node| node.overlimits, Kind::Counter, "How often a limit held a packet back."),
    ("requeues", |node| node.requeues, Kind::Counter, "Packets that came back from the driver."),
    ("backlog_bytes", |node| node.backlog, Kind::Gauge, "Bytes that wait."),
    ("queue_length_packets", |node| node.qlen, Kind::Gauge, "Packets that wait."),
];

fn of_program(snapshot: &Snapshot, page: &mut Page) {
    let program = &snapshot.program;
    page.family("txq_program_info", Kind::Gauge, "The program that has the devices.");
    let pid = program.pid.to_string();
    let labels = [("program", program.program.as_str()), ("pid", &pid), ("version", &program.version)];
    page.sample("txq_program_info", &labels, 1);
}

fn of_devices(devices: &[Device], page: &mut Page) {
    for (name, of, kind, help) in DEVICE_ROWS {
        let values = devices.iter().filter_map(|dev| Some((dev, *dev.counters.get(of)?)));
        let values: Vec<_> = values.collect();
        page.rows(&format!("txq_device_{name}"), kind, help, &values, |dev| vec![("dev", dev.name.clone())]);
    }
    let drops = devices.iter().flat_map(|dev| dev.drops.iter().map(move |(why, n)| ((dev, why), *n)));
    let help = "Packets dropped, by reason.";
    page.rows("txq_device_dropped_packets", Kind::Counter, help, &drops.collect::<Vec<_>>(), |(dev, why)| {
        vec![("dev", dev.name.clone()), ("reason", (*why).clone())]
    });
}

fn of_txqs(devices: &[Device], page: &mut Page) {
    for (name, of, kind, help) in TXQ_ROWS {
        let all = devices.iter().flat_map(|dev| dev.txqs.iter().map(move |(txq, own)| (dev, txq, own)));
        let values: Vec<_> = all.filter_map(|(dev, txq, own)| Some(((dev, txq), *own.get(of)?))).collect();
        page.rows(&format!("txq_txq_{name}"), kind, help, &values, |(dev, txq)| {
            vec![("dev", dev.name.clone()), ("txq", txq.to_string())]
        });
    }
}

fn of_senders(devices: &[Device], page: &mut Page) {
    for (name, of, kind, help) in SENDER_ROWS {
        let all = devices.iter().flat_map(|dev| dev.senders.iter().map(move |sender| (dev, sender)));
        let values: Vec<_> = all.filter_map(|at| Some((at, *at.1.counters.get(of)?))).collect();
        page.rows(&format!("txq_sender_{name}"), kind, help, &values, |(dev, sender)| {
            let (name, index) = (sender.name.clone(), sender.index.to_string());
            vec![("dev", dev.name.clone()), ("sender", name), ("index", index)]
        });
    }
    let all = devices.iter().flat_map(|dev| dev.senders.iter().map(move |sender| (dev, sender)));
    let drops: Vec<_> = all
        .flat_map(|(dev, sender)| sender.drops.iter().map(move |(why, n)| ((dev, sender, why), *n)))
        .collect();
    let help = "Packets of the sender that were dropped, by reason.";
    page.rows("txq_sender_drops", Kind::Counter, help, &drops, |(dev, sender, why)| {
        let (name, index) = (sender.name.clone(), sender.index.to_string());
        vec![("dev", dev.name.clone()), ("sender", name), ("index", index), ("reason", (*why).clone())]
    });
}

/// The waits for locks, the failed exchanges on lock-free words, and the queues that an owner leaves to a worker.
fn of_locks(devices: &[Device], page: &mut Page) {
    let offs = devices.iter().filter_map(|dev| Some((dev, *dev.counters.get("hand_offs")?)));
    let help = "Queues with packets in them that an owner left to a worker.";
    page.rows("txq_device_hand_offs", Kind::Counter, help, &offs.collect::<Vec<_>>(), |dev| {
        vec![("dev", dev.name.clone())]
    });
    for (name, of, unit, help) in LOCK {
        let all = devices.iter().flat_map(|dev| dev.locks.iter().map(move |lock| (dev, lock)));
        let values = all.filter_map(|at| Some((at, *at.1.counters.get(of)? as f64 / unit)));
        let values: Vec<_> = values.collect();
        page.rows(&format!("txq_lock_{name}"), Kind::Counter, help, &values, |(dev, lock)| {
            vec![("dev", dev.name.clone()), ("lock", lock.lock.clone()), ("site", lock.site.clone())]
        });
    }
    let retries = devices.iter().flat_map(|dev| dev.retries.iter().map(move |(word, n)| ((dev, word), *n)));
    let help = "Failed exchanges on lock-free words.";
    page.rows("txq_device_retries", Kind::Counter, help, &retries.collect::<Vec<_>>(), |(dev, word)| {
        vec![("dev", dev.name.clone()), ("word", (*word).clone())]
    });
}

/// The metrics of qdiscs, or of classes. Several qdiscs of one device may have the handle 0, as the children of mq: their parents
/// tell them apart.
fn of_nodes(devices: &[Device], class: bool, page: &mut Page) {
    let prefix = if class { "txq_class" } else { "txq_qdisc" };
    let all = devices.iter().flat_map(|dev| dev.tree.iter().map(move |node| (dev, node)));
    let all: Vec<_> = all.filter(|(_, node)| node.class == class).collect();
    let labels = |dev: &Device, node: &Node| {
        let (kind, handle, parent) = (node.kind.clone(), node.handle.clone(), node.parent.clone());
        vec![("dev", dev.name.clone()), ("kind", kind), ("handle", handle), ("parent", parent)]
    };
    for (name, of, kind, help) in NODE {
        let values: Vec<_> = all.iter().map(|&at| (at, of(at.1))).collect();
        page.rows(&format!("{prefix}_{name}"), kind, help, &values, |(dev, node)| labels(dev, node));
    }
    // Not each kind of queue has them, and there are too many for a metric each.
    let more = all.iter().flat_map(|&at| at.1.more.iter().map(move |(name, value)| ((at, name), *value)));
    let help = "The further values of the queue's kind, by tc's names.";
    page.rows(
        &format!("{prefix}_value"),
        Kind::Gauge,
        help,
        &more.collect::<Vec<_>>(),
        |((dev, node), name)| {
            let mut labels = labels(dev, node);
            labels.push(("name", (*name).clone()));
            labels
        },
    );
}

fn of_times(devices: &[Device], page: &mut Page) {
    let all = devices
        .iter()
        .flat_map(|dev| [(dev, "driver", &dev.to_driver), (dev, "completion", &dev.to_completion)]);
    let all = all.map(|(dev, to, times)| (vec![("dev", dev.name.as_str()), ("to", to)], &times[..]));
    let help = "Sampled times from xmit to the driver, and to completion.";
    page.histogram("txq_device_latency_seconds", help, all.collect());
    let all = devices.iter().map(|dev| (vec![("dev", dev.name.as_str())], &dev.lateness[..]));
    let help = "From the time at which a qdisc has a packet to send until it leaves.";
    page.histogram("txq_device_lateness_seconds", help, all.collect());
}

/// Returns the end of the bucket that begins at `min`.
fn end(min: u64) -> u64 {
    min.saturating_mul(2).max(1)
}

/// The text of the metrics.
struct Page {
    text: String,
    format: Format,
}

impl Page {
    /// Begins a metric. OpenMetrics names a counter's family without `_total`.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let suffix = if kind == Kind::Counter && self.format == Format::Prometheus { "_total" } else { "" };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
    }

    /// Writes a histogram with a series for each list of times that is not empty. All series have the same buckets: a query can
    /// add them.
    fn histogram(&mut self, name: &str, help: &str, mut all: Vec<Series<'_>>) {
        all.retain(|(_, times)| !times.is_empty());
        if all.is_empty() {
            return;
        }
        self.family(name, Kind::Histogram, help);
        let ends: BTreeSet<u64> =
            all.iter().flat_map(|(_, times)| times.iter().map(|&(min, _)| end(min))).collect();
        for (labels, times) in all {
            let below =
                |most: u64| times.iter().filter(|&&(min, _)| end(min) <= most).map(|&(_, n)| n).sum::<u64>();
            let bucket = format!("{name}_bucket");
            for &end in &ends {
                let le = (end as f64 / 1e9).to_string();
                self.sample(&bucket, &[&labels[..], &[("le", &le)]].concat(), below(end));
            }
            self.sample(&bucket, &[&labels[..], &[("le", "+Inf")]].concat(), below(u64::MAX));
            // The times are counted by powers of two, so their sum is not known: the middle of a bucket stands for each of its times.
            let sum: f64 = times.iter().map(|&(min, n)| min as f64 * 1.5 * n as f64 / 1e9).sum();
            self.sample(&format!("{name}_sum"), &labels, sum);
            self.sample(&format!("{name}_count"), &labels, below(u64::MAX));
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl ToString) {
        self.text += name;
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {}", value.to_string());
    }

    /// Writes a metric with a sample for each value; nothing without values.
    fn rows<T>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        values: &[(T, impl ToString)],
        labels: impl Fn(&T) -> Vec<(&'static str, String)>,
    ) {
        if values.is_empty() {
            return;
        }
        self.family(name, kind, help);
        let name = if kind == Kind::Counter { format!("{name}_total") } else { name.to_owned() };
        for (of, value) in values {
            let labels = labels(of);
            let labels: Vec<_> = labels.iter().map(|(label, text)| (*label, text.as_str())).collect();
            self.sample(&name, &labels, value.to_string());
        }
    }
}

/// Returns a label's value as both formats want it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
