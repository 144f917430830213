//! `txq bench` from outside: every suite, its rows, its curves, its peers and its end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

mod overload;

const LONG: Duration = Duration::from_secs(300);
const KEYS: [&str; 44] = [
    "suite",
    "unequal",
    "waited",
    "shape",
    "discipline",
    "qdisc",
    "pool",
    "steering",
    "peer",
    "threads",
    "batch",
    "load",
    "flows",
    "link_bps",
    "txqs",
    "ring",
    "root",
    "completions",
    "share",
    "offered_mpps",
    "mpps",
    "mpps_min",
    "mpps_max",
    "repeats",
    "ns_per_packet",
    "cpu_ns_per_packet",
    "worst_stall_us",
    "worst_xmit_us",
    "worst_flood_us",
    "p99_ns",
    "dropped",
    "bytes_per_flow",
    "spin_us",
    "p50_ns",
    "max_ns",
    "rate_error",
    "cpu_share",
    "coalesce_ns",
    "delay_ns",
    "bytes",
    "limited",
    "in_flight_bytes",
    "limit_bytes",
    "needed_bytes",
];

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq-lab"));
    // A later run reuses the programs built here.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("bench").args(arguments.split_whitespace());
    command
}

#[track_caller]
fn good(ended: Finished) -> Finished {
    assert!(ended.status.success(), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    ended
}

fn run(arguments: &str) -> Finished {
    good(Running::start(&mut bench(arguments)).finish(LONG))
}

/// Checks the first line: the conditions of the run.
#[track_caller]
fn conditions(line: &str) {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let run = &line["run"];
    let cpus = std::thread::available_parallelism().expect("CPUs").get();
    assert_eq!(run["cpus"], cpus, "{line}");
    for way in ["line_ns_before", "line_ns_after"].map(|key| &run[key]) {
        // A machine that is too busy has none.
        let is_way = way[0].as_f64() > Some(0.0) && way[0].as_f64() <= way[1].as_f64();
        assert!(way.is_null() || cpus > 1 && is_way, "{line}");
    }
    let is_share = |key: &str| run[key].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share));
    assert!(
        is_share("stolen") && is_share("others") && (run["waited"].is_null() || is_share("waited")),
        "{line}"
    );
}

/// Parses one object a line after that of the run; each must have all keys, and figures where they are possible.
#[track_caller]
fn rows(ended: &Finished) -> Vec<Value> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let keys: Vec<&str> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = KEYS.into_iter().collect();
        assert_eq!(keys.iter().copied().collect::<BTreeSet<_>>(), known);
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        assert!(number("threads") >= 1.0 && number("batch") >= 1.0, "{row}");
        let (low, middle, high) = (number("mpps_min"), number("mpps"), number("mpps_max"));
        assert!(0.0 <= low && low <= middle && middle <= high, "{row}");
        let sweep = row["suite"] == "overload";
        let has_flows = sweep && row["peer"].is_null() || row["suite"] == "qdisc" || row["suite"] == "crowd";
        assert!(row["flows"].is_null() != has_flows, "{row}");
        // Only rows with a load have an offered rate; senders that send as fast as they can have none.
        assert!(row["offered_mpps"].is_null() == row["load"].is_null(), "{row}");
        assert!(sweep || row["load"].is_null(), "{row}");
        // A share is one of a link: of a device in the row, or of the one link of bql.
        let linked = !row["link_bps"].is_null() || row["suite"] == "bql";
        assert!(row["share"].is_null() != linked, "{row}");
        assert!(row["link_bps"].is_null() || row["txqs"].is_number() && row["root"].is_string(), "{row}");
        // A row has a time of a packet exactly if packets were sent.
        assert!(row["ns_per_packet"].is_null() == (high == 0.0), "{row}");
        row
    };
    let mut lines = ended.stdout.lines();
    conditions(lines.next().expect("the line of the run"));
    lines.map(row).collect()
}

