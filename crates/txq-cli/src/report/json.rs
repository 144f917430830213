//! The report as one JSON object: totals at the top level, each device in `devices`.

use serde_json::{Map, Value, json};
use txq::bql::Attr;
use txq::stats::device::QueueStats;
use txq::stats::latency::Latency;
use txq::tc;

use super::quantile::{P50, P90, P99, P999, nanos};
use super::{Device, Ended, Rates, Report, Totals, rows};

/// Returns the whole report as an object.
pub(super) fn line(report: &Report) -> Value {
    let Ended { cause, seconds, cpu_seconds } = report.ended;
    let all = Totals::of(&report.devices);
    let mut object = Map::new();
    object.insert("stopped_by".into(), json!(cause.name()));
    object.insert("seconds".into(), json!(seconds));
    object.insert("cpu_seconds".into(), json!(cpu_seconds));
    object.insert(
        "cpu_ns_per_packet".into(),
        json!(all.ns_per_packet().ok().map(|_| cpu_seconds * 1e9 / all.sent as f64)),
    );
    totals(&mut object, &all);
    let disciplines: Vec<&str> = report.devices.iter().map(|device| device.discipline.name()).collect();
    let same = disciplines.iter().all(|discipline| *discipline == disciplines[0]);
    object.insert("discipline".into(), if same { json!(disciplines[0]) } else { json!(disciplines) });
    let several = report.devices.len() > 1;
    let queues = report
        .devices
        .iter()
        .flat_map(|d| d.stats.queues.iter().map(move |q| queue(q, several.then_some(d))));
    object.insert("queues".into(), queues.collect());
    let senders = |d| of(d, several, |d: &Device| &d.stats.senders, rows::sender_json);
    object.insert("senders".into(), report.devices.iter().flat_map(senders).collect());
    let bands = |d| of(d, several, |d: &Device| &d.bands, rows::band_json);
    object.insert("bands".into(), report.devices.iter().flat_map(bands).collect());
    let qdiscs: Vec<_> = report.devices.iter().flat_map(|device| device.qdiscs.clone()).collect();
    object.insert("qdiscs".into(), tc::show_json(&qdiscs, true));
    object.insert("devices".into(), report.devices.iter().map(part).collect());
    Value::Object(object)
}

/// Returns the rows of a device; each row names the device if the run has `several`.
fn of<T>(
    device: &Device,
    several: bool,
    rows: fn(&Device) -> &Vec<T>,
    row: fn(&T, Option<&Device>) -> Value,
) -> Vec<Value> {
    rows(device).iter().map(|r| row(r, several.then_some(device))).collect()
}

fn part(device: &Device) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), json!(device.name));
    object.insert("discipline".into(), json!(device.discipline.name()));
    object.insert("seconds".into(), json!(device.seconds));
    totals(&mut object, &Totals::of(std::slice::from_ref(device)));
    object.insert("queues".into(), device.stats.queues.iter().map(|stats| queue(stats, None)).collect());
    object.insert("senders".into(), of(device, false, |d| &d.stats.senders, rows::sender_json).into());
    object.insert("bands".into(), of(device, false, |d| &d.bands, rows::band_json).into());
    object.insert("qdiscs".into(), tc::show_json(&device.qdiscs, true));
    Value::Object(object)
}

fn totals(object: &mut Map<String, Value>, all: &Totals) {
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("accepted", json!(all.accepted));
    put("copied", json!(all.created));
    put("sent", json!(all.sent));
    let dropped = all.dropped.iter().map(|(reason, packets)| (reason.name().to_owned(), json!(packets)));
    put("dropped", Value::Object(dropped.collect()));
    put("queued", json!(all.queued));
    put("bytes_sent", json!(all.bytes_sent));
    put("mpps", json!(all.achieved.mpps()));
    put("ns_per_packet", json!(all.ns_per_packet().ok()));
    let account = &all.account;
    put("asked", json!({ "rate": all.asked.text, "pps": all.asked.pps, "bps": all.asked.bps }));
    for (key, count) in
        [("offered", account.offered()), ("refused", account.refused), ("missed", account.missed)]
    {
        let mut object = rates(all.offering(count));
        (object["packets"], object["bytes"]) = (json!(count.packets), json!(count.bytes));
        put(key, object);
    }
    put("achieved", rates(all.achieved));
    put("behind_ns", json!({ "max": account.behind_max, "last": account.behind_last }));
    put("waits_for_buffers", json!(account.held));
    put("latency_ns", latency(&all.latency.to_driver));
    put("completion_latency_ns", latency(&all.latency.to_completion));
}

fn rates(rates: Rates) -> Value {
    json!({ "pps": rates.pps, "bps": rates.bps })
}

/// Returns samples, quantiles and the maximum; null for a quantile of too few samples, and for the maximum of none.
fn latency(latency: &Latency) -> Value {
    let mut object = json!({ "samples": latency.count() });
    for quantile in [P50, P90, P99, P999] {
        object[quantile.key] = json!(quantile.of(latency));
    }
    object["max"] = json!(latency.max().map(nanos));
    object
}

fn queue(stats: &QueueStats, of: Option<&Device>) -> Value {
    let mut object = Map::new();
    if let Some(device) = of {
        object.insert("device".into(), json!(device.name));
    }
    let counters = &stats.counters;
    for (key, value) in [
        ("txq", u64::from(stats.txq)),
        ("packets", counters.packets),
        ("bytes", counters.bytes),
        ("batches", counters.batches),
        ("dropped", counters.dropped),
        ("stops", counters.stops),
        ("tx_timeout", counters.tx_timeout),
        ("driver_bugs", counters.driver_bugs),
        ("invented", counters.invented),
        ("in_flight", u64::from(stats.in_flight)),
    ] {
        object.insert(key.into(), json!(value));
    }
    if let Some(bql) = stats.bql {
        let files = Attr::ALL.iter().map(|&attr| (attr.name().to_owned(), json!(bql.get(attr))));
        object.insert("byte_queue_limits".into(), Value::Object(files.into_iter().collect()));
        object.insert("bql_needed".into(), json!(bql.needed));
        object.insert("bql_gain".into(), json!(f64::from(bql.gain) / 100.0));
    }
    Value::Object(object)
}
