//! `txq sim` from outside: a small scenario in each of its reports, with equal results each time, and the errors of wrong
//! scenarios.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

/// Six senders at one txq of a desktop, for a fifth of a millisecond.
const TINY: &str = r#"
name = "tiny"
title = "a crowd at one txq"
source = "this test"

[setup]
machine = "desktop-16"
milliseconds = 0.2
warmup = 0.05

[setup.device]
txqs = 1
bql = false

[setup.path]
qdisc = "pfifo"
discipline = "spinlock"

[setup.workload]
kind = "udp-stream"
senders = 6
bytes = 100
credit = 64
private = 500
pinned = true

[fit]
field = "workload.private"
from = 100
to = 1000000
variant = "before"
figure = "mpps"
why = "nobody knows"

[[variant]]
name = "before"

[[variant]]
name = "after"
change = { "path.discipline" = "llist" }

[[published]]
variant = "before"
figure = "mpps"
value = 0.1

[[published]]
variant = "before"
figure = "runnable"
value = 1000000

[[published]]
variant = "after"
figure = "mpps"
over = "before"
rule = "rises"

[[published]]
variant = "after"
figure = "runnable"
value = 1
rule = "direction"
"#;

struct Tiny {
    folder: TempDir,
    file: String,
}

impl Tiny {
    fn new() -> Self {
        let folder = TempDir::new();
        let path = folder.path().join("tiny.toml");
        fs::write(&path, TINY).expect("a file");
        Self { folder, file: path.display().to_string() }
    }
}

fn run(arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq-lab"));
    command.arg("sim").args(arguments);
    Running::start(&mut command).finish(Duration::from_secs(300))
}

#[track_caller]
fn good(arguments: &[&str]) -> Finished {
    let ended = run(arguments);
    assert!(ended.status.success(), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    ended
}

#[track_caller]
fn lines(arguments: &[&str]) -> Vec<Value> {
    let text = good(arguments).stdout;
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let ended = run(arguments);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    let last = ended.stderr.lines().rfind(|line| line.starts_with("txq-lab: ")).unwrap_or_default();
    for part in parts {
        assert!(last.contains(part), "no {part:?} in {:?}", ended.stderr);
    }
}

/// Returns the cells of the line that begins with `first`.
#[track_caller]
fn cells<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(first));
    line.unwrap_or_else(|| panic!("no line {first:?} in {text}")).split_whitespace().collect()
}

