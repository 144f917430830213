//! What a replay sends: every frame, as often as asked, in its order, at its pace, with its priority and mark.

use std::fs;
use std::time::{Duration, Instant};

use txq_device::Capture;

use super::GAP;
use crate::socket::bench::{Bench, LONG, end};
use crate::support::check::{in_order, same_frames};
use crate::support::pcap::{ETHERNET, frames, pcap};
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
    let written = Capture::open(&out).unwrap();
    let written: Vec<_> = written.frames().map(|frame| frame.unwrap().data.to_vec()).collect();
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
