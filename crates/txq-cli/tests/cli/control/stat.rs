//! `txq stat`: the counters of a program that sends.

use std::collections::HashMap;

use serde_json::Value;

use super::{Place, wait_for};

#[test]
fn the_counters_of_a_running_program_add_up() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let text = || place.good("stat --name shaper");
    let counters = |text: &str| -> HashMap<String, u64> {
        let lines = text.lines().skip(1).filter_map(|line| line.trim().split_once(": "));
        lines.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
    };
    wait_for("packets", || counters(&text())["tx_packets"] > 0);
    place.good("tc --name shaper qdisc replace dev null0 root pfifo limit 0");
    wait_for("drops", || counters(&text()).contains_key("drop_qdisc_overlimit"));
    let text = text();
    assert!(text.starts_with("null0 statistics:\n     tx_packets: "), "{text}");
    let found = counters(&text);
    let drops: u64 = found.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum();
    assert_eq!(found["tx_dropped"], drops, "{text}");
    assert_eq!(found["accepted"], found["tx_packets"] + drops + found["queued"], "{text}");
    assert_eq!((found["tx_queue_0_dropped"], found["tx_queue_0_driver_bugs"]), (0, 0));
    assert!(found["sender_0_main_accepted"] > 0, "{text}");
    let json: Value = serde_json::from_str(&place.good("stat --name shaper null0 --json")).expect("JSON");
    let again = &json[0]["counters"];
    assert_eq!(json[0]["device"], "null0");
    assert!(again["tx_packets"].as_u64() >= Some(found["tx_packets"]), "{json}");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let refused = place.refused("stat --name shaper d7");
    assert!(
        refused.contains("Cannot find device \"d7\"") && refused.contains("there are null0"),
        "{refused}"
    );
}
