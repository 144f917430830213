//! `txq trace` of a bridge under ping and iperf3: the steps of real packets, and a capture that tcpdump reads.

use std::process::Command;

use serde_json::Value;

use super::bench::{Bench, FAR, LONG, NEAR, end};
use crate::support::process::{Running, run};

const FILE: &str = "[[device]]\nname = \"near\"\naf_packet = { interface = \"m0\" }\nqdisc = \"fq_codel\"\n\
                    [[device]]\nname = \"far\"\naf_packet = { interface = \"m1\" }\nqdisc = \"pfifo limit 100\"\n\
                    [[bridge]]\ndevices = [\"near\", \"far\"]\n";

fn start(bench: &Bench, words: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    command.args(["trace", "--socket", &bench.socket()]).args(words.split_whitespace());
    let mut running = Running::start(&mut command);
    running.wait_for_text("txq: tracing", LONG);
    running
}

/// Ends a trace; returns its lines.
#[track_caller]
fn stop(running: Running) -> Vec<String> {
    running.signal(libc::SIGINT);
    let ended = running.finish(LONG);
    assert!(ended.status.success() && ended.stderr.trim_end().ends_with(", 0 lost"), "{}", ended.stderr);
    ended.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn a_ping_is_traced_and_captured() {
    let Some(bench) = Bench::new("a_ping_is_traced_and_captured", "af_packet", false) else { return };
    let daemon = bench.daemon(FILE);
    assert!(bench.answers(LONG));
    let capture = bench.folder.path().join("trace.pcapng").display().to_string();
    let text = start(&bench, &format!("-i far icmp and src host {NEAR}"));
    let json = start(&bench, &format!("--json --event net_dev_start_xmit icmp and host {NEAR}"));
    let file = start(&bench, &format!("-i far --event qdisc_dequeue -w {capture} icmp"));
    let other = start(&bench, "tcp or udp");
    bench.ping(10, 100);
    let flow = format!("{NEAR} > {FAR} icmp");
    // Each of the ten requests (with 100 bytes behind its header) goes through the far device, and each answer through the near one.
    let (text, json) = (stop(text), stop(json));
    for event in [" qdisc_enqueue ", " qdisc_dequeue ", " net_dev_start_xmit "] {
        let of: Vec<_> = text.iter().filter(|line| line.contains(event)).collect();
        assert_eq!(of.len(), 10, "{text:#?}");
        assert!(of.iter().all(|line| line.contains(" far:0 ") && line.contains(&flow)), "{text:#?}");
        assert!(of.iter().all(|line| line.contains(" len 142 ")), "{text:#?}");
    }
    assert_eq!(text.len(), 30, "{text:#?}");
    let json: Vec<Value> = json.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (dev, src) in [("far", NEAR), ("near", FAR)] {
        let is = |line: &&Value| line["dev"] == dev && line["src"] == src && line["proto"] == "icmp";
        assert_eq!(json.iter().filter(is).count(), 10, "{json:?}");
    }
    assert_eq!(json.last().map(|last| last["events"].as_u64()), Some(Some(20)));
    assert_eq!(stop(file).len(), 0);
    let read = run(Command::new("tcpdump").args(["-n", "-r", &capture]));
    let requests =
        read.lines().filter(|line| line.contains(&format!("IP {NEAR} > {FAR}: ICMP echo request")));
    assert_eq!(requests.count(), 10, "{read}");
    assert_eq!(stop(other).len(), 0);
    drop(end(daemon));
}

/// A shaped direction is full: the drops that a trace shows are those that the device counts, with their reason and flow.
#[test]
fn drops_are_those_of_the_counters() {
    let Some(bench) = Bench::new("drops_are_those_of_the_counters", "af_packet", false) else { return };
    let daemon = bench.daemon(FILE);
    assert!(bench.answers(LONG));
    bench.txq("tc qdisc replace dev far root handle 9: tbf rate 2mbit burst 5k limit 10k").good();
    let trace = start(&bench, "-i far --event kfree_skb --handle 9:");
    bench.iperf3("-u -b 10M -l 1000 -t 1");
    bench.assert_explained("near", "far");
    let dropped = bench.counter("far", "tx_dropped");
    let lines = stop(trace);
    assert_eq!(lines.len() as u64, dropped, "{:?}", lines.first());
    assert!(dropped > 0);
    for line in &lines {
        assert!(
            line.contains(" far:0 9: kfree_skb len ") && line.contains(" reason QDISC_OVERLIMIT"),
            "{line}"
        );
    }
    assert!(lines.iter().any(|line| line.contains(&format!(" > {FAR}.5201 udp "))), "{:?}", lines.first());
    drop(end(daemon));
}
