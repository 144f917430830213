//! Commands to a txq whose devices are busy.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::served::{Folder, LONG, start, txq};
use crate::support::report::{Report, assert_conserved};

#[test]
fn traffic_goes_on_while_qdiscs_change() {
    let folder = Folder::new("traffic");
    let (socket, file) = (folder.file("control.sock"), folder.file("run.toml"));
    let text = "[[device]]\nname = \"d0\"\ntxqs = 2\nqdisc = \"mq\"\n[[sender]]\nthreads = 2\nrate = \"20kpps\"\nbatch = 4\n";
    fs::write(&file, text).expect("a file");
    let running = start(&["run", &file, "--duration", "60s", "--json", "--quiet", "--socket", &socket]);
    let tc = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", &socket], &words[..]].concat())
    };
    let begin = Instant::now();
    while tc("qdisc").rc != 0 {
        assert!(begin.elapsed() < LONG, "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let removed = txq(&["dev", "--socket", &socket, "del", "d0"]);
    assert!(removed.rc == 2 && removed.err.contains("busy"), "{removed:?}");
    let sent = || -> u64 {
        let shown: Value = serde_json::from_str(&tc("-s -j qdisc show dev d0 root").good()).expect("JSON");
        shown[0]["packets"].as_u64().expect("a number")
    };
    let qdiscs = [
        "handle 1: pfifo limit 500",
        "handle 2: tbf rate 1gbit burst 1m latency 50ms",
        "handle 3: fq_codel",
        "handle 4: mq",
    ];
    for (round, qdisc) in qdiscs.iter().cycle().take(12).enumerate() {
        tc(&format!("qdisc replace dev d0 root {qdisc}")).good();
        // The new qdisc's counters begin at 0, so they count only packets that it has sent itself.
        let since = Instant::now();
        while sent() == 0 {
            assert!(since.elapsed() < LONG, "nothing goes through {qdisc} in round {round}");
        }
    }
    running.signal(libc::SIGTERM);
    let ended = running.finish(LONG);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    assert!(report.sent > 0, "{report:?}");
    assert!(!fs::exists(&socket).expect("a path"), "the socket stays");
}
