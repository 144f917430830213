//! The last line that `txq replay --json` prints.

use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Report {
    /// Packets that the senders had to send: accepted, refused for want of a buffer, or missed for want of time.
    pub(crate) offered: u64,
    pub(crate) refused: u64,
    pub(crate) missed: u64,
    pub(crate) accepted: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    pub(crate) queued: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) seconds: f64,
    pub(crate) queues: Vec<Queue>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Report {
    pub(crate) fn of_output(stdout: &str) -> Self {
        let line = stdout.lines().last().unwrap_or_default();
        let json: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let dropped = json["dropped"].as_object().unwrap_or_else(|| panic!("no dropped in {json}"));
        let queues = json["queues"].as_array().unwrap_or_else(|| panic!("no queues in {json}"));
        number(&json, "mpps");
        number_or_null(&json, "ns_per_packet");
        for key in ["p50", "p99", "p999", "max"] {
            number_or_null(&json["latency_ns"], key);
        }
        Self {
            offered: count(&json["offered"], "packets"),
            refused: count(&json["refused"], "packets"),
            missed: count(&json["missed"], "packets"),
            accepted: count(&json, "accepted"),
            sent: count(&json, "sent"),
            dropped: dropped.keys().map(|reason| (reason.clone(), count(&json["dropped"], reason))).collect(),
            queued: count(&json, "queued"),
            bytes_sent: count(&json, "bytes_sent"),
            seconds: number(&json, "seconds"),
            queues: queues
                .iter()
                .map(|queue| Queue { packets: count(queue, "packets"), bytes: count(queue, "bytes") })
                .collect(),
        }
    }

    pub(crate) fn all_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// Checks the sums: every packet offered is handed in, refused or missed; every packet handed in is sent, dropped for a
/// reason, or still queued; and the queues' counters add up to the device's.
#[track_caller]
pub(crate) fn assert_conserved(report: &Report) {
    assert_eq!(report.offered, report.accepted + report.refused + report.missed, "{report:?}");
    assert_eq!(report.accepted, report.sent + report.all_dropped() + report.queued, "{report:?}");
    assert_eq!(report.queues.iter().map(|queue| queue.packets).sum::<u64>(), report.sent, "{report:?}");
    assert_eq!(report.queues.iter().map(|queue| queue.bytes).sum::<u64>(), report.bytes_sent, "{report:?}");
}

fn count(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("no count {key:?} in {json}"))
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("no number {key:?} in {json}"))
}

/// Asserts that the key exists; its value is null where too little was measured.
fn number_or_null(json: &Value, key: &str) {
    assert!(
        json.get(key).is_some_and(|value| value.is_null() || value.is_number()),
        "no number {key:?} in {json}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"offered":{"packets":13},"refused":{"packets":2},"missed":{"packets":1},"accepted":10,"sent":7,"dropped":{"qdisc_drop":2},"queued":1,"bytes_sent":700,
        "seconds":0.5,"mpps":0.1,"ns_per_packet":null,"latency_ns":{"p50":1,"p99":2,"p999":null,"max":4},
        "queues":[{"txq":0,"packets":4,"bytes":400},{"txq":1,"packets":3,"bytes":300}]}"#;

    fn report(replace: &str, with: &str) -> Report {
        Report::of_output(&format!(
            "something said before\n{}\n",
            LINE.replace('\n', "").replace(replace, with)
        ))
    }

    #[test]
    fn the_last_line_is_read() {
        let report = report("", "");
        assert_eq!((report.accepted, report.sent, report.queued, report.bytes_sent), (10, 7, 1, 700));
        assert_eq!(report.dropped["qdisc_drop"], 2);
        assert_conserved(&report);
    }

    #[test]
    #[should_panic(expected = "right: 11")]
    fn a_forgotten_packet_is_found() {
        assert_conserved(&report(r#""queued":1"#, r#""queued":2"#));
    }

    #[test]
    #[should_panic(expected = "left: 14")]
    fn a_forgotten_frame_is_found() {
        assert_conserved(&report(r#""packets":13"#, r#""packets":14"#));
    }

    #[test]
    #[should_panic(expected = "left: 8")]
    fn a_queue_that_miscounts_is_found() {
        assert_conserved(&report(r#""packets":3"#, r#""packets":4"#));
    }

    #[test]
    #[should_panic(expected = "no number \"p999\"")]
    fn a_missing_key_is_found() {
        report("p999", "p998");
    }
}
