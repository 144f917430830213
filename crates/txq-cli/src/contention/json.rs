//! The recorded waits as one JSON object: all devices together at the top level, each device in `devices`.

use serde_json::{Map, Value, json};
use txq::stats::contention::Retry;
use txq::stats::contention::{ContentionReport, SiteReport, Spread};

use crate::bars;
use crate::report::{Rates, Report};

pub(super) fn line(report: &Report, all: &ContentionReport) -> Value {
    let mut object = Map::new();
    let sent: u64 = report.devices.iter().map(|device| device.stats.sent).sum();
    object.insert("stopped_by".into(), json!(report.ended.cause.name()));
    object.insert("seconds".into(), json!(report.ended.seconds));
    object.insert("sent".into(), json!(sent));
    object.insert("mpps".into(), json!(Rates::achieved(&report.devices).mpps()));
    recorded(&mut object, all);
    let devices = report.devices.iter().map(|device| {
        let mut part = Map::new();
        part.insert("name".into(), json!(device.name));
        part.insert("discipline".into(), json!(device.discipline));
        part.insert("seconds".into(), json!(device.seconds));
        part.insert("sent".into(), json!(device.stats.sent));
        part.insert("mpps".into(), json!(device.achieved().mpps()));
        recorded(&mut part, device.contention.as_ref().unwrap_or(&ContentionReport::default()));
        Value::Object(part)
    });
    object.insert("devices".into(), devices.collect());
    Value::Object(object)
}

/// Puts the records of `report` into fields of `object`.
pub(crate) fn recorded(object: &mut Map<String, Value>, report: &ContentionReport) {
    object.insert("sites".into(), report.sites.iter().map(site).collect());
    let retries = Retry::ALL.map(|retry| (retry.name().to_owned(), json!(report.retries[retry as usize])));
    object.insert("retries".into(), Value::Object(retries.into_iter().collect()));
    object.insert("drained_packets".into(), bars::json(&report.drained));
    let offs = report.hand_offs;
    object.insert("hand_offs".into(), json!({ "to_worker": offs.to_worker, "to_sender": offs.to_sender }));
}

fn site(row: &SiteReport) -> Value {
    let stats = &row.stats;
    json!({
        "lock": row.lock.name(),
        "class": row.lock.class(),
        "site": row.site.name(),
        "caller": row.site.caller(),
        "acquisitions": stats.acquisitions,
        "contended": stats.contended,
        "acquisition_bounces": stats.acquisition_bounces,
        "contention_bounces": stats.contention_bounces,
        "wait_ns": spread(&stats.wait),
        "waits_ns": bars::json(&stats.waits),
        "hold_ns": spread(&stats.hold),
        "waited_for": stats.held_up,
    })
}

fn spread(times: &Spread) -> Value {
    json!({ "total": times.total, "min": times.min, "max": times.max, "avg": times.mean() })
}
