//! Reports of devices with known counters.

use super::*;

/// Returns a device that sent `sent` packets of 100 bytes in `seconds`.
fn device(name: &str, sent: u64, seconds: f64) -> Device {
    let mut stats = DeviceStats::default();
    (stats.accepted, stats.sent, stats.bytes_sent) = (sent, sent, sent * 100);
    Device {
        name: name.to_owned(),
        discipline: Discipline::default(),
        asked: Asked { text: "max".to_owned(), ..Asked::default() },
        account: Account {
            accepted: Count { packets: sent, bytes: sent * 100 },
            until: 500_000_000,
            ended: 500_000_000,
            ..Account::default()
        },
        seconds,
        stats,
        latency: Default::default(),
        lateness: Log2::new(),
        contention: None,
        xmit_times: Log2::new(),
        by_hash: false,
        qdiscs: Vec::new(),
        bands: Vec::new(),
    }
}

/// Returns the report of a run that ended with the last of `devices`.
fn run(devices: Vec<Device>) -> Report {
    let seconds = devices.iter().map(|device| device.seconds).fold(0.0, f64::max);
    Report { ended: Ended { cause: Cause::Duration, seconds, cpu_seconds: 1.0 }, devices }
}

#[test]
fn a_device_sends_in_its_own_time() {
    let report = run(vec![device("fast", 4000, 0.5), device("slow", 1000, 1000.0)]);
    let json = json::line(&report);
    let achieved = |of: &serde_json::Value| of["achieved"]["pps"].as_f64().unwrap();
    let [fast, slow] = [0, 1].map(|index| &json["devices"][index]);
    assert_eq!((achieved(fast), achieved(slow), achieved(&json)), (8000.0, 1.0, 8001.0), "{json}");
    assert_eq!((&fast["mpps"], &fast["seconds"]), (&0.008.into(), &0.5.into()), "{json}");
    assert_eq!((&fast["ns_per_packet"], &slow["ns_per_packet"]), (&125e3.into(), &1e9.into()), "{json}");
    let text = text::lines(&report);
    for part in ["sent 8kpps 6.4Mbit/s", "sent 1pps 800bit/s", "sent 8.001kpps 6.401Mbit/s"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_cost_is_told_of_many_packets_at_max() {
    let mut rated = device("rated", 5000, 1.0);
    rated.asked = Asked { text: "5kpps".to_owned(), pps: Some(5000.0), bps: Some(4e6) };
    // A device without senders.
    let idle = Device { asked: Asked::default(), ..device("idle", 0, 0.0) };
    for (devices, cost) in [
        (
            vec![device("max", 1000, 0.5)],
            "0.002 Mpps, 500000.0 ns per packet by the clock, 1000000.0 ns of CPU time per packet",
        ),
        (vec![device("few", 999, 0.5)], "- (it takes 1000 packets to measure it)"),
        (vec![rated, idle], "- (senders keep to a rate; send at max to measure it)"),
    ] {
        let report = run(devices);
        let (text, json) = (text::lines(&report), json::line(&report));
        assert!(text.contains(&format!("\ncost        {cost}\n")), "{text}");
        for key in ["ns_per_packet", "cpu_ns_per_packet"] {
            assert_eq!(json[key].is_null(), cost.starts_with('-'), "{key} of {json}");
        }
        assert!(json["mpps"].as_f64() > Some(0.0), "{json}");
    }
}
