use std::io::Write;
use std::process::{Command, Stdio};

use txq_control::Info;

use super::*;
use crate::watch::snapshot::{Lock, Sender};

fn snapshot() -> Snapshot {
    let text = r#"{"program":"p \"q\"","pid":7,"version":"0.1.0","protocol":1,"devices":[]}"#;
    let program: Info = serde_json::from_str(text).unwrap();
    let counted = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
    let node = |class, kind: &str, handle: &str, parent: &str| Node {
        class,
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        parent: parent.to_owned(),
        packets: 9,
        ..Node::default()
    };
    let mut htb = node(true, "htb", "1:10", "1:1");
    htb.more.insert("tokens".to_owned(), -124);
    let device = Device {
        name: "wan\\0\n".to_owned(),
        counters: counted(&[("tx_packets", 5), ("queued", 2), ("hand_offs", 8)]),
        txqs: [(0, counted(&[("packets", 5), ("stopped", 1)]))].into(),
        senders: vec![Sender {
            index: 0,
            name: "main".to_owned(),
            counters: counted(&[("sent", 4)]),
            drops: counted(&[("qdisc_overlimit", 2)]),
        }],
        drops: counted(&[("qdisc_congested", 3)]),
        tree: vec![
            node(false, "mq", "0:", "root"),
            node(false, "fq", "0:", ":1"),
            node(false, "fq", "0:", ":2"),
            htb,
        ],
        to_driver: vec![(1024, 3), (4096, 1)],
        to_completion: vec![(2048, 4)],
        lateness: vec![(0, 2), (4096, 5)],
        locks: vec![Lock {
            lock: "root lock".to_owned(),
            site: "enqueue".to_owned(),
            counters: counted(&[("contended", 3), ("wait_ns", 2_500_000_000)]),
        }],
        retries: counted(&[("push to the defer list", 6)]),
    };
    Snapshot { at: 0.0, program, devices: vec![device] }
}

#[test]
fn each_value_has_its_labels() {
    let text = metrics(Some(&snapshot()), Format::Prometheus);
    for line in [
        "txq_up 1",
        r#"txq_program_info{program="p \"q\"",pid="7",version="0.1.0"} 1"#,
        r#"txq_device_sent_packets_total{dev="wan\\0\n"} 5"#,
        r#"txq_device_dropped_packets_total{dev="wan\\0\n",reason="qdisc_congested"} 3"#,
        r#"txq_txq_stopped{dev="wan\\0\n",txq="0"} 1"#,
        r#"txq_sender_sent_packets_total{dev="wan\\0\n",sender="main",index="0"} 4"#,
        r#"txq_sender_drops_total{dev="wan\\0\n",sender="main",index="0",reason="qdisc_overlimit"} 2"#,
        r#"txq_qdisc_sent_packets_total{dev="wan\\0\n",kind="fq",handle="0:",parent=":2"} 9"#,
        r#"txq_class_sent_packets_total{dev="wan\\0\n",kind="htb",handle="1:10",parent="1:1"} 9"#,
        r#"txq_class_value{dev="wan\\0\n",kind="htb",handle="1:10",parent="1:1",name="tokens"} -124"#,
        r#"txq_device_latency_seconds_bucket{dev="wan\\0\n",to="driver",le="0.000002048"} 3"#,
        r#"txq_device_latency_seconds_bucket{dev="wan\\0\n",to="driver",le="0.000004096"} 3"#,
        r#"txq_device_latency_seconds_bucket{dev="wan\\0\n",to="driver",le="+Inf"} 4"#,
        r#"txq_device_latency_seconds_count{dev="wan\\0\n",to="completion"} 4"#,
        r#"txq_device_lateness_seconds_bucket{dev="wan\\0\n",le="0.000000001"} 2"#,
        r#"txq_device_lateness_seconds_bucket{dev="wan\\0\n",le="0.000008192"} 7"#,
        r#"txq_device_hand_offs_total{dev="wan\\0\n"} 8"#,
        r#"txq_lock_contended_total{dev="wan\\0\n",lock="root lock",site="enqueue"} 3"#,
        r#"txq_lock_wait_seconds_total{dev="wan\\0\n",lock="root lock",site="enqueue"} 2.5"#,
        r#"txq_device_retries_total{dev="wan\\0\n",word="push to the defer list"} 6"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn each_metric_is_declared_once_and_no_sample_twice() {
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = metrics(Some(&snapshot()), format);
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let key = if line.starts_with('#') { line } else { line.rsplit_once(' ').unwrap().0 };
            assert!(seen.insert(key), "{line} is there twice:\n{text}");
        }
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        assert_eq!(text.contains("# TYPE txq_device_sent_packets_total "), format == Format::Prometheus);
    }
}

#[test]
fn without_a_program_there_is_one_sample() {
    let text = metrics(None, Format::accepted("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"));
    assert_eq!(text, "# HELP txq_up Whether the program answers.\n# TYPE txq_up gauge\ntxq_up 0\n# EOF\n");
    assert_eq!(Format::accepted("*/*"), Format::Prometheus);
}

#[test]
fn promtool_has_no_objection() {
    let text = metrics(Some(&snapshot()), Format::Prometheus);
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut tool) = tool.spawn() else {
        println!("SKIP promtool is not installed: apt install prometheus");
        return;
    };
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn the_documentation_lists_each_metric() {
    let text = include_str!("../../../../../docs/watch.md");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let known: BTreeSet<_> = words.filter(|word| word.starts_with("txq_")).collect();
    let name = |prefix: &str, name: &str, kind: Kind| {
        format!("{prefix}_{name}{}", if kind == Kind::Counter { "_total" } else { "" })
    };
    let mut all: BTreeSet<_> = DEVICE_ROWS.iter().map(|row| name("txq_device", row.0, row.2)).collect();
    all.extend(TXQ_ROWS.iter().map(|row| name("txq_txq", row.0, row.2)));
    all.extend(SENDER_ROWS.iter().map(|row| name("txq_sender", row.0, row.2)));
    for prefix in ["txq_qdisc", "txq_class"] {
        all.extend(NODE.iter().map(|row| name(prefix, row.0, row.2)));
        all.insert(format!("{prefix}_value"));
    }
    all.extend(LOCK.iter().map(|row| name("txq_lock", row.0, Kind::Counter)));
    let others = [
        "txq_up",
        "txq_program_info",
        "txq_device_latency_seconds",
        "txq_device_lateness_seconds",
        "txq_device_dropped_packets_total",
        "txq_device_hand_offs_total",
        "txq_device_retries_total",
        "txq_sender_drops_total",
    ];
    all.extend(others.map(str::to_owned));
    let all: BTreeSet<_> = all.iter().map(String::as_str).collect();
    assert_eq!(known, all);
}