#[test]
fn a_run_is_reported_as_results_were_published() {
    let tiny = Tiny::new();
    let text = good(&["run", &tiny.file]).stdout;
    assert!(text.starts_with("tiny: a crowd at one txq\npublished in this test\nRyzen 9 7950X, 32 CPUs; "));
    let heads = cells(&text, "Mpps");
    assert_eq!(heads[..2], ["Mpps", "Mbit/s"], "{text}");
    assert_eq!(heads[heads.len() - 6..], ["r", "cs", "us", "sy", "id", "hash"], "{text}");
    let before = cells(&text, "before");
    assert_eq!(before.last().map(|hash| hash.len()), Some(16), "{text}");
    let busy =
        before[before.len() - 3].parse::<u32>().unwrap() + before[before.len() - 2].parse::<u32>().unwrap();
    assert_eq!(busy, 100, "{text}");
    for part in [
        "\nbefore: locks that were waited for in 0.2 ms, on 32 CPUs\n",
        "\n contended   total wait     max wait     avg wait         type   caller\n",
        "     spinlock   __dev_queue_xmit\n",
        "\nfrom  before  after\n",
        "\nin interrupts",
        "\n  reap ",
        "predicted figures hold, ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("dev_get_stats"), "who read the counters is not part of it: {text}");
    let stat = good(&["run", &tiny.file, "--lock-stat", "--point", "before", "--quiet"]);
    assert_eq!(stat.stderr, "");
    assert!(stat.stdout.contains("lock_stat version 0.4\n-----"), "{}", stat.stdout);
    let row = cells(&stat.stdout, "&sch->root_lock_key:");
    assert_eq!(row.len(), 13, "{row:?}");
    assert!(!stat.stdout.contains("\nafter"), "{}", stat.stdout);
}

#[test]
fn a_point_is_the_same_each_time_and_what_is_changed_changes_it() {
    let tiny = Tiny::new();
    let hashes = |more: &[&str]| -> Vec<String> {
        let arguments = [&["run", &tiny.file, "--json"], more].concat();
        lines(&arguments).iter().map(|line| line["hash"].as_str().expect("a hash").to_owned()).collect()
    };
    let once = hashes(&["--threads", "1"]);
    assert_eq!(once.len(), 2);
    assert_ne!(once[0], once[1]);
    assert_eq!(hashes(&["--threads", "2"]), once);
    assert_eq!(hashes(&["--point", "after"]), once[1..]);
    assert_eq!(hashes(&["--set", "workload.private=500"]), once);
    assert_ne!(hashes(&["--set", "workload.private=501"]), once);
    assert_ne!(hashes(&["--set", "seed=2"]), once);
}

/// Six senders that sleep for each packet, or seldom.
#[test]
fn a_pace_that_costs_more_than_the_packets_is_named() {
    let tiny = Tiny::new();
    let at = |mpps: &str| {
        let pace = format!("workload.offered_mpps={mpps}");
        good(&["run", &tiny.file, "--point", "after", "--set", "milliseconds=2", "--set", &pace]).stdout
    };
    let text = at("0.05");
    let line = text.lines().find(|line| line.contains("context switches")).unwrap_or_default();
    for part in
        ["after: ", "on idle CPUs), at workload.offered_mpps=0.05 of workload.senders=6;", "workload.batch"]
    {
        assert!(line.contains(part), "no {part:?} in {text}");
    }
    // As fast as they can: nobody sleeps until a packet is due.
    let text = at("0");
    assert!(!text.contains("context switches"), "{text}");
}

#[test]
fn a_line_of_json_has_all_of_a_point() {
    let tiny = Tiny::new();
    let all = lines(&["run", &tiny.file, "--json"]);
    for (line, name) in all.iter().zip(["before", "after"]) {
        assert_eq!(
            (&line["scenario"], &line["point"], &line["cpus"]),
            (&"tiny".into(), &name.into(), &32.into())
        );
        assert!(line["figures"]["mpps"].as_f64().is_some_and(|mpps| mpps > 0.1), "{line}");
        let calls: u64 =
            line["xmit_ns"].as_array().unwrap().iter().map(|b| b["count"].as_u64().unwrap()).sum();
        assert!(calls > 100, "{line}");
        assert!(line["sites"].as_array().is_some_and(|sites| sites.iter().any(|s| s["lock"] == "root lock")));
        assert!(line["senders_ps"]["private_work"]["work"].as_u64().is_some_and(|ps| ps > 0), "{line}");
        for key in ["machine", "seconds", "accesses", "retries", "hand_offs", "interrupts_ps"] {
            assert!(!line[key].is_null(), "no {key} in {line}");
        }
    }
    let compared = |at: usize| all[at]["published"].as_array().map(Vec::len);
    assert_eq!(
        (all.len(), compared(0), compared(1)),
        (2, Some(2), Some(0)),
        "a ratio and a direction need two points"
    );
}

#[test]
fn published_figures_stand_beside_simulated_ones() {
    let tiny = Tiny::new();
    let folder = tiny.folder.path().join("drawings/here");
    let drawings = folder.display().to_string();
    let text = good(&["published", "--scenario", &tiny.file, "--svg", &drawings]).stdout;
    assert_eq!(
        text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["scenario", "variant", "figure", "published", "simulated", "deviation", "rule"]
    );
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("tiny ")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(rows[0].contains(" before ") && rows[0].ends_with(" fitted"), "{text}");
    assert!(rows[1].contains(" 1000000 ") && rows[1].ends_with("MISS"), "{text}");
    assert!(
        text.contains(" of 3 predicted figures hold, ") && text.contains(" within 25 %; 1 more fitted\n"),
        "{text}"
    );
    assert!(text.ends_with("signs and rankings: 1 of 1 are as published (100 %)\n"), "{text}");
    let drawing = fs::read_to_string(folder.join("tiny.svg")).expect("a drawing");
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    for part in [
        "published",
        "simulated",
        "throughput, Mpps",
        "throughput, ratio",
        "after : before",
        "runnable tasks",
    ] {
        assert!(drawing.contains(&format!("\n{part}\n")), "no {part} in the drawing");
    }
    let rows = lines(&["published", "--scenario", &tiny.file, "--json", "--quiet"]);
    assert_eq!(rows.len(), 4);
    let (first, second) = (&rows[0], &rows[1]);
    for key in
        ["scenario", "variant", "figure", "published", "simulated", "deviation", "rule", "fitted", "holds"]
    {
        assert!(!first[key].is_null(), "no {key} in {first}");
    }
    assert_eq!(
        (&first["fitted"], &second["fitted"], &second["holds"]),
        (&true.into(), &false.into(), &false.into())
    );
    let [published, simulated, deviation] =
        ["published", "simulated", "deviation"].map(|key| first[key].as_f64().expect("a number"));
    assert!((simulated / published - 1.0 - deviation).abs() < 1e-9, "{first}");
}

#[test]
fn explain_accounts_for_all_of_the_time() {
    let tiny = Tiny::new();
    // With so little work of their own, senders wait for each other.
    let text = good(&["explain", &tiny.file, "--set", "workload.private=100"]).stdout;
    for part in [
        "\nbefore: ",
        "\n  private work ",
        "\nsoftirqs ",
        "\ninterrupts ",
        "\n  asleep, or without a CPU ",
        "\n  idle ",
        "\nCPUs: ",
        "\nwhat lies there ",
        "\nroot lock ",
        "\npacket: descriptor ",
        "\nSenders wait ",
        "most of it for the root lock: its holder keeps it ",
        " are lines that come from other CPUs.\n",
        "\nboth, in nanoseconds a packet\n",
        "; it saves most at senders: ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let one = good(&["explain", &tiny.file, "--point", "after"]).stdout;
    assert!(!one.contains("both, in") && !one.contains("\nbefore"), "{one}");
    for line in lines(&["explain", &tiny.file, "--json"]) {
        let phases = line["senders_ps"].as_object().expect("phases");
        let times = phases.values().flat_map(|phase| ["work", "lines", "waits"].map(|part| &phase[part]));
        let spent: u64 = times.map(|time| time.as_u64().expect("a time")).sum();
        let all = spent + line["senders_away_ps"].as_u64().expect("a time");
        // Six senders. Work that crosses the start or the end of the measured time counts where it ends.
        assert!((1_100_000_000..=1_300_000_000).contains(&all), "{all} ps in {line}");
        assert!(line["bottleneck"].as_str().is_some_and(|sentence| sentence.ends_with('.')), "{line}");
        for side in ["senders_ps", "softirqs_ps", "interrupts_ps"] {
            let private = &line[side]["private_work"]["work"];
            assert_eq!(
                private.as_u64().is_some_and(|ps| ps > 1_000_000),
                side == "senders_ps",
                "{side}: {line}"
            );
        }
        let of = |name: &str| {
            let lines = line["lines"].as_array().expect("lines");
            let found = lines.iter().find(|line| line["name"] == name);
            found.unwrap_or_else(|| panic!("no {name} in {line}")).clone()
        };
        let (lock, packets) = (of("root lock"), of("packet: descriptor"));
        assert_eq!(lock["lines"].as_u64(), Some(1), "of one txq: {lock}");
        assert!(lock["transfers"].as_u64() <= lock["accesses"].as_u64(), "{lock}");
        assert!(packets["lines"].as_u64().is_some_and(|lines| lines > 6 * 64), "two lines each: {packets}");
        let waited = line["senders_ps"]["xmit"]["waits"].as_u64().expect("a time");
        let at_lock = lock["waits"].as_u64().expect("a time");
        assert!(at_lock > 0 && at_lock >= waited, "that is what they wait for: {at_lock} of {waited}");
        let cpus: u64 =
            line["cpus_ps"].as_object().unwrap().values().map(|time| time.as_u64().unwrap()).sum();
        assert_eq!(cpus, 32 * 200_000_000, "{line}");
    }
}

#[test]
fn to_explain_changes_nothing() {
    let tiny = Tiny::new();
    let hashes = |command: &str| -> Vec<Value> {
        lines(&[command, &tiny.file, "--json"]).into_iter().map(|line| line["hash"].clone()).collect()
    };
    assert_eq!(hashes("run"), hashes("explain"));
}

/// Writes a capture into the folder of `tiny`: ten flows, one frame of 1000 bytes each 2 us, with the first 60 bytes of
/// each captured.
fn capture(tiny: &Tiny, name: &str, frames: u32) {
    let mut bytes = Vec::new();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    bytes.extend(words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]));
    for n in 0..frames {
        bytes.extend(words(&[0, 2 * n, 60, 1000]));

        let builder =
            etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64);
        let mut frame = Vec::new();
        builder.udp(1024 + (n % 10) as u16, 9).write(&mut frame, &[0; 18]).expect("a frame");
        bytes.extend(frame);
    }
    fs::write(tiny.folder.path().join(name), bytes).expect("a capture");
}

