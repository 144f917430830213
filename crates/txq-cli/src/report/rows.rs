//! The rows of senders, of bands and of classes: as tables for people, and as objects of the JSON.

use crate::common::span::Human;
use crate::common::table::align;
use serde_json::{Value, json};
use txq::netdev::BandStats;
use txq::stats::device::{SampledTimes, SenderStats};
use txq::stats::latency::Latency;
use txq::tc::Handle;

use super::Device;
use super::quantile::{P50, P99, nanos};

/// Appends a table of the device's senders, one line each.
pub(super) fn senders(text: &mut String, device: &Device) {
    let rows = &device.stats.senders;
    if rows.is_empty() {
        return;
    }
    let timed = rows.iter().any(|row| row.longest_call.is_some());
    let mut heads = vec!["sender", "accepted", "sent", "dropped", "pending", "no buffer", "at limit"];
    if timed {
        heads.extend(["p50", "p99", "longest xmit"]);
    }
    let cells = rows.iter().map(|row| {
        let counts = [row.accepted, row.sent, row.dropped, row.pending, row.no_buffer, row.at_limit];
        let mut cells = vec![row.name.clone()];
        cells.extend(counts.iter().map(u64::to_string));
        if timed {
            let times = row.latency;
            cells.push(time(times.and_then(|times| P50.known(times.samples, times.p50))));
            cells.push(time(times.and_then(|times| P99.known(times.samples, times.p99))));
            cells.push(time(row.longest_call.map(nanos)));
        }
        cells
    });
    align(text, heads.into_iter().map(str::to_owned).collect(), cells.collect());
}

/// Appends a table of the bands and classes of the device's qdiscs, one line each.
pub(super) fn bands(text: &mut String, device: &Device) {
    if device.bands.is_empty() {
        return;
    }
    let sampled = device.bands.iter().any(|band| band.latency.count() > 0);
    let mut heads = vec!["band or class", "txq", "sent", "dropped", "queued", "backlog"];
    if sampled {
        heads.extend(["p50", "p99"]);
    }
    let cells = device.bands.iter().map(|band| {
        let s = &band.stats;
        let txq = band.txq.map_or("all".into(), |txq| txq.to_string());
        let mut cells = vec![name(band), txq];
        cells.extend([s.packets, s.drops, s.qlen, s.backlog].iter().map(u64::to_string));
        if sampled {
            cells.extend([P50, P99].map(|quantile| time(quantile.of(&band.latency))));
        }
        cells
    });
    align(text, heads.into_iter().map(str::to_owned).collect(), cells.collect());
}

/// Returns a band's name: `pfifo_fast band 0`, `pfifo_fast 8002: band 0`, or a class's: `htb 1:10`.
fn name(band: &BandStats) -> String {
    match band.name.contains(':') || band.qdisc == Handle::UNSPEC {
        true => format!("{} {}", band.kind, band.name),
        false => format!("{} {} {}", band.kind, band.qdisc, band.name),
    }
}

pub(super) fn time(nanos: Option<u64>) -> String {
    nanos.map_or("-".into(), |nanos| Human(nanos).to_string())
}

pub(super) fn sender_json(row: &SenderStats, device: Option<&Device>) -> Value {
    let times = |times: SampledTimes| {
        let [p50, p99] = [P50.known(times.samples, times.p50), P99.known(times.samples, times.p99)];
        json!({ "samples": times.samples, "p50": p50, "p99": p99 })
    };
    let mut object = json!({
        "name": row.name,
        "alive": row.alive,
        "accepted": row.accepted,
        "sent": row.sent,
        "dropped": row.dropped,
        "pending": row.pending,
        "no_buffer": row.no_buffer,
        "at_limit": row.at_limit,
        "latency_ns": row.latency.map(times),
        "measured_calls": row.measured_calls,
        "longest_xmit_ns": row.longest_call.map(nanos),
    });
    put_device(&mut object, device);
    object
}

pub(super) fn band_json(band: &BandStats, device: Option<&Device>) -> Value {
    let times = |latency: &Latency| json!({ "samples": latency.count(), "p50": P50.of(latency), "p99": P99.of(latency) });
    let mut object = json!({
        "kind": band.kind,
        "qdisc": band.qdisc.to_string(),
        "txq": band.txq,
        "name": band.name,
        "sent": band.stats.packets,
        "bytes": band.stats.bytes,
        "dropped": band.stats.drops,
        "queued": band.stats.qlen,
        "backlog": band.stats.backlog,
        "latency_ns": (band.latency.count() > 0).then(|| times(&band.latency)),
    });
    put_device(&mut object, device);
    object
}

/// Puts the device's name into a row, if `device` is given.
fn put_device(object: &mut Value, device: Option<&Device>) {
    if let Some(device) = device {
        object["device"] = json!(device.name);
    }
}