/// Returns the values of `key` in the rows of a suite.
fn values(rows: &[Value], suite: &str, key: &str) -> BTreeSet<String> {
    let of_suite = rows.iter().filter(|row| row["suite"] == suite);
    of_suite.map(|row| row[key].to_string().replace('"', "")).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn every_usual_suite_prints_its_rows() {
    let ended = run("--duration 5ms --threads 1,2 --work-ns 50 --json --quiet");
    assert_eq!(ended.stderr, "");
    let rows = rows(&ended);
    let disciplines: BTreeSet<String> = txq::Discipline::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(values(&rows, "crowd", "discipline"), set(&["combine", "spinlock"]));
    let real =
        "pfifo fq fq_codel cake htb-fq_codel sfq prio netem dualpi2 codel tbf".split(' ').collect::<Vec<_>>();
    assert_eq!(values(&rows, "crowd", "qdisc"), set(&real));
    assert_eq!(values(&rows, "crowd", "threads"), set(&["1", "2"]));
    assert_eq!(values(&rows, "crowd", "batch"), set(&["1", "32"]));
    assert!(values(&rows, "pool", "pool").contains("defer"));
    assert_eq!(values(&rows, "xps", "steering"), set(&["xps", "hash", "one queue"]));
    assert_eq!(values(&rows, "xps", "txqs"), set(&["null", "64"]));
    assert_eq!(values(&rows, "work", "discipline"), disciplines);
    assert_eq!(values(&rows, "path", "batch"), set(&["1", "8", "32"]));
    assert_eq!(values(&rows, "path", "threads"), set(&["1"]));
    assert!(values(&rows, "peers", "peer").is_empty());
    assert!(rows.iter().any(|row| row["mpps"].as_f64() > Some(0.0)), "nothing was sent: {}", ended.stdout);
}

#[test]
fn options_choose_what_is_measured() {
    let options = "crowd shaper --duration 2ms --threads 3 --discipline llist --batch 4 --repeat 3 --pin --json --quiet";
    let rows = rows(&run(&format!("{options} --qdisc noqueue --qdisc slow")));
    let words = |row: &Value| {
        ["suite", "qdisc", "discipline", "threads", "batch", "repeats"]
            .map(|key| row[key].to_string().replace('"', ""))
            .join(" ")
    };
    let all: Vec<String> = rows.iter().map(words).collect();
    let both = |suite| ["noqueue", "slow"].map(|qdisc| format!("{suite} {qdisc} llist 3 4 3"));
    assert_eq!(all, [both("crowd"), both("work")].concat());
}

#[test]
fn real_qdiscs_and_trees_take_packets_in_each_suite_of_one_queue() {
    const TREE: &str = "handle 1: htb default 2; class add parent 1: classid 1:1 htb rate 1gbit; \
                        class add parent 1: classid 1:2 htb rate 1gbit; qdisc add parent 1:1 fq_codel";
    let named =
        ["fq", "fq_codel", "cake", "htb-fq_codel", "sfq", "prio", "netem", "dualpi2", "codel", "tbf", TREE];
    let mut command = bench("crowd overload work isolation --threads 2 --flows 8 --load 2 --work-ns 50");
    command.args("--discipline combine --duration 3ms --json --quiet".split(' '));
    command.args(named.iter().flat_map(|qdisc| ["--qdisc", qdisc]));
    let rows = rows(&good(Running::start(&mut command).finish(LONG)));
    for suite in ["crowd", "overload", "work", "isolation"] {
        assert_eq!(values(&rows, suite, "qdisc"), set(&named), "{suite}");
        let sent = |row: &Value| row["suite"] == suite && row["mpps"].as_f64() > Some(0.0);
        assert!(rows.iter().any(sent), "{suite} sent nothing");
    }
}

#[test]
fn tables_and_progress_are_for_people() {
    let ended = run("crowd work path --qdisc pfifo --duration 2ms --threads 1,2 --repeat 2");
    for part in [
        "2.00 ms for each measurement, 2 times each",
        " by the hypervisor, ",
        " by other programs; its threads waited for a CPU ",
        "crowd: many threads through one queue, as a share of 1\n",
        "crowd, pfifo, 200 flows: threads through one queue",
        "work, pfifo: threads that work outside the queue, too",
        "Mpps by threads",
        "Mpps by batch",
        "2 : 1",
        "from .. to",
        "worst stall",
        "CPU ns",
    ] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    assert!(ended.stderr.starts_with("1/"), "{:?}", ended.stderr);
    assert!(!ended.stderr.contains(['\r', '\x1b']), "{:?}", ended.stderr);
}

/// Small enough for a test, with enough flows for a report of their memory.
#[test]
fn single_qdiscs_keep_their_backlog() {
    let ended = run("qdisc --qdisc pfifo --qdisc fq --flows 64,2048 --duration 20ms --json --quiet");
    let rows: Vec<_> = rows(&ended).into_iter().filter(|row| row["peer"].is_null()).collect();
    assert_eq!(values(&rows, "qdisc", "qdisc"), set(&["fq", "pfifo"]));
    for row in &rows {
        assert_eq!((&row["dropped"], &row["batch"]), (&0.0.into(), &32.into()), "{row}");
        assert!(row["ns_per_packet"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        assert_eq!(row["bytes_per_flow"].is_null(), row["flows"] == 64, "{row}");
    }
    let table = run("qdisc --qdisc prio --duration 20ms --quiet").stdout;
    assert!(table.contains("\nprio ") && table.contains(" : dpdk sched "), "{table}");
}

#[test]
fn lateness_and_rates_are_told() {
    let ended = run("timing --spin-us 0,50 --duration 100ms --json --quiet");
    for row in rows(&ended) {
        let late = row["qdisc"].as_str().is_some_and(|qdisc| qdisc.contains("timer_slack"));
        let number = |key: &str| row[key].as_f64();
        // A busy machine may not let a packet leave in so short a time.
        let times = late && number("mpps") > Some(0.0);
        assert_eq!((number("p50_ns").is_some(), number("rate_error").is_some()), (times, !late), "{row}");
        // A benchmark judges rates and times; this test checks that no packet leaves before its time.
        assert!(!times || number("max_ns") >= number("p50_ns"), "{row}");
        assert!(number("cpu_share") > Some(0.0), "{row}");
    }
    let table = run("timing --spin-us 0 --duration 50ms --quiet").stdout;
    assert!(table.contains("rate error") && table.contains("\ntbf rate 1gbit"), "{table}");
}

/// A benchmark judges the gain; this test checks that each root has rows with one thread and with two, and that rates are exact on the
/// virtual clock, which no other program disturbs.
#[test]
fn one_rate_is_measured_beside_one_root() {
    let own = |row: &Value| row["peer"].is_null();
    let rows = rows(&run("rate --batch 8 --duration 5ms --json --quiet"));
    let rows: Vec<_> = rows.into_iter().filter(own).collect();
    assert_eq!(values(&rows, "rate", "qdisc"), set(&["tbf_mq", "htb_mq", "cake_mq", "tbf", "htb", "mq"]));
    assert_eq!(values(&rows, "rate", "threads"), set(&["1", "2"]));
    let (exact, cost): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row["suite"] == "exact");
    assert_eq!((cost.len(), exact.len()), (12, 4 * 5 * 2));
    let on_clock = exact.iter().filter(|row| row["shape"] == "virtual clock");
    let errors: Vec<_> = on_clock.map(|row| row["rate_error"].as_f64().expect("an error")).collect();
    assert!(errors.len() == 20 && errors.iter().all(|error| error.abs() <= 0.005), "{errors:?}");
    let table = run("rate --batch 1 --duration 5ms --quiet").stdout;
    assert!(table.contains(" 2 : 1") && table.contains("\ntbf_mq combine "), "{table}");
    assert!(table.contains("  virtual clock\n") && table.contains("\nhtb_mq 40Gbit "), "{table}");
}

/// A benchmark judges shares; this test checks that each row has a share, and the bytes in flight beside those that the link
/// needs.
#[test]
fn byte_queue_limits_are_told_beside_what_the_link_needs() {
    let ended = run("bql --duration 40ms --json --quiet");
    let rows = rows(&ended);
    assert_eq!(rows.len(), 20);
    for row in rows {
        let number = |key: &str| row[key].as_f64();
        assert_eq!(number("limit_bytes").is_some(), row["limited"] == true, "{row}");
        assert!(number("needed_bytes") >= Some(64.0 * 700.0), "{row}");
        assert!(number("in_flight_bytes").is_some() && number("share").is_some(), "{row}");
    }
    let table = run("bql --duration 20ms --quiet").stdout;
    assert!(table.contains("\nafter 5.00 ms") && table.contains("\nevery 10.0 ms"), "{table}");
}

#[test]
fn isolation_measures_a_probe_beside_floods() {
    // A busy machine may not let the probe send in a short time.
    let measure = |ms: u64| rows(&run(&format!("isolation --threads 3 --duration {ms}ms --json --quiet")));
    let comes_through = |rows: &Vec<Value>| rows.iter().any(|row| row["p50_ns"].is_number());
    let rows =
        [60, 600, 6000].into_iter().map(measure).find(comes_through).expect("a probe that comes through");
    let disciplines: BTreeSet<String> = txq::Discipline::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(values(&rows, "isolation", "discipline"), disciplines);
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
    for row in &rows {
        assert_eq!((&row["qdisc"], &row["threads"]), (&"pfifo_fast".into(), &3.into()), "{row}");
        if !row["p50_ns"].is_null() {
            assert!(number(row, "p50_ns") > 0.0 && number(row, "p50_ns") <= number(row, "max_ns"), "{row}");
        }
        assert!(number(row, "worst_flood_us") >= 0.0, "{row}");
    }
    let table = run("isolation --threads 2 --discipline combine --duration 30ms --quiet").stdout;
    assert!(table.contains("beside 2 flooding senders") && table.contains("its longest xmit"), "{table}");
}

#[test]
fn curves_are_drawn() {
    let folder = TempDir::new();
    let file = folder.path().join("curves.svg");
    std::fs::write(&file, "an older drawing, longer than none at all").expect("a file");
    let options = format!(
        "crowd --qdisc pfifo --batch 1 --discipline llist,spinlock --duration 2ms --threads 1,2 --quiet --svg {}",
        file.display()
    );
    run(&options);
    let svg = std::fs::read_to_string(&file).expect("the drawing");
    let elements = well_formed(&svg);
    assert!(elements.contains(&"polyline".to_owned()), "{elements:?}");
    // The first two colours: each has a curve and the stroke beside its name.
    for colour in ["#0072B2", "#D55E00"] {
        let strokes = svg.split("<polyline").filter(|rest| rest.contains(&format!("stroke=\"{colour}\"")));
        assert_eq!(strokes.count(), 2, "{svg}");
    }
    for text in ["crowd, pfifo", "threads", "Mpps", "llist", "spinlock"] {
        assert!(svg.contains(text), "no {text:?} in {svg}");
    }
}

/// Returns the names of the elements of an XML text; checks that each element is closed.
#[track_caller]
fn well_formed(xml: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("no end of <{part}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        let entities = text.split('&').skip(1);
        entities.for_each(|rest| assert!(rest.contains(';'), "a bare & in {text:?}"));
        let name = tag.trim_end_matches('/').split_whitespace().next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(end) => assert_eq!(open.pop().as_deref(), Some(end)),
            None if name.starts_with(['?', '!']) => {}
            None => {
                all.push(name.to_owned());
                if !tag.ends_with('/') {
                    open.push(name.to_owned());
                }
            }
        }
    }
    assert_eq!((open.len(), all.first().map(String::as_str)), (0, Some("svg")));
    all
}

#[test]
fn peers_run_beside_txq_or_say_why_not() {
    let ended = run("peers --duration 5ms --threads 1 --batch 8 --discipline llist --json --quiet");
    let rows = rows(&ended);
    let shapes = values(&rows, "peers", "shape");
    assert_eq!(shapes, set(&["queue", "core", "cross", "free", "kernel"]), "{}", ended.stderr);
    let peers = values(&rows, "peers", "peer");
    for (peer, name) in [("dpdk", "dpdk mp ring"), ("kernel", "kernel")] {
        let skipped = ended.stderr.contains(&format!("SKIP {peer}: "));
        assert_ne!(peers.contains(name), skipped, "{peers:?}: {}", ended.stderr);
    }
    // Not `eprintln!`: the harness hides its output when the test passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), ended.stderr.as_bytes());
}

#[test]
fn without_tools_there_are_no_peers() {
    let mut command = bench("peers --duration 2ms --threads 1 --batch 8 --discipline llist --quiet");
    let ended = good(Running::start(command.env("PATH", "/nonexistent")).finish(LONG));
    assert!(ended.stderr.contains("SKIP dpdk: pkg-config: "), "{:?}", ended.stderr);
    assert!(ended.stderr.contains("SKIP kernel: "), "{:?}", ended.stderr);
    assert!(ended.stdout.contains("peers queue") && !ended.stdout.contains("dpdk"), "{}", ended.stdout);
}

#[test]
fn a_signal_ends_the_run_and_prints_what_there_is() {
    let mut running = Running::start(&mut bench("path crowd --duration 100ms --repeat 1000 --json"));
    running.wait_for_text("path: ", LONG);
    running.signal(libc::SIGINT);
    let ended = good(running.finish(LONG));
    let rows = rows(&ended);
    assert!(rows.iter().all(|row| row["repeats"].as_u64() < Some(1000)), "{}", ended.stdout);
    assert!(rows.first().is_none_or(|row| row["suite"] == "path"), "{}", ended.stdout);
}

#[test]
fn a_signal_leaves_no_namespace_behind() {
    let mut running = Running::start(&mut bench("peers --duration 1234s"));
    running.wait_for_text("1/", LONG);
    let namespace = namespace_of("1234s");
    running.signal(libc::SIGTERM);
    let ended = good(running.finish(LONG));
    assert_ne!(namespace.is_some(), ended.stderr.contains("SKIP kernel: "), "{}", ended.stderr);
    assert!(namespace.is_none_or(|path| !path.exists()));
}

/// Returns the namespace of the process with `word` on its command line: its name ends with the process id.
fn namespace_of(word: &str) -> Option<PathBuf> {
    let namespaces = std::fs::read_dir("/run/netns").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    namespaces.into_iter().find(|path| {
        let pid = path.file_name().and_then(|name| name.to_str()?.strip_prefix("txq-bench-"));
        let words = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
        words.is_some_and(|words| words.split(|&byte| byte == 0).any(|w| w == word.as_bytes()))
    })
}
