//! What a replay sends: every frame, as often as asked, in its order, at its pace, with its priority and mark.

use std::fs;
use std::time::{Duration, Instant};

use super::GAP;
use crate::socket::bench::{Bench, LONG, end};
use crate::support::check::{in_order, same_frames};
use crate::support::pcap::{ETHERNET, frames, pcap, read};
use crate::support::process::wait_until;

#[test]
fn every_frame_leaves_in_order_as_often_as_asked() {
    let (bench, frames) = (Bench::new(), frames(1000));
    let [file, out] = ["in.pcap", "out.pcap"].map(|name| bench.file(name).display().to_string());
    fs::write(&file, pcap(&frames, ETHERNET, GAP)).unwrap();
    let mut daemon = bench.daemon(
        &format!(
            "[[device]]\nname = \"out\"\npcap = {{ file = \"{out}\" }}\n\
             [[replay]]\nfile = \"{file}\"\nrate = \"max\"\nthreads = 3\nloop = 2\n"
        ),
        None,
    );
    daemon.wait_for_text("txq: the replay \"in\" has ended: 2000 frames sent, 0 refused", LONG);
    let bytes = 2 * frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    for (name, value) in [("frames", 2000), ("bytes", bytes), ("refused", 0), ("passes", 2)] {
        assert_eq!(bench.counter("out", &format!("replay_in_{name}")), value, "{name}");
    }
    assert!(wait_until(LONG, || bench.counter("out", "tx_packets") == 2000), "{}", bench.counters("out"));
    assert_eq!(bench.counter("out", "tx_bytes"), bytes);
    end(daemon);
    let written = read(&out);
    let twice = [frames.clone(), frames].concat();
    same_frames(&twice, &written).unwrap();
    in_order(&twice, &written).unwrap();
}

/// A recorded replay is never ahead of its times, and each of its frames is sent or refused.
#[test]
fn a_recorded_pace_is_kept() {
    let (bench, count) = (Bench::new(), 2000);
    let file = bench.file("in.pcap").display().to_string();
    fs::write(&file, pcap(&frames(count), ETHERNET, GAP)).unwrap();
    let begin = Instant::now();
    let mut daemon = bench.daemon(
        &format!("[[device]]\nname = \"a\"\n[[replay]]\nfile = \"{file}\"\nspeed = 0.5\nthreads = 2\n"),
        None,
    );
    daemon.wait_for_text("txq: the replay \"in\" has ended: ", LONG);
    let least = Duration::from_micros(u64::from(count - 1) * u64::from(GAP) * 2);
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    let of = |name: &str| bench.counter("a", &format!("replay_in_{name}"));
    assert_eq!((of("frames") + of("refused"), of("passes")), (u64::from(count), 1));
    assert_eq!(bench.counter("a", "accepted"), of("frames"));
    end(daemon);
}

/// The priority of one replay is a class, and the mark of another one selects it.
#[test]
fn packets_have_priority_and_mark() {
    let bench = Bench::new();
    let file = bench.file("in.pcap").display().to_string();
    fs::write(&file, pcap(&frames(50), ETHERNET, GAP)).unwrap();
    let replay = |name: &str, key: &str| {
        format!(
            "[[replay]]\nname = \"{name}\"\nfile = \"{file}\"\nrate = \"max\"\nlimit = 64\ncpus = [0]\n{key}\n"
        )
    };
    let text = format!(
        "[[device]]\nname = \"a\"\nqdisc = \"handle 1: htb\"\ntc = [\n\
         \"class add parent 1: classid 1:10 htb rate 1gbit\",\n\
         \"class add parent 1: classid 1:20 htb rate 1gbit\",\n\
         \"filter add parent 1: handle 7 fw classid 1:20\"]\n{}{}",
        replay("first", "priority = 65552"),
        replay("second", "mark = 7\nloop = 2")
    );
    let mut daemon = bench.daemon(&text, None);
    daemon.wait_for_text("\"first\" has ended: 50 frames", LONG);
    daemon.wait_for_text("\"second\" has ended: 100 frames", LONG);
    assert!(wait_until(LONG, || bench.counter("a", "tx_packets") == 150));
    let (shown, rc) = bench.txq("tc -s class show dev a");
    let sent = |class: &str| {
        let at = shown.find(&format!("class htb {class} ")).unwrap_or_else(|| panic!("{shown}"));
        let words: Vec<_> = shown[at..].lines().nth(1).unwrap().split_whitespace().collect();
        words[3].parse::<u64>().unwrap()
    };
    assert_eq!((rc, sent("1:10"), sent("1:20")), (0, 50, 100), "{shown}");
    end(daemon);
}

