//! The recorded waits as one JSON object: all devices together at the top level, each device in `devices`.

use serde_json::{Map, Value, json};
use txq::stats::contention::ContentionReport;
use txq_cli_common::contention::recorded;

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
        part.insert("discipline".into(), json!(device.discipline.name()));
        part.insert("seconds".into(), json!(device.seconds));
        part.insert("sent".into(), json!(device.stats.sent));
        part.insert("mpps".into(), json!(device.achieved().mpps()));
        recorded(&mut part, device.contention.as_ref().unwrap_or(&ContentionReport::default()));
        Value::Object(part)
    });
    object.insert("devices".into(), devices.collect());
    Value::Object(object)
}
