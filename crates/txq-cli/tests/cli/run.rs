//! `txq run` from outside: its examples, its report and its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Finished, Running};
use crate::support::report::{Report, assert_conserved};

const LONG: Duration = Duration::from_secs(120);

fn txq(arguments: &[&str]) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_txq")).args(arguments))
}

#[track_caller]
fn good(ended: Finished) -> Finished {
    assert!(ended.status.success(), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    ended
}

fn last_line(ended: &Finished) -> Value {
    serde_json::from_str(ended.stdout.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn the_example_runs_and_every_packet_is_accounted_for() {
    let ended = good(txq(&["run", "--duration", "300ms", "--json"]).finish(LONG));
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    // Each thread hands in a batch before it checks whether to stop.
    assert!(report.sent >= 4 * 32, "{report:?}");
    assert_eq!((report.all_dropped(), report.queued, report.queues.len()), (0, 0, 2), "{report:?}");
    assert!(report.seconds >= 0.3, "{report:?}");
    let json = last_line(&ended);
    for key in
        ["asked", "offered", "achieved", "behind_ns", "completion_latency_ns", "cpu_ns_per_packet", "devices"]
    {
        assert!(!json[key].is_null(), "no {key} in {json}");
    }
    assert_eq!((&json["stopped_by"], &json["discipline"]), (&"duration".into(), &"combine".into()));
    assert_eq!(json["qdiscs"][0]["kind"], "mq");
    assert_eq!(json["qdiscs"][0]["packets"], report.sent, "the qdisc counts what the device counts");
}

/// A sender of the first band and one of the last: the report shows whose packets wait and are dropped. A packet of the
/// first sender takes 12 ms on the link, so the queue fills however slowly the sender runs. The second sender has fewer
/// packets than its queue holds, however many of them are late together.
#[test]
fn senders_and_bands_have_a_row_each() {
    let folder = std::env::temp_dir().join(format!("txq-rows-{}.toml", std::process::id()));
    let text = "[[device]]\nname = \"up\"\nqdisc = \"pfifo_fast\"\ntx_queue_len = 50\nsampling = \"all\"\n[device.null]\nrate = \"1mbit\"\n\
                ring = 4\n[[sender]]\npacket = 1500\nbatch = 1\nlimit = 200\npriority = 2\n\
                [[sender]]\npacket = 60\nbatch = 1\nrate = \"20pps\"\npriority = 6\n";
    fs::write(&folder, text).expect("a file");
    let file = folder.display().to_string();
    let ended = good(txq(&["run", &file, "--duration", "500ms", "--json"]).finish(LONG));
    let (json, report) = (last_line(&ended), Report::of_output(&ended.stdout));
    let sum = |rows: &str, key: &str| {
        let rows = json[rows].as_array().unwrap_or_else(|| panic!("no {rows} in {json}"));
        rows.iter().map(|row| row[key].as_u64().unwrap_or_else(|| panic!("no {key} in {row}"))).sum::<u64>()
    };
    for rows in ["senders", "bands"] {
        assert_eq!(sum(rows, "sent"), report.sent, "{json}");
        assert_eq!(sum(rows, "dropped"), report.all_dropped(), "{json}");
    }
    assert_eq!((sum("senders", "accepted"), sum("senders", "pending")), (report.accepted, 0), "{json}");
    // Rows are in the order in which the threads began.
    let of = |name: &str| {
        let mut rows = json["senders"].as_array().expect("rows").iter();
        rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {json}"))
    };
    let [flood, probe] = ["sender-0.0", "sender-1.0"].map(of);
    assert_eq!(probe["measured_calls"], probe["accepted"], "{json}");
    assert!(flood["longest_xmit_ns"].as_u64() > Some(0), "{json}");
    assert!(flood["dropped"].as_u64() > Some(0) && probe["dropped"] == 0, "{json}");
    let [first, last] = [0, 2].map(|index| &json["bands"][index]);
    assert_eq!((&first["name"], &first["kind"]), (&"band 0".into(), &"pfifo_fast".into()), "{json}");
    assert_eq!((&first["sent"], &first["dropped"]), (&probe["sent"], &0.into()), "{json}");
    let p50 = |row: &Value| row["latency_ns"]["p50"].as_u64().unwrap_or_else(|| panic!("no time in {row}"));
    assert!(p50(first) < p50(last) && p50(probe) < p50(flood), "{json}");
    let text = good(txq(&["run", &file, "--duration", "100ms"]).finish(LONG)).stdout;
    fs::remove_file(&folder).expect("the file");
    for part in ["band or class", "pfifo_fast 8001: band 2", "at limit", "longest xmit"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn the_text_says_the_same_in_words() {
    let ended = good(txq(&["run", "--duration", "1200ms"]).finish(LONG));
    for part in ["qdisc mq 8001: dev null0 root", "txq ", "p99.9", "ns per packet", "packets     accepted"] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("ASTRAY"), "{}", ended.stdout);
    // On a file or pipe progress is in plain lines, one for each second.
    let seconds =
        |line: &str| line.trim().split_once(" s  ").and_then(|(seconds, _)| seconds.parse::<u64>().ok());
    let told: Vec<_> = ended.stderr.lines().map(seconds).collect();
    assert!(!told.is_empty() && told[0] >= Some(1) && told.is_sorted(), "{:?}", ended.stderr);
    assert!(!ended.stderr.contains(['\r', '\x1b']), "{:?}", ended.stderr);
    let quiet = good(txq(&["run", "--duration", "1200ms", "--quiet"]).finish(LONG));
    assert_eq!(quiet.stderr, "");
}

#[test]
fn the_printed_example_is_what_runs() {
    let printed = good(txq(&["run", "--print-example"]).finish(LONG)).stdout;
    assert_eq!(printed, fs::read_to_string(examples().join("default.toml")).expect("the example"));
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

#[test]
fn every_example_runs() {
    let files = fs::read_dir(examples()).expect("examples").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let file = file.display().to_string();
        let ended = good(txq(&["run", &file, "--duration", "200ms", "--json"]).finish(LONG));
        let report = Report::of_output(&ended.stdout);
        assert_conserved(&report);
        assert!(report.sent > 0, "{file}: {report:?}");
        for device in last_line(&ended)["devices"].as_array().expect("devices") {
            assert_conserved(&Report::of_output(&device_line(device, &ended)));
        }
    }
}

/// Returns a device's part as a report of its own; only the time is common to all.
fn device_line(device: &Value, ended: &Finished) -> String {
    let mut device = device.clone();
    device["seconds"] = last_line(ended)["seconds"].clone();
    device.to_string()
}

#[test]
fn a_rate_is_kept() {
    let folder = std::env::temp_dir().join(format!("txq-rate-{}.toml", std::process::id()));
    let text = "[[device]]\ntxqs = 2\n[[sender]]\nthreads = 2\nflows = 8\nrate = \"5kpps\"\nbatch = 5\n";
    fs::write(&folder, text).expect("a file");
    let file = folder.display().to_string();
    let ended = good(txq(&["run", &file, "--duration", "1s", "--json"]).finish(LONG));
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    // Packets that a thread sends too late are counted as missed, and as offered all the same.
    assert!(report.offered >= 5000 && report.refused == 0, "{report:?}");
    let json = last_line(&ended);
    assert_eq!(json["asked"]["pps"], 5000.0);
    let offered = json["offered"]["pps"].as_f64().expect("a rate");
    // A batch of each thread at the start, and one at the end.
    assert!((5000.0 * 0.999..=5000.0 + 20.0).contains(&offered), "{json}");
    assert!(json["latency_ns"]["samples"].as_u64() >= Some(report.sent), "all are measured: {json}");
    assert!(json["ns_per_packet"].is_null() && json["cpu_ns_per_packet"].is_null(), "{json}");
    let text = good(txq(&["run", &file, "--duration", "1ms"]).finish(LONG)).stdout;
    fs::remove_file(&folder).expect("the file");
    assert!(text.contains("\ncost        - (senders keep to a rate"), "{text}");
}

/// A device without a backlog beside one whose link takes half a second for each packet and drains after the end.
#[test]
fn each_device_has_its_own_time() {
    let path = std::env::temp_dir().join(format!("txq-own-time-{}.toml", std::process::id()));
    let text = "[[device]]\nname = \"fast\"\nqdisc = \"noqueue\"\n[[device]]\nname = \"slow\"\n\
                null = { rate = \"16kbit\", ring = 1 }\n[[sender]]\ndevice = \"fast\"\nrate = \"1pps\"\nbatch = 1\n\
                [[sender]]\ndevice = \"slow\"\npacket = 1000\nbatch = 1\nlimit = 5\n";
    fs::write(&path, text).expect("a file");
    let file = path.display().to_string();
    let ended = good(txq(&["run", &file, "--duration", "100ms", "--json"]).finish(LONG));
    let contention = good(txq(&["contention", &file, "--duration", "100ms", "--json"]).finish(LONG));
    fs::remove_file(&path).expect("the file");
    for json in [last_line(&ended), last_line(&contention)] {
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("no {key} in {of}"));
        let [fast, slow] = [0, 1].map(|index| &json["devices"][index]);
        for device in [fast, slow] {
            let sent = number(device, "mpps") * 1e6 * number(device, "seconds");
            assert!((sent - number(device, "sent")).abs() < 1e-6, "{device}");
        }
        assert!(number(slow, "seconds") >= 0.5 * (number(slow, "sent") - 1.0), "{json}");
        assert!(number(fast, "seconds") < number(slow, "seconds"), "{json}");
        assert_eq!(number(&json, "seconds"), number(slow, "seconds"), "the run ends with its last device");
    }
}

/// The schedule determines the offered packets, even if the device keeps the buffers or the machine is too slow.
#[test]
fn what_is_offered_does_not_depend_on_the_device() {
    let path = std::env::temp_dir().join(format!("txq-offered-{}.toml", std::process::id()));
    let file = path.display().to_string();
    let shaped = "qdisc = \"tbf rate 1mbit burst 1600 limit 1mb\"\npool.buffers = 64";
    for (device, rate, packet, batch) in [
        (shaped, "120mbit", 1500_u64, 1),
        (shaped, "500kpps", 60, 32),
        ("qdisc = \"noqueue\"", "1gpps", 60, 32),
    ] {
        let sender =
            format!("[[sender]]\nthreads = 2\nbatch = {batch}\npacket = {packet}\nrate = \"{rate}\"\n");
        fs::write(&path, format!("[[device]]\n{device}\n{sender}")).expect("a file");
        let ended = good(txq(&["run", &file, "--duration", "200ms", "--json"]).finish(LONG));
        let (json, report) = (last_line(&ended), Report::of_output(&ended.stdout));
        assert_conserved(&report);
        let pps = json["asked"]["pps"].as_f64().expect("a rate");
        // A thread may hand in one batch more before it sees that the time is up.
        let least = (pps * 0.2) as u64;
        assert!(report.offered >= least, "{rate}: {json}");
        let offered = json["offered"]["pps"].as_f64().expect("a rate");
        let more = 4.0 * f64::from(batch) / report.offered as f64;
        assert!((0.999..=1.001 + more).contains(&(offered / pps)), "{rate}: {offered} of {pps}: {json}");
        let not_sent = report.refused + report.missed + report.all_dropped();
        assert_eq!(report.offered, report.sent + not_sent, "{rate}: {json}");
        let bytes = json["offered"]["bytes"].as_u64().expect("a count");
        assert_eq!(bytes, report.offered * packet, "{rate}: {json}");
    }
    fs::remove_file(&path).expect("the file");
}

/// Checks a run that a signal ends: in time, with a report of everything.
fn stopped_by(signal: libc::c_int, name: &str) {
    let mut running = txq(&["run", "--duration", "600s", "--json"]);
    // Wait for the first line of progress: signal handlers are installed by then.
    running.wait_for_text("queued", LONG);
    running.signal(signal);
    let ended = good(running.finish(LONG));
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    assert!(report.sent > 0, "{report:?}");
    assert_eq!(last_line(&ended)["stopped_by"], name);
}

#[test]
fn sigterm_ends_a_run_in_order() {
    stopped_by(libc::SIGTERM, "SIGTERM");
}

#[test]
fn sigint_ends_a_run_in_order() {
    stopped_by(libc::SIGINT, "SIGINT");
}

#[test]
fn what_cannot_leave_in_time_is_dropped_and_told() {
    let file = std::env::temp_dir().join(format!("txq-slow-{}.toml", std::process::id()));
    // One packet takes a tenth of a second, and a packet arrives each millisecond.
    let text =
        "[[device]]\nnull = { rate = \"10kbit\", ring = 1 }\n[[sender]]\nrate = \"1kpps\"\npacket = 100\n";
    fs::write(&file, text).expect("a file");
    let mut running = txq(&["run", &file.display().to_string(), "--json"]);
    running.wait_for_text("queued", LONG);
    running.signal(libc::SIGTERM);
    let ended = good(running.finish(LONG));
    fs::remove_file(&file).expect("the file");
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    assert!(report.dropped["QUEUE_PURGE"] > 0, "{report:?}");
    assert_eq!(report.queued, 0, "{report:?}");
    // The packets that the link had time for, and one on its ring.
    assert!(report.sent as f64 <= 2.0 + report.seconds / 0.08, "{report:?}");
}

/// Classes by filter: each sender's packets leave through its own class, at most at its rate.
#[test]
fn classes_and_filters_are_made_before_anything_is_sent() {
    let file = examples().join("classes.toml").display().to_string();
    let ended = good(txq(&["run", &file, "--duration", "500ms", "--json"]).finish(LONG));
    let json = last_line(&ended);
    let text = json.to_string();
    for class in ["1:10", "1:20"] {
        assert!(text.contains(&format!("\"{class}\"")), "{class}: {text}");
    }
    let path = std::env::temp_dir().join(format!("txq-classes-{}.toml", std::process::id()));
    let text = "[[device]]\nname = \"up\"\nqdisc = \"handle 1: htb\"\ntc = [\"class add parent 9: classid 9:1 htb rate 1mbit\"]\n[[sender]]\n";
    fs::write(&path, text).expect("a file");
    let ended = txq(&["run", &path.display().to_string()]).finish(LONG);
    fs::remove_file(&path).expect("the file");
    let said = "txq: device \"up\", tc \"class add parent 9: classid 9:1 htb rate 1mbit\": ";
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
}
