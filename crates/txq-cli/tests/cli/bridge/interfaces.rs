//! Interfaces that go down, lose their carrier, go away and come back.

use super::bench::{Bench, FAR, LONG, end};
use crate::support::process::{Running, run, wait_until};

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
    // An interface that comes up has no carrier for a moment; the daemon reports that if it checks then.
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

/// Sets the MTU of both pairs.
fn set_mtu(bench: &Bench, mtu: u32) {
    for (end, port) in [(&bench.near, "e0"), (&bench.far, "e0"), (&bench.middle, "m0"), (&bench.middle, "m1")]
    {
        end.ip(&format!("link set {port} mtu {mtu}"));
    }
}

/// Long frames pass if the MTU is `large` at the start, and if it becomes `large` later.
fn follows_mtu(kind: &str, large: u32) {
    let Some(bench) = Bench::new("a_bridge_follows_the_mtu", kind, false) else { return };
    let size = large - 28;
    set_mtu(&bench, large);
    let daemon = bench.daemon(&file(kind));
    assert!(bench.answers(LONG));
    bench.ping(5, size);
    end(daemon);
    set_mtu(&bench, 1500);
    let daemon = bench.daemon(&file(kind));
    assert!(bench.answers(LONG));
    bench.txq("tc qdisc replace dev far root handle 7: pfifo limit 77").good();
    set_mtu(&bench, large);
    // Meanwhile the device may be absent.
    let is_told = || bench.txq("dev show far").out.contains(&format!("mtu {large} "));
    assert!(wait_until(LONG, is_told), "{}", daemon.text());
    assert!(wait_until(LONG, || daemon.text().contains("\"far\" is opened anew")), "{}", daemon.text());
    assert!(bench.answers(LONG));
    bench.ping(5, size);
    let is_kept = || bench.txq("tc qdisc show dev far").out.contains("qdisc pfifo 7: root");
    assert!(wait_until(LONG, is_kept), "{}", daemon.text());
    end(daemon);
}

#[test]
fn a_bridge_follows_the_mtu() {
    follows_mtu("af_packet", 9000);
}

#[test]
fn a_bridge_of_af_xdp_follows_the_mtu() {
    follows_mtu("af_xdp", 3000);
}

#[test]
fn frames_beyond_those_of_af_xdp_are_said_and_counted() {
    let Some(bench) = Bench::new("frames_beyond_those_of_af_xdp_are_said_and_counted", "af_xdp", false)
    else {
        return;
    };
    set_mtu(&bench, 9000);
    let mut daemon = bench.daemon(&file("af_xdp"));
    daemon.wait_for_text("those of more than 3840 are dropped (rx_length_errors): af_xdp takes", LONG);
    assert!(bench.answers(LONG));
    let traced = bench.trace_too_long();
    let words = ["-n", "-c", "3", "-W", "1", "-i", "0.2", "-s", "8000", FAR];
    let done = bench.near.command("ping").args(words).output().expect("ping");
    assert!(!done.status.success());
    assert!(wait_until(LONG, || bench.counter("near", "rx_length_errors") >= 3));
    // A trace says what has no event, and the doctor what to change.
    traced.signal(libc::SIGINT);
    let said = traced.finish(LONG).stderr;
    assert!(said.contains("device \"near\" dropped") && said.contains("they have no event"), "{said}");
    let mut doctor = bench.middle.command(env!("CARGO_BIN_EXE_txq"));
    let examined = run(doctor.args(["doctor", "m0", "--socket", &bench.socket()]));
    let told = examined.split("near, a device of txq daemon, process ").nth(1);
    assert!(
        told.is_some_and(|told| told.contains("received frames were longer than its buffers")),
        "{examined}"
    );
    end(daemon);
}

#[test]
fn an_interface_that_is_absent_at_the_start_is_waited_for() {
    for kind in ["af_packet", "af_xdp"] {
        let test = "an_interface_that_is_absent_at_the_start_is_waited_for";
        let Some(bench) = Bench::new(test, kind, false) else { return };
        bench.middle.ip("link del m1");
        let mut daemon = bench.daemon(&file(kind));
        daemon.wait_for_text("interface \"m1\" does not exist: its device waits for it", LONG);
        bench.connect("m1", &bench.far, FAR, false);
        daemon.wait_for_text("interface \"m1\" is there", LONG);
        assert!(bench.answers(LONG), "{}", daemon.text());
        end(daemon);
    }
}

/// The kernel's answers and a second bridge are said; both bridges go on.
#[test]
fn others_that_receive_the_same_frames_are_said() {
    let test = "others_that_receive_the_same_frames_are_said";
    let Some(bench) = Bench::new(test, "af_packet", false) else { return };
    let first = bench.daemon(&file("af_packet"));
    assert!(!first.text().contains("too"), "{}", first.text());
    bench.middle.ip("addr add 10.99.0.1/24 dev m1");
    let other = bench.folder.path().join("other.sock").display().to_string();
    let mut command = bench.middle.command(env!("CARGO_BIN_EXE_txq"));
    let mut second = Running::start(command.args(["bridge", "m0", "m1", "--socket", &other]));
    second.wait_for_text("listening on", LONG);
    let text = end(second);
    for port in ["m0", "m1"] {
        assert!(text.contains(&format!("interface \"{port}\" is bridged by another txq, too")), "{text}");
        let told = text.contains(&format!("interface \"{port}\" has an IP address"));
        assert_eq!(told, port == "m1", "{text}");
    }
    end(first);
}

#[test]
fn a_missing_interface_is_refused_by_strict() {
    let Some(bench) = Bench::new("a_missing_interface_is_refused_by_strict", "af_packet", true) else {
        return;
    };
    let path = bench.write(&file("af_packet").replace("m1", "m7"));
    let mut command = bench.middle.command(env!("CARGO_BIN_EXE_txq"));
    let words = ["daemon", "--strict", "--config", &path, "--socket", &bench.socket()];
    let ended = Running::start(command.args(words)).finish(LONG);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with("txq: there is no interface \"m7\": `ip link` lists"),
        "{}",
        ended.stderr
    );
    assert!(!std::path::Path::new(&bench.socket()).exists());
}
