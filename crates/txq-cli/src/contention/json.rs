//! The recorded waits as one JSON object: all devices together at the top level, each device in `devices`.

use crate::common::contention::recorded;
use serde_json::{Map, Value, json};
use txq::stats::contention::ContentionReport;

use super::Recording;

pub(super) fn line(recording: &Recording) -> Value {
    let mut object = Map::new();
    let sent: u64 = recording.devices.iter().map(|device| device.sent).sum();
    object.insert("stopped_by".into(), json!(recording.stopped_by));
    object.insert("seconds".into(), json!(recording.seconds));
    object.insert("sent".into(), json!(sent));
    object.insert("mpps".into(), json!(recording.mpps));
    recorded(&mut object, &recording.all);
    let devices = recording.devices.iter().map(|device| {
        let mut part = Map::new();
        part.insert("name".into(), json!(device.name));
        part.insert("discipline".into(), json!(device.discipline.map(|discipline| discipline.name())));
        part.insert("seconds".into(), json!(device.seconds));
        part.insert("sent".into(), json!(device.sent));
        part.insert("mpps".into(), json!(device.mpps));
        recorded(&mut part, device.contention.as_ref().unwrap_or(&ContentionReport::default()));
        Value::Object(part)
    });
    object.insert("devices".into(), devices.collect());
    Value::Object(object)
}