#[test]
fn a_capture_is_sent_at_its_times_or_faster() {
    let tiny = Tiny::new();
    capture(&tiny, "x.pcap", 50);
    let (before, _) = TINY.split_once("[setup.workload]").expect("its place");
    let trace = "[setup.workload]\nkind = \"trace\"\nfile = \"x.pcap\"\nsenders = 3\n";
    let path = tiny.folder.path().join("trace.toml");
    fs::write(&path, format!("{before}{trace}")).expect("a file");
    let file = path.display().to_string();
    let figures = |set: &str| lines(&["run", &file, "--json", "--set", set])[0]["figures"].clone();
    // A packet each 2 us; the capture repeats twice within the measured time.
    for (speed, mpps) in [("1", 0.5), ("2", 1.0), ("0.5", 0.25)] {
        let figures = figures(&format!("workload.speed={speed}"));
        assert!((figures["mpps"].as_f64().unwrap() / mpps - 1.0).abs() < 0.05, "{speed}: {figures}");
        let bits = figures["mbps"].as_f64().unwrap() / figures["mpps"].as_f64().unwrap();
        assert!((bits - 8000.0).abs() < 1e-6, "as long as on the wire: {figures}");
        assert!(figures["late_avg_us"].as_f64().is_some_and(|late| late < 20.0), "{figures}");
    }
    let fast = figures("workload.speed=0");
    assert!(fast["mpps"].as_f64().is_some_and(|mpps| mpps > 1.5), "{fast}");
    assert!(fast["late_avg_us"].is_null(), "nothing is due then: {fast}");
    let said = good(&["explain", &file]).stdout;
    assert!(said.contains("until the next packet of the capture is due; "), "{said}");
    let missing = format!("{}/none.pcap\" cannot be read", tiny.folder.path().display());
    refused(&["run", &file, "--set", "workload.file=none.pcap"], &["workload.file: capture \"", &missing]);
    refused(
        &["run", &file, "--set", "workload.file=trace.toml"],
        &["trace.toml\" is not a capture: it begins"],
    );
    capture(&tiny, "empty.pcap", 0);
    refused(&["run", &file, "--set", "workload.file=empty.pcap"], &["holds no frame: use another one"]);
    let whole = fs::read(tiny.folder.path().join("x.pcap")).expect("a capture");
    fs::write(tiny.folder.path().join("cut.pcap"), &whole[..whole.len() - 5]).expect("a capture");
    refused(
        &["run", &file, "--set", "workload.file=cut.pcap"],
        &["cut.pcap\", frame 50 at byte ", "the file ends within it", "`editcap -r`"],
    );
    refused(&["run", &file, "--set", "workload.speed=-1"], &["workload.speed is -1: use 0 to 1000000"]);
}

