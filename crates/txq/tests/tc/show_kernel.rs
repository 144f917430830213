//! `txq::tc::show_text` and `show_json` compared with the real tc: the kernel's qdiscs are read from tc's JSON, and our
//! output must be the same byte for byte, as text and as JSON.

use crate::netns::{DEV, Netns};
use serde_json::Value;
use txq::stats::QdiscStats;
use txq::tc::{Handle, Micros, Options, QdiscInfo, Rate, Size, Style, show_json, show_text};

#[test]
fn packet_fifos_are_shown_as_tc_shows_them() {
    let fifos: [&[&str]; 3] =
        [&["pfifo", "limit", "50"], &["handle", "7:", "pfifo", "limit", "4294967295"], &["pfifo_fast"]];
    check_roots("pfifo", &fifos);
}

#[test]
fn byte_fifos_are_shown_as_tc_shows_them() {
    let fifos: [&[&str]; 4] = [
        &["bfifo"],
        &["bfifo", "limit", "10k"],
        &["bfifo", "limit", "4294966272"],
        &["bfifo", "limit", "50"],
    ];
    check_roots("bfifo", &fifos);
}

#[test]
fn shapers_are_shown_as_tc_shows_them() {
    let shapers: [&[&str]; 3] = [
        &["htb", "default", "0x1f"],
        &["tbf", "rate", "8kbit", "burst", "2k", "limit", "30000"],
        &["tbf", "rate", "1gibit", "burst", "200k", "latency", "67.7ms"],
    ];
    check_roots("shapers", &shapers);
}

/// Compares each root qdisc in a namespace of this name, after packets were sent.
fn check_roots(name: &str, roots: &[&[&str]]) {
    let Some(netns) = Netns::new(name) else { return };
    for words in roots {
        netns.delete();
        if netns.replace(&[&["root"], *words].concat()) {
            let sent = send(&netns);
            let stats = check(&netns, &words.join(" "));
            assert!(
                !sent || stats.packets + stats.drops > 0,
                "{words:?}: the packets were not counted: {stats:?}"
            );
        }
    }
}

#[test]
fn noqueue_and_mq_are_shown_as_tc_shows_them() {
    let Some(netns) = Netns::new("mq") else { return };
    check(&netns, "noqueue");
    netns.delete();
    if netns.replace(&["root", "handle", "1:", "mq"]) {
        send(&netns);
        check(&netns, "mq");
        netns.replace(&["parent", "1:2", "handle", "20:", "pfifo", "limit", "7"]);
        netns.replace(&["parent", "1:3", "bfifo", "limit", "30000"]);
        send(&netns);
        check(&netns, "mq with children");
    }
}

/// Sends packets for the counters, to a neighbour that never answers; returns false where there is no ping.
fn send(netns: &Netns) -> bool {
    // Few, because ping waits while the slow shaper holds as many bytes as its socket may have in flight.
    let ping = ["-q", "-c", "5", "-l", "5", "-W", "0.1", "-s", "1000", "192.0.2.2"];
    let sent = !netns.run("ping", &ping).stdout.is_empty();
    if !sent {
        println!("SKIP sending: no ping");
    }
    sent
}

/// Compares every form of `tc qdisc show` for the attached qdiscs. Returns the counters of the device's first qdisc.
fn check(netns: &Netns, what: &str) -> QdiscStats {
    let mut counters = QdiscStats::default();
    for iec in [&[][..], &["-iec"]] {
        for stats in [&[][..], &["-s"]] {
            for place in [&["qdisc", "show"][..], &["qdisc", "show", "dev", DEV]] {
                let style = Style { iec: !iec.is_empty(), ..Style::default() };
                let (text, json) = still(netns, &[iec, stats].concat(), place);
                let qdiscs = infos(&json, style);
                assert_eq!(show_text(&qdiscs, !stats.is_empty()), text, "{what}: text");
                assert_eq!(format!("{}\n", show_json(&qdiscs, !stats.is_empty())), json, "{what}: JSON");
                counters = qdiscs[0].stats;
            }
        }
    }
    counters
}

/// Returns tc's text and JSON of the same moment: a packet may leave between two calls.
fn still(netns: &Netns, flags: &[&str], place: &[&str]) -> (String, String) {
    let json_args = [&["-j"], flags, place].concat();
    for _ in 0..100 {
        let before = netns.tc(&json_args);
        let text = netns.tc(&[flags, place].concat());
        if netns.tc(&json_args) == before {
            return (text, before);
        }
    }
    panic!("tc's output does not stand still");
}

fn infos(json: &str, style: Style) -> Vec<QdiscInfo> {
    let json: Value = serde_json::from_str(json).unwrap();
    json.as_array().unwrap().iter().map(|qdisc| info(qdisc, style)).collect()
}

fn info(qdisc: &Value, style: Style) -> QdiscInfo {
    let text = |key: &str| qdisc[key].as_str().map(str::to_owned);
    let number = |key: &str| qdisc[key].as_u64().unwrap_or(0);
    let kind = text("kind").unwrap();
    let handle = Handle::parse_qdisc(&text("handle").unwrap()).unwrap();
    let parent = text("parent").map_or(Handle::ROOT, |parent| Handle::parse_parent(&parent).unwrap());
    let mut info = QdiscInfo::new(&kind, handle, parent, style);
    info.dev = text("dev");
    info.refcnt = qdisc["refcnt"].as_u64().unwrap_or(1) as u32;
    info.options = options(&kind, &qdisc["options"], style);
    info.stats = QdiscStats {
        bytes: number("bytes"),
        packets: number("packets"),
        drops: number("drops"),
        overlimits: number("overlimits"),
        requeues: number("requeues"),
        backlog: number("backlog"),
        qlen: number("qlen"),
    };
    info
}

/// Returns the parameters as a qdisc's own code would write them.
fn options(kind: &str, json: &Value, style: Style) -> Options {
    let number = |key: &str| json[key].as_u64().unwrap();
    let mut options = Options::new(style);
    match kind {
        "pfifo" => {
            options.packets("limit", number("limit"));
        }
        "bfifo" => {
            options.size("limit", Size(number("limit") as u32));
        }
        "pfifo_fast" => {
            let priomap: Vec<u64> =
                json["priomap"].as_array().unwrap().iter().map(|band| band.as_u64().unwrap()).collect();
            options.number("bands", number("bands")).list("priomap", &priomap).json_only("multiqueue", false);
        }
        "tbf" => {
            options.rate("rate", Rate(number("rate"))).size("burst", Size(number("burst") as u32));
            options.micros("lat", Micros(number("lat") as u32)).end_blank();
        }
        "htb" => {
            let default = json["default"].as_str().unwrap();
            options.number("r2q", number("r2q")).put("default", default, format_args!("default {default}"));
            options.number("direct_packets_stat", number("direct_packets_stat"));
            options.number("direct_qlen", number("direct_qlen"));
        }
        "mq" | "noqueue" => {}
        other => panic!("no parameters known for {other}"),
    }
    options
}
