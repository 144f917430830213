//! The counters of a device in one flat list, as `ethtool -S` prints those of a card.

use serde::{Deserialize, Serialize};
use txq::NetDev;
use txq::drop::DropCounts;
use txq::stats::contention::Retry;
use txq::stats::device::{DeviceStats, QueueStats, SenderStats};

use crate::answer::{Answer, absent};
use crate::devices::Devices;

/// The counters of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counters {
    /// The device's name.
    pub device: String,
    /// Names and values: those of the device, then of each txq, of each sender, and the drops by reason. The names are those of
    /// `docs/control.md`; later versions may have more.
    pub counters: Vec<(String, u64)>,
}

impl Counters {
    fn of(dev: &NetDev, devices: &Devices) -> Self {
        let stats = dev.stats();
        let mut counters = Vec::new();
        of_device(&stats, &mut counters);
        of_machinery(dev, &mut counters);
        of_locks(dev, &mut counters);
        counters.extend(devices.more(&dev.info().name));
        stats.queues.iter().for_each(|queue| of_queue(queue, &mut counters));
        (0..).zip(&stats.senders).for_each(|(n, sender)| of_sender(n, sender, &mut counters));
        counters.extend(drops("", &stats.dropped));
        Self { device: dev.info().name.clone(), counters }
    }
}

/// Appends counters whose names begin with `prefix`.
fn add<const N: usize>(counters: &mut Vec<(String, u64)>, prefix: &str, own: [(&str, u64); N]) {
    counters.extend(own.map(|(name, value)| (format!("{prefix}{name}"), value)));
}

fn of_device(stats: &DeviceStats, counters: &mut Vec<(String, u64)>) {
    let own = [
        ("tx_packets", stats.sent),
        ("tx_bytes", stats.bytes_sent),
        ("tx_dropped", stats.dropped.total()),
        ("accepted", stats.accepted),
        ("created", stats.created),
        ("queued", stats.queued),
        ("requeues", stats.requeues),
        ("in_flight", stats.in_flight),
        ("hand_offs", stats.hand_offs),
    ];
    add(counters, "", own);
}

/// The device's state, its pool and its workers.
fn of_machinery(dev: &NetDev, counters: &mut Vec<(String, u64)>) {
    let pool = dev.pool();
    let own = [
        ("active", dev.is_active().into()),
        ("mtu", dev.mtu().into()),
        ("pool_buffers", pool.buffers().into()),
        ("pool_max_buffers", pool.max_buffers().into()),
        ("pool_backlog", pool.backlog()),
        ("pool_defer_max", pool.defer_max().into()),
        ("worker_restarts", dev.worker_restarts()),
    ];
    add(counters, "", own);
}

/// The waits for locks and the failed exchanges on lock-free words, while the device records them.
fn of_locks(dev: &NetDev, counters: &mut Vec<(String, u64)>) {
    let Some(report) = dev.contention().filter(|_| dev.is_recording_contention()) else { return };
    // A name has no underscore, which stands between the parts of a counter's.
    let plain = |name: &str| name.replace(' ', "-");
    for row in &report.sites {
        let prefix = format!("lock_{}_{}_", plain(row.lock.name()), plain(row.site.name()));
        let own = [
            ("acquisitions", row.stats.acquisitions),
            ("contended", row.stats.contended),
            ("wait_ns", row.stats.wait.total),
            ("hold_ns", row.stats.hold.total),
            ("held_up", row.stats.held_up),
        ];
        add(counters, &prefix, own);
    }
    for &retry in Retry::ALL {
        counters.push((format!("retries_{}", plain(retry.name())), report.retries[retry as usize]));
    }
}

fn of_queue(queue: &QueueStats, counters: &mut Vec<(String, u64)>) {
    let (own, prefix) = (&queue.counters, format!("tx_queue_{}_", queue.txq));
    let all = [
        ("packets", own.packets),
        ("bytes", own.bytes),
        ("handed_on", own.handed_on),
        ("batches", own.batches),
        ("dropped", own.dropped),
        ("stops", own.stops),
        ("tx_timeout", own.tx_timeout),
        ("driver_bugs", own.driver_bugs),
        ("invented", own.invented),
        ("in_flight", queue.in_flight.into()),
        ("stopped", queue.stopped.into()),
    ];
    add(counters, &prefix, all);
    if let Some(bql) = &queue.bql {
        let (limit, inflight) = (bql.limit.into(), bql.inflight.into());
        let stalls = bql.stall_cnt.into();
        add(counters, &prefix, [("bql_limit", limit), ("bql_inflight", inflight), ("bql_stall_cnt", stalls)]);
    }
}

/// Senders are numbered in the order of their creation, since several may have one name.
fn of_sender(n: usize, sender: &SenderStats, counters: &mut Vec<(String, u64)>) {
    let own = [
        ("accepted", sender.accepted),
        ("sent", sender.sent),
        ("dropped", sender.dropped),
        ("pending", sender.pending),
        ("no_buffer", sender.no_buffer),
        ("at_limit", sender.at_limit),
    ];
    let prefix = format!("sender_{n}_{}_", sender.name);
    add(counters, &prefix, own);
    counters.extend(drops(&prefix, &sender.drops));
}

/// Returns a counter for each reason with drops, whose names begin with `prefix`.
fn drops(prefix: &str, counts: &DropCounts) -> impl Iterator<Item = (String, u64)> {
    counts.iter().map(move |(reason, n)| (format!("{prefix}drop_{}", reason.name().to_lowercase()), n))
}

/// Returns the counters of a device, or of all devices.
pub(crate) fn stat(devices: &Devices, dev: Option<&str>) -> Answer {
    let found: Vec<_> = devices.handles(dev).iter().map(|dev| Counters::of(dev, devices)).collect();
    absent(devices, dev, found.is_empty()).unwrap_or_else(|| Answer::of(found))
}