/// An error is found where the replay meets it: all frames before it are sent, by each thread, and it is said.
#[test]
fn frames_before_an_error_are_sent() {
    let (bench, frames) = (Bench::new(), frames(400));
    let [file, out] = ["in.pcap", "out.pcap"].map(|name| bench.file(name).display().to_string());
    let whole = pcap(&frames, ETHERNET, GAP);
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let mut daemon = bench.daemon(
        &format!(
            "[[device]]\nname = \"out\"\npcap = {{ file = \"{out}\" }}\n\
             [[replay]]\nfile = \"{file}\"\nrate = \"max\"\nthreads = 3\nloop = 0\n"
        ),
        None,
    );
    let said = format!(
        "txq: the replay \"in\" has ended: 399 frames sent, 0 refused: capture \"{file}\", frame 400 at byte {}: the file ends within it",
        whole.len() - frames[399].len() - 16
    );
    daemon.wait_for_text(&said, LONG);
    assert!(wait_until(LONG, || bench.counter("out", "tx_packets") == 399), "{}", bench.counters("out"));
    end(daemon);
    same_frames(&frames[..399], &read(&out)).unwrap();
    in_order(&frames[..399], &read(&out)).unwrap();
}

/// A file of 10 GB, most of it empty records, plays in little memory from the start on, and a reload does not read it.
#[test]
fn a_sparse_file_takes_little_memory() {
    let bench = Bench::new();
    let file = bench.file("in.pcap").display().to_string();
    fs::write(&file, pcap(&frames(20), ETHERNET, GAP)).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_len(10 << 30).unwrap();
    let text = format!("[[device]]\nname = \"a\"\n[[replay]]\nfile = \"{file}\"\nrate = \"max\"\n");
    let daemon = bench.daemon(&text, None);
    let passed = |frames: u64| wait_until(LONG, || bench.counter("a", "replay_in_frames") > frames);
    assert!(passed(20_000));
    let before = daemon.status("VmRSS:");
    bench.write(&text.replace("rate = \"max\"", "rate = \"max\"\nthreads = 2"));
    assert!(bench.txq("reload").0.contains("the replay \"in\" is started"));
    assert!(passed(50_000));
    let after = daemon.status("VmRSS:");
    assert!(after < before + (8 << 10) && after < 60 << 10, "{before} and {after} KiB");
    end(daemon);
}

/// A frame that the device's buffers are too short for is left out, counted and said.
#[test]
fn frames_without_room_are_left_out() {
    let (bench, mut frames) = (Bench::new(), frames(30));
    frames[7].resize(9000, 0);
    let file = bench.file("in.pcap").display().to_string();
    fs::write(&file, pcap(&frames, ETHERNET, GAP)).unwrap();
    let text = format!("[[device]]\nname = \"a\"\n[[replay]]\nfile = \"{file}\"\n");
    let mut daemon = bench.daemon(&text, None);
    daemon
        .wait_for_text("frame 8 and all that are as long are left out: its 9000 bytes do not fit into", LONG);
    daemon.wait_for_text("\"in\" has ended: 29 frames sent, 0 refused\n", LONG);
    assert_eq!(bench.counter("a", "replay_in_too_long"), 1);
    end(daemon);
    let mut daemon = bench.daemon(&text.replace("[[replay]]", "pool.room = 9000\n[[replay]]"), None);
    daemon.wait_for_text("\"in\" has ended: 30 frames sent, 0 refused\n", LONG);
    end(daemon);
}

/// Frames that the file lacks or has in part are said after the first pass.
#[test]
fn what_a_capture_lacks_is_said() {
    let bench = Bench::new();
    let file = bench.file("in.pcap").display().to_string();
    let mut bytes = pcap(&frames(3), ETHERNET, GAP);
    // The first frame was longer on the wire, and the second has a time of tomorrow.
    bytes[24 + 12..24 + 16].copy_from_slice(&1514_u32.to_le_bytes());
    let second = 24 + 16 + frames(3)[0].len();
    bytes[second..second + 4].copy_from_slice(&86_400_u32.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let text =
        format!("[[device]]\nname = \"a\"\n[[replay]]\nfile = \"{file}\"\nmax_gap = \"1ms\"\nloop = 0\n");
    let mut daemon = bench.daemon(&text, None);
    daemon.wait_for_text("in.pcap: 1 of 3 frames were captured in part and are sent so", LONG);
    daemon.wait_for_text("2 gaps between frames are longer than 1ms, or negative: max-gap bounds them", LONG);
    end(daemon);
}
