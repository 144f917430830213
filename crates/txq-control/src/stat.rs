//! The counters of a device in one flat list, as `ethtool -S` prints those of a card.

use serde::{Deserialize, Serialize};
use txq::NetDev;
use txq::stats::device::{DeviceStats, QueueStats, SenderStats};

use crate::answer::Answer;
use crate::devices::Devices;
use crate::record::absent;

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
    fn of(dev: &NetDev) -> Self {
        let stats = dev.stats();
        let mut counters = of_device(&stats);
        stats.queues.iter().for_each(|queue| of_queue(queue, &mut counters));
        (0..).zip(&stats.senders).for_each(|(n, sender)| of_sender(n, sender, &mut counters));
        let drops = stats.dropped.iter().map(|(reason, n)| (format!("drop_{reason}").to_lowercase(), n));
        counters.extend(drops);
        Self { device: dev.info().name.clone(), counters }
    }
}

fn of_device(stats: &DeviceStats) -> Vec<(String, u64)> {
    let counters = [
        ("tx_packets", stats.sent),
        ("tx_bytes", stats.bytes_sent),
        ("tx_dropped", stats.dropped.total()),
        ("accepted", stats.accepted),
        ("created", stats.created),
        ("queued", stats.queued),
        ("requeues", stats.requeues),
        ("in_flight", stats.in_flight),
    ];
    counters.map(|(name, value)| (name.to_owned(), value)).into()
}

fn of_queue(queue: &QueueStats, counters: &mut Vec<(String, u64)>) {
    let own = &queue.counters;
    let mut add = |name: &str, value| counters.push((format!("tx_queue_{}_{name}", queue.txq), value));
    add("packets", own.packets);
    add("bytes", own.bytes);
    add("batches", own.batches);
    add("dropped", own.dropped);
    add("stops", own.stops);
    add("tx_timeout", own.tx_timeout);
    add("driver_bugs", own.driver_bugs);
    add("invented", own.invented);
    add("in_flight", queue.in_flight.into());
    add("stopped", queue.stopped.into());
    if let Some(bql) = &queue.bql {
        add("bql_limit", bql.limit.into());
        add("bql_inflight", bql.inflight.into());
        add("bql_stall_cnt", bql.stall_cnt.into());
    }
}

/// Senders are numbered in the order of their creation, since several may have one name.
fn of_sender(n: usize, sender: &SenderStats, counters: &mut Vec<(String, u64)>) {
    let mut add = |name: &str, value| counters.push((format!("sender_{n}_{}_{name}", sender.name), value));
    add("accepted", sender.accepted);
    add("sent", sender.sent);
    add("dropped", sender.dropped);
    add("pending", sender.pending);
    add("no_buffer", sender.no_buffer);
    add("at_limit", sender.at_limit);
}

/// Returns the counters of a device, or of all devices.
pub(crate) fn stat(devices: &Devices, dev: Option<&str>) -> Answer {
    let found: Vec<_> = devices.handles(dev).iter().map(|dev| Counters::of(dev)).collect();
    absent(devices, dev, found.is_empty()).unwrap_or_else(|| Answer::of(found))
}
