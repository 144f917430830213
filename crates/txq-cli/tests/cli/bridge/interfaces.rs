//! Interfaces that go down, lose their carrier, go away and come back.

use super::bench::{Bench, FAR, LONG, end};
use crate::support::process::{Running, wait_until};

fn file(kind: &str) -> String {
    format!(
        "[[device]]\nname = \"near\"\n{kind} = {{ interface = \"m0\" }}\nqdisc = \"pfifo limit 50\"\n\
         [[device]]\nname = \"far\"\n{kind} = {{ interface = \"m1\" }}\nqdisc = \"pfifo limit 50\"\n\
         [[bridge]]\ndevices = [\"near\", \"far\"]\n"
    )
}

/// Returns how often the daemon said something.
fn said(text: &str, what: &str) -> usize {
    text.lines().filter(|line| *line == format!("txq: {what}")).count()
}

fn down_and_up(kind: &str) {
    let Some(bench) = Bench::new("an_interface_goes_down_and_up", kind, false) else { return };
    let mut daemon = bench.daemon(&file(kind));
    assert!(bench.answers(LONG));
    for port in ["m0", "m1"] {
        bench.middle.ip(&format!("link set {port} down"));
        daemon.wait_for_text(&format!("interface \"{port}\" is down: `ip link set {port} up`"), LONG);
        bench.middle.ip(&format!("link set {port} up"));
        daemon.wait_for_text(&format!("interface \"{port}\" is up again"), LONG);
        assert!(bench.answers(LONG), "{port}");
    }
    // An interface that comes up has no carrier for a moment; the daemon reports that if it looks then.
    const NO_CARRIER: &str = "interface \"m1\" has no carrier";
    let before = said(&daemon.text(), NO_CARRIER);
    assert!(before <= 1, "{}", daemon.text());
    bench.far.ip("link set e0 down");
    assert!(wait_until(LONG, || said(&daemon.text(), NO_CARRIER) > before), "{}", daemon.text());
    bench.far.ip("link set e0 up");
    assert!(bench.answers(LONG));
    let text = end(daemon);
    // Once each, and nothing else about the same.
    for port in ["m0", "m1"] {
        assert_eq!(
            said(&text, &format!("interface \"{port}\" is down: `ip link set {port} up` starts it")),
            1,
            "{text}"
        );
    }
    assert_eq!(said(&text, NO_CARRIER), before + 1, "{text}");
}

#[test]
fn an_interface_goes_down_and_up() {
    down_and_up("af_packet");
}

#[test]
fn an_interface_of_af_xdp_goes_down_and_up() {
    down_and_up("af_xdp");
}

fn gone_and_back(kind: &str) {
    let Some(bench) = Bench::new("an_interface_goes_and_comes_back", kind, false) else { return };
    let mut daemon = bench.daemon(&file(kind));
    assert!(bench.answers(LONG));
    let sent = bench.counter("far", "tx_packets");
    for _ in 0..2 {
        bench.middle.ip("link del m1");
        daemon.wait_for_text("interface \"m1\" is gone: its bridge waits until it is back", LONG);
        // The bridge forwards into nothing, and says why.
        let _ = bench.near.command("ping").args(["-n", "-c", "2", "-W", "1", "-i", "0.2", FAR]).output();
        bench.connect("m1", &bench.far, FAR, false);
        daemon.wait_for_text("interface \"m1\" is back", LONG);
        assert!(bench.answers(LONG));
    }
    // The device is the same one: its counters go on.
    assert!(bench.counter("far", "tx_packets") > sent);
    bench.ping(20, 1000);
    let text = end(daemon);
    assert_eq!(said(&text, "interface \"m1\" is gone: its bridge waits until it is back"), 2, "{text}");
    assert_eq!(said(&text, "interface \"m1\" is back"), 2, "{text}");
}

#[test]
fn an_interface_goes_and_comes_back() {
    gone_and_back("af_packet");
}

#[test]
fn an_interface_of_af_xdp_goes_and_comes_back() {
    gone_and_back("af_xdp");
}

#[test]
fn a_missing_interface_is_refused_at_the_start() {
    let Some(bench) = Bench::new("a_missing_interface_is_refused_at_the_start", "af_packet", true) else {
        return;
    };
    let path = bench.write(&file("af_packet").replace("m1", "m7"));
    let mut command = bench.middle.command(env!("CARGO_BIN_EXE_txq"));
    let words = ["daemon", "--config", &path, "--socket", &bench.socket()];
    let ended = Running::start(command.args(words)).finish(LONG);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with("txq: there is no interface \"m7\": `ip link` lists"),
        "{}",
        ended.stderr
    );
    assert!(!std::path::Path::new(&bench.socket()).exists());
}
