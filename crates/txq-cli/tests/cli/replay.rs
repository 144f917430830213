//! `txq replay` from file to file: no frame is lost or changed, flows keep their order, and times are kept.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::check::{flows, in_order, same_frames};
use crate::support::pcap::{ETHERNET, FLOWS, RAW, frames, pcap, read};
use crate::support::process::{Running, wait_until};
use crate::support::report::{Report, assert_conserved};
use crate::support::tempdir::TempDir;

const LONG: Duration = Duration::from_secs(120);
const FRAMES: u32 = 3000;
/// Time between two frames of the file, in microseconds.
const GAP: u32 = 200;

/// Replays the frames with some options; returns the report and the written frames.
fn replay(frames: &[Vec<u8>], options: &str) -> (Value, Report, Vec<Vec<u8>>) {
    replay_as(ETHERNET, frames, options)
}

fn replay_as(link: u32, frames: &[Vec<u8>], options: &str) -> (Value, Report, Vec<Vec<u8>>) {
    let folder = TempDir::new();
    let (file, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    fs::write(&file, pcap(frames, link, GAP)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    command.arg("replay").arg(&file).args(["--json", "--dev", &format!("pcap:{}", out.display())]);
    let ended = Running::start(command.args(options.split_whitespace())).finish(LONG);
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    let json = serde_json::from_str(ended.stdout.lines().last().expect("a line")).expect("JSON");
    (json, report, read(&out))
}

#[test]
fn every_frame_is_written_and_flows_keep_their_order() {
    let frames = frames(FRAMES);
    assert_eq!(flows(&frames), FLOWS as usize);
    for options in [
        "",
        "--threads 4 --txqs 2",
        "--threads 4 --txqs 2 --xps none",
        "--threads 4 --txqs 2 --discipline spinlock",
        "--threads 3 --txqs 4 --xps auto --qdisc mq --default-qdisc pfifo",
        "--threads 2 --txqs 2 --qdisc noqueue",
        "--threads 64 --txqs 3 --buffers 200",
    ] {
        let (_, report, written) = replay(&frames, options);
        assert_eq!(report.sent, frames.len() as u64, "{options}: {report:?}");
        same_frames(&frames, &written).unwrap_or_else(|error| panic!("{options}: {error}"));
        in_order(&frames, &written).unwrap_or_else(|error| panic!("{options}: {error}"));
    }
}

/// At a rate the qdisc drops frames that a busy machine hands in too late; all other frames are written.
/// Their flows are those of the IP headers, and the written file says what its packets begin with.
#[test]
fn packets_that_begin_with_ip_keep_their_order() {
    const HEADER: usize = 14;
    let frames = frames(FRAMES);
    let packets: Vec<Vec<u8>> = frames.iter().map(|frame| frame[HEADER..].to_vec()).collect();
    let options = "--threads 4 --txqs 3 --default-qdisc fq_codel --qdisc mq --xps none";
    let (_, _, written) = replay_as(RAW, &packets, options);
    let header = &frames[0][..HEADER];
    let written: Vec<Vec<u8>> = written.iter().map(|packet| [header, packet].concat()).collect();
    same_frames(&frames, &written).unwrap();
    in_order(&frames, &written).unwrap();
}

#[test]
fn packets_without_the_headers_that_an_interface_needs_are_refused() {
    let folder = TempDir::new();
    let file = folder.path().join("in.pcap");
    fs::write(&file, pcap(&[vec![0x45; 40]], RAW, GAP)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    let ended = Running::start(command.arg("replay").arg(&file).args(["--dev", "lo"])).finish(LONG);
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.stdout, ended.stderr);
    let text = "the packets begin with ip, and those of device \"lo\" with ethernet: send them through";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
}

#[test]
fn frames_at_a_rate_are_written_in_order_or_dropped() {
    let frames = frames(FRAMES);
    for options in ["--threads 4 --qdisc pfifo --rate 300kpps", "--threads 2 --txqs 2 --rate 1gbit"] {
        let (_, report, written) = replay(&frames, options);
        assert_eq!(
            (report.offered, report.missed, report.queued),
            (frames.len() as u64, 0, 0),
            "{options}: {report:?}"
        );
        assert_eq!(report.sent, written.len() as u64, "{options}: {report:?}");
        in_order(&frames, &written).unwrap_or_else(|error| panic!("{options}: {error}"));
    }
}

#[test]
fn a_file_is_repeated() {
    let (_, report, written) = replay(&frames(FRAMES)[..100], "--loop 7 --threads 3");
    assert_eq!((report.accepted, written.len()), (700, 700), "{report:?}");
    let (json, report, _) = replay(&frames(FRAMES)[..100], "--loop 0 --rate 10kpps --duration 300ms");
    assert_eq!(json["stopped_by"], "duration");
    assert!(report.offered >= 3000, "{report:?}");
    let offered = json["offered"]["pps"].as_f64().expect("a rate");
    assert!((10_000.0 * 0.999..=10_000.0 + 2.0 * 32.0 / 0.3).contains(&offered), "{json}");
}

#[test]
fn time_is_kept() {
    let frames = frames(FRAMES);
    let bits = frames.iter().map(Vec::len).sum::<usize>() as f64 * 8.0;
    for (options, asked, seconds) in [
        ("--rate 6kpps --threads 4", FRAMES as f64, 0.5),
        ("--rate 40mbit --threads 2 --txqs 2", FRAMES as f64, bits / 40e6),
        ("--rate recorded --threads 4", FRAMES as f64, f64::from(FRAMES * GAP) / 1e6),
    ] {
        let (json, report, _) = replay(&frames, options);
        assert_eq!((report.offered as f64, report.missed), (asked, 0), "{options}");
        assert!(report.seconds >= seconds * 0.99, "{options}: {seconds} {report:?}");
        let pps = json["asked"]["pps"].as_f64().expect("a rate");
        assert!((pps * seconds / asked - 1.0).abs() < 0.01, "{options}: {json}");
        assert!(json["offered"]["pps"].as_f64().expect("a rate") < pps * 1.02, "{options}: {json}");
        assert!(json["behind_ns"]["max"].as_u64().is_some(), "{options}: {json}");
    }
}

/// There are as many samples as frames, and a quantile that needs more samples is absent.
#[test]
fn quantiles_need_samples() {
    let frames = frames(FRAMES);
    for (count, known) in [(1, 0), (3, 1), (20, 2), (200, 3), (2000, 4)] {
        let (json, _, _) = replay(&frames[..count], "--rate 1mpps --qdisc noqueue");
        for latency in [&json["latency_ns"], &json["completion_latency_ns"]] {
            assert_eq!(latency["samples"], count, "{json}");
            let quantiles = ["p50", "p90", "p99", "p999"].map(|key| latency[key].is_number());
            assert_eq!(quantiles, [0, 1, 2, 3].map(|index| index < known), "{json}");
            assert!(latency["max"].is_number(), "{json}");
        }
    }
}

#[test]
fn what_a_qdisc_refuses_is_counted() {
    let folder = TempDir::new();
    let file = folder.path().join("in.pcap");
    fs::write(&file, pcap(&frames(FRAMES), ETHERNET, GAP)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    command.arg("replay").arg(&file).args(["--json", "--threads", "2", "--qdisc", "pfifo limit 5"]);
    let report = Report::of_output(&Running::start(&mut command).finish(LONG).stdout);
    assert_conserved(&report);
    // Batches of 32 meet a limit of 5 packets; the first batch finds the qdisc empty.
    assert_eq!(report.accepted, u64::from(FRAMES), "{report:?}");
    assert!(report.dropped["QDISC_OVERLIMIT"] > 0 && report.sent >= 5, "{report:?}");
}

/// A shaper keeps the few buffers for longer than the time between two frames. The frames are offered at their times all
/// the same.
#[test]
fn frames_at_a_rate_do_not_wait_for_buffers() {
    let folder = TempDir::new();
    let file = folder.path().join("in.pcap");
    fs::write(&file, pcap(&frames(FRAMES), ETHERNET, GAP)).expect("a file");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        command.arg("replay").arg(&file).args(["--buffers", "4", "--rate", "10kpps"]).args(arguments);
        Running::start(command.args(["--qdisc", "tbf rate 12kbit burst 1600 limit 100k"])).finish(LONG)
    };
    let ended = run(&["--json"]);
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    // In the time that a test may take, the shaper lets less than a tenth of the 2 MB pass.
    assert_eq!((report.offered, report.missed), (u64::from(FRAMES), 0), "{report:?}");
    assert!(report.sent > 0 && report.refused > 1000, "{report:?}");
    let json: Value = serde_json::from_str(ended.stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!(json["waits_for_buffers"], 0, "{json}");
    let bytes = |key: &str| json[key]["bytes"].as_u64().unwrap_or_else(|| panic!("no bytes {key} in {json}"));
    assert_eq!(
        bytes("offered"),
        frames(FRAMES).iter().map(|frame| frame.len() as u64).sum::<u64>(),
        "{json}"
    );
    assert!(bytes("refused") > 0 && bytes("missed") == 0, "{json}");
    let text = run(&["--loop", "1"]).stdout;
    let line = text.lines().find(|line| line.starts_with("offered     3000 = accepted ")).expect("a line");
    assert!(line.contains(" for want of a buffer + missed 0 for want of time"), "{text}");
    assert!(text.contains("offered ") && text.contains(", refused ") && text.contains(", sent "), "{text}");
}

/// Over UDP each frame is the payload of a datagram.
#[test]
fn frames_go_over_udp() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_read_timeout(Some(LONG)).expect("a timeout");
    let frames: Vec<Vec<u8>> = frames(FRAMES).into_iter().take(60).collect();
    let folder = TempDir::new();
    let file = folder.path().join("in.pcap");
    fs::write(&file, pcap(&frames, ETHERNET, GAP)).expect("a file");
    let to = format!("udp:{}", peer.local_addr().expect("an address"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    let command = command.arg("replay").arg(&file).args(["--json", "--dev", &to, "--qdisc", "fq_codel"]);
    let ended = Running::start(command).finish(LONG);
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_conserved(&Report::of_output(&ended.stdout));
    let mut bytes = [0; 65536];
    let mut arrived = || {
        let n = peer.recv(&mut bytes).expect("a datagram");
        bytes[..n].to_vec()
    };
    let arrived: Vec<Vec<u8>> = frames.iter().map(|_| arrived()).collect();
    same_frames(&frames, &arrived).unwrap();
    in_order(&frames, &arrived).unwrap();
}

#[test]
fn a_device_that_cannot_be_named_is_refused() {
    let folder = TempDir::new();
    let file = folder.path().join("in.pcap");
    fs::write(&file, pcap(&frames(FRAMES)[..1], ETHERNET, GAP)).expect("a file");
    for (dev, text) in [
        ("udp:nowhere", "--dev udp:nowhere: use udp:ADDRESS:PORT, such as udp:192.0.2.1:4789"),
        ("udp:", "--dev \"udp:\" names no device: use null, pcap:FILE, IFACE"),
        ("", "--dev \"\" names no device"),
        (
            "tun:vpn9",
            "the packets begin with ethernet, and those of device \"vpn9\" with ip: send them through an Ethernet",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        let ended = Running::start(command.arg("replay").arg(&file).args(["--dev", dev])).finish(LONG);
        assert_eq!(ended.status.code(), Some(1), "{dev}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(text), "{dev}: {}", ended.stderr);
    }
}

/// A file at the limit of its size is an error that the report names, and not the end of the process by a signal.
#[test]
fn a_file_at_its_limit_is_an_error() {
    let folder = TempDir::new();
    let (file, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    fs::write(&file, pcap(&frames(FRAMES), ETHERNET, GAP)).expect("a file");
    let txq = env!("CARGO_BIN_EXE_txq");
    let script =
        format!("ulimit -f 8; exec {txq} replay {} --rate max --dev pcap:{}", file.display(), out.display());
    let ended = Running::start(Command::new("sh").args(["-c", &script])).finish(LONG);
    assert!(
        ended.status.code().is_some() && ended.stderr.contains("File too large"),
        "{:?}: {}",
        ended.status,
        ended.stderr
    );
}

/// A capture is read as it is sent: one of 1 GiB takes no more memory than its window, the pool and the program.
#[test]
fn a_long_capture_takes_little_memory() {
    const FRAME_BYTES: u64 = 200_000;
    const FRAMES: u64 = (1 << 30) / FRAME_BYTES;
    let folder = TempDir::new();
    let path = folder.path().join("long.pcap");
    let file = fs::File::create(&path).expect("a file");
    let write = |words: &[u32], at: u64| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, at).expect("room for a header");
    };
    write(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, ETHERNET], 0);
    // The frames are holes of the file.
    for n in 0..FRAMES {
        write(&[0, 0, FRAME_BYTES as u32, FRAME_BYTES as u32], 24 + n * (16 + FRAME_BYTES));
    }
    file.set_len(24 + FRAMES * (16 + FRAME_BYTES)).expect("a sparse file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
    command.arg("replay").arg(&path).args(["--json", "--buffers", "32"]);
    let mut running = Running::start(&mut command);
    let mut most = 0;
    assert!(wait_until(LONG, || {
        most = most.max(running.try_status("VmHWM:").unwrap_or(0));
        running.has_ended()
    }));
    let report = Report::of_output(&running.finish(LONG).stdout);
    assert_conserved(&report);
    assert_eq!(report.sent, FRAMES, "{report:?}");
    // The pool has 7 MiB.
    assert!((1..40 << 10).contains(&most), "{most} KiB");
}

/// Two captures of the same frames, one of which is several windows long, are sent in the same order by any number of threads.
#[test]
fn what_is_sent_does_not_depend_on_the_window() {
    let frames = frames(FRAMES);
    assert!(frames.iter().map(Vec::len).sum::<usize>() > 4 * (128 << 10));
    for options in ["--rate max", "--rate recorded --speed 100", "--loop 3 --threads 3"] {
        let (_, report, written) = replay(&frames, options);
        let all: Vec<_> =
            std::iter::repeat_n(&frames, written.len() / frames.len()).flatten().cloned().collect();
        assert_eq!(report.sent, written.len() as u64, "{options}: {report:?}");
        same_frames(&all, &written).unwrap_or_else(|error| panic!("{options}: {error}"));
        in_order(&all, &written).unwrap_or_else(|error| panic!("{options}: {error}"));
    }
}