#[test]
fn a_fit_reaches_what_is_wanted() {
    let tiny = Tiny::new();
    let line = &lines(&["fit", &tiny.file, "--json", "--quiet"])[0];
    assert_eq!(
        (&line["field"], &line["wanted"], &line["file"]),
        (&"workload.private".into(), &0.1.into(), &500.0.into())
    );
    let (value, reached) = (line["value"].as_f64().unwrap(), line["reached"].as_f64().unwrap());
    assert!((reached / 0.1 - 1.0).abs() < 0.06, "{line}");
    // Six senders, one packet each in this time.
    assert!((40_000.0..80_000.0).contains(&value), "{line}");
    let set = format!("workload.private={value}");
    let again = &lines(&["run", &tiny.file, "--json", "--point", "before", "--set", &set])[0];
    assert_eq!(again["figures"]["mpps"], line["reached"], "the value is the one that was run");
    let text = good(&["fit", &tiny.file, "--set", "milliseconds=0.1"]);
    assert!(text.stdout.starts_with("tiny: workload.private = "), "{}", text.stdout);
    assert!(text.stdout.contains("\nin the file  500\nplausible    nobody knows\n"), "{}", text.stdout);
    assert!(text.stderr.contains("workload.private=100: mpps "), "{}", text.stderr);
}

