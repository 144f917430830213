//! Reports of devices with known counters.

use super::*;

/// A device that sent some packets of 100 bytes in a time.
fn device(name: &str, sent: u64, seconds: f64) -> Device {
    Device {
        name: name.to_owned(),
        discipline: discipline(None),
        asked: Asked { text: "max".to_owned(), ..Asked::default() },
        account: Account { packets: sent, bytes: sent * 100, ended: 500_000_000, ..Account::default() },
        seconds,
        stats: DeviceStats { accepted: sent, sent, bytes_sent: sent * 100, ..DeviceStats::default() },
        latency: Default::default(),
        contention: None,
        xmit_times: Log2::new(),
        by_hash: false,
        qdiscs: Vec::new(),
        bands: Vec::new(),
    }
}

/// A run of these devices that ended with the last of them.
fn run(devices: Vec<Device>) -> Report {
    let seconds = devices.iter().map(|device| device.seconds).fold(0.0, f64::max);
    Report { ended: Ended { cause: Cause::Duration, seconds, cpu_seconds: 1.0 }, devices }
}

#[test]
fn a_device_sends_in_its_own_time() {
    let report = run(vec![device("fast", 4000, 0.5), device("slow", 10, 10.0)]);
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
