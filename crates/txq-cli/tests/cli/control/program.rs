//! A program of the library, `examples/served.rs`, and a run: re-shaped while they send.

use std::time::Instant;

use serde_json::Value;

use super::{LONG, Place, wait_for};
use crate::support::process::Running;

/// Returns the counters of the root qdisc.
fn counters(place: &Place, to: &str) -> Value {
    let shown = place.good(&format!("tc {to} -s -j qdisc show dev null0 root"));
    let list: Value = serde_json::from_str(&shown).expect("JSON");
    list[0].clone()
}

fn number(counters: &Value, key: &str) -> u64 {
    counters[key].as_u64().unwrap_or_else(|| panic!("{key}: {counters}"))
}

#[test]
fn the_example_is_reshaped_while_it_sends() {
    let place = Place::new();
    let program = place.example("shaper", 600);
    let to = "--name shaper";
    assert_eq!(place.good(&format!("dev {to} show")), "null0: mtu 1500 numtxqueues 1 qdisc pfifo\n");
    wait_for("packets", || number(&counters(&place, to), "packets") > 0);
    // 100 packets of 1000 bytes a second, and the burst. However slow the machine is, the qdisc never sends more than that:
    // its time is measured from before the command to after the reading.
    let (rate, burst) = (100_000, 10_000);
    let before = Instant::now();
    place.good(&format!("tc {to} qdisc replace dev null0 root tbf rate {rate}bps burst {burst} limit 50000"));
    // The program offers a hundred times as much, so the qdisc fills and drops.
    let mut last = Value::Null;
    wait_for("drops", || {
        last = counters(&place, to);
        number(&last, "drops") > 0 && number(&last, "bytes") > burst
    });
    let most = before.elapsed().as_secs_f64() * rate as f64 + burst as f64;
    assert_eq!((last["kind"].as_str(), last["options"]["rate"].as_u64()), (Some("tbf"), Some(rate)));
    assert!(number(&last, "bytes") as f64 <= most, "more than {most} bytes: {last}");
    // A shaper of ten times the rate sends more than the first one could have.
    let faster = rate * 10;
    let before = Instant::now();
    place
        .good(&format!("tc {to} qdisc change dev null0 root tbf rate {faster}bps burst {burst} limit 50000"));
    wait_for("more packets", || {
        let first = before.elapsed().as_secs_f64() * rate as f64 + burst as f64;
        let now = counters(&place, to);
        now["options"]["rate"] == faster && (number(&now, "bytes") - number(&last, "bytes")) as f64 > first
    });
    let shown = place.good(&format!("tc {to} -s qdisc show dev null0"));
    assert!(
        shown.starts_with("qdisc tbf") && shown.contains("rate 8Mbit") && shown.contains("Sent "),
        "{shown}"
    );
    let refused = place.refused(&format!("dev {to} add d0"));
    assert!(refused.contains("makes its own devices"), "{refused}");
    program.signal(libc::SIGKILL);
    drop(program);
}

#[test]
fn the_example_ends_with_its_socket() {
    let place = Place::new();
    let ended = place.example("short", 0).finish(LONG);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!place.socket("short").exists());
    let refused = place.refused("tc --name short qdisc");
    assert!(refused.contains("no txq listens on") && refused.contains("start `txq daemon`"), "{refused}");
    let wrong = place.txq("tc --name ../short qdisc");
    assert!(
        wrong.status.code() == Some(1) && wrong.stderr.contains("cannot name a socket"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn a_run_serves_where_it_is_asked_to() {
    let place = Place::new();
    let path = place.0.path().join("here.sock").display().to_string();
    for (asked, to) in [
        ("--control", String::new()),
        (&format!("--control={path}")[..], format!("--socket {path}")),
        (&format!("--control --socket {path}"), format!("--socket={path}")),
        ("--name mine", "--name=mine".to_owned()),
    ] {
        let running = Running::start(&mut place.command(&format!("run {asked} --quiet --duration 600s")));
        wait_for("the run", || place.txq(&format!("tc {to} qdisc")).status.success());
        place.good(&format!("tc {to} qdisc replace dev null0 root pfifo limit 77"));
        assert!(place.good(&format!("tc {to} qdisc show dev null0")).contains("limit 77p"), "{asked}");
        running.signal(libc::SIGTERM);
        let ended = running.finish(LONG);
        assert!(ended.status.success(), "{asked}: {}", ended.stderr);
    }
    let both = place.txq(&format!("run --control={path} --name x"));
    assert!(both.status.code() == Some(1) && both.stderr.contains("exclude each other"), "{}", both.stderr);
}