#[test]
fn what_is_wrong_is_named() {
    let tiny = Tiny::new();
    for command in ["run", "explain", "fit"] {
        refused(&[command, "p9"], &["\"p9\" is no file", "p0-pinned"]);
        refused(
            &[command, &tiny.file, "--set", "workload.colour=red"],
            &["tiny: unknown field `colour`", "`senders`"],
        );
        refused(&[command, &tiny.file, "--set", "workload"], &["--set", "is not PATH=VALUE"]);
        refused(&[command, &tiny.file, "--threads", "0"], &["use 1 to 1024"]);
        refused(&[command, &tiny.file, "--set", "machine=pdp-11"], &["\"before\"", "no machine \"pdp-11\""]);
        refused(
            &[command, &tiny.file, "--set", "path.discipline=spinlok"],
            &["discipline \"spinlok\"", "use one of combine, llist"],
        );
    }
    refused(&["run", &tiny.file, "--point", "later"], &["--point later", "use before or after"]);
    refused(&["run", &tiny.file, "--json", "--lock-stat"], &["cannot be used with"]);
    refused(&["published", "--scenario", "p9"], &["\"p9\" is no file"]);
    refused(&["fit", "p2"], &["p2", "no [fit]"]);
    let nothing = tiny.folder.path().join("nothing.toml");
    let text = TINY.split("[[published]]").next().expect("a part");
    fs::write(&nothing, text).expect("a file");
    let nothing = nothing.display().to_string();
    refused(&["published", "--scenario", &nothing], &["nothing was published", "[[published]]"]);
    refused(&["fit", &nothing], &["mpps of \"before\"", "[[published]]"]);
    let ended = run(&["published", "--scenario", &tiny.file, "--svg", "/proc/nowhere"]);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("txq-lab: --svg: /proc/nowhere: "), "{}", ended.stderr);
}

/// A point that cannot be run leaves the table of the others, and is an error.
#[test]
fn a_point_that_fails_is_told_after_the_table() {
    let folder = TempDir::new();
    let path = folder.path().join("bad.toml");
    let bad = TINY.replace("\"path.discipline\" = \"llist\"", "\"path.qdisc\" = \"nonsense\"");
    fs::write(&path, bad).expect("a file");
    let ended = run(&["published", "--scenario", &path.display().to_string()]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(cells(&ended.stdout, "tiny").contains(&"before"), "{}", ended.stdout);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("txq-lab: 1 of 2 points could not be run: tiny \"after\": "),
        "{}",
        ended.stderr
    );
}
