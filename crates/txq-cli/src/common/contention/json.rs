//! The recorded waits as fields of a JSON object.

use serde_json::{Map, Value, json};
use txq::stats::contention::{ContentionReport, Retry, SiteReport, Spread};

use crate::common::bars;

/// Puts the records of `report` into fields of `object`.
pub fn recorded(object: &mut Map<String, Value>, report: &ContentionReport) {
    object.insert("sites".into(), report.sites.iter().map(site).collect());
    let retries =
        Retry::ALL.iter().map(|&retry| (retry.name().to_owned(), json!(report.retries[retry as usize])));
    object.insert("retries".into(), Value::Object(retries.into_iter().collect()));
    object.insert("drained_packets".into(), bars::json(&report.drained));
    object.insert("hand_offs".into(), json!(report.hand_offs));
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
