//! txq's main job, from outside: several threads replay real captured traffic through the transmit path into an interface.
//! The frames that arrive, the kernel's counters and the command's report must agree to the packet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::support::capture::{self, Capture};
use crate::support::check::{flows, in_order, same_frames};
use crate::support::netns::{Counters, Netns};
use crate::support::process::Running;
use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::support::replay::Replay;
use crate::support::report::{Report, assert_conserved};
use crate::support::skip::{require_root, require_tools};
use crate::support::tempdir::TempDir;

/// Four senders share two queues: none has a queue to itself, so a discipline is needed.
const PATH: &str = "--threads 4 --txqs 2 --xps none --qdisc mq";
/// Queues for the whole file: nothing is dropped however late a busy machine hands frames in.
const ROOMY: &str = "--default-qdisc pfifo~limit~10000";
/// Traffic that lasts until it is stopped; the duration only ends a test that went wrong.
const ENDLESS: &str = "--loop 1000000 --duration 300s";
/// How long a busy machine may need for work of a second on a quiet one.
const LONG: Duration = Duration::from_secs(60);

/// Two namespaces joined by a veth pair, tx0 in one and rx0 in the other.
struct Bench {
    near: Netns,
    far: Netns,
    folder: TempDir,
    before: Counters,
    /// The tests measure time on few CPUs and would disturb each other.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// Returns `None` if the machine cannot run the test.
    fn new(test: &str) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !(require_root(test) && require_tools(test, &capture::TOOLS) && require_tools(test, &["tc"])) {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", 2);
        let before = near.counters("tx0");
        Some(Self { near, far, folder: TempDir::new(), before, _alone: alone })
    }

    fn replay(&self, options: &str) -> Replay {
        let file = Capture::get().write_pcap(self.folder.path());
        Replay::start(&self.near, &file, "tx0", &format!("{PATH} {options}"))
    }

    /// Checks that the packets and bytes reported as sent equal those that left the interface.
    #[track_caller]
    fn assert_sent_is_true(&self, report: &Report) {
        let counted = self.near.counters("tx0").since(self.before);
        assert_eq!((report.sent, report.bytes_sent), (counted.tx_packets, counted.tx_bytes), "{report:?}");
    }
}

#[test]
fn the_capture_is_real() {
    if Bench::new("the_capture_is_real").is_none() {
        return;
    }
    let capture = Capture::get();
    let protocols = |protocol: u8| {
        capture.frames.iter().filter(move |frame| frame[12..14] == [8, 0] && frame[23] == protocol)
    };
    for (name, protocol, least) in [("ping", 1, 40), ("TCP", 6, 2500), ("UDP", 17, 1000)] {
        let count = protocols(protocol).count();
        assert!(count >= least, "{count} frames of {name}");
    }
    let asks =
        |frame: &&Vec<u8>| frame[36..38] == [0, 53] && frame.windows(7).any(|bytes| bytes == b"example");
    assert_eq!(protocols(17).filter(asks).count(), 3, "DNS queries");
    assert!(flows(&capture.frames) >= 20, "{} flows", flows(&capture.frames));
}

/// Replays the file once, through queues with room for all of it.
fn replay_whole(bench: &Bench, replay: impl FnOnce() -> Replay) -> Report {
    let capture = Capture::get();
    let receiver = Receiver::start(&bench.far, "rx0");
    let report = replay().finish(LONG);
    let arrived = receiver.finish();
    assert_conserved(&report);
    bench.assert_sent_is_true(&report);
    assert_eq!(report.sent, capture.frames.len() as u64, "{report:?}");
    assert!(report.queues.iter().all(|queue| queue.packets > 0), "a queue was not used: {report:?}");
    same_frames(&capture.frames, &arrived).expect("every frame byte for byte");
    in_order(&capture.frames, &arrived).expect("in order within each flow");
    report
}

#[test]
fn every_frame_arrives_in_order_with_llist() {
    let Some(bench) = Bench::new("every_frame_arrives_in_order_with_llist") else { return };
    replay_whole(&bench, || bench.replay(&format!("--discipline llist --rate 20kpps --loop 1 {ROOMY}")));
}

#[test]
fn every_frame_arrives_in_order_with_spinlock() {
    let Some(bench) = Bench::new("every_frame_arrives_in_order_with_spinlock") else { return };
    replay_whole(&bench, || bench.replay(&format!("--discipline spinlock --rate 20kpps --loop 1 {ROOMY}")));
}

#[test]
fn every_frame_of_a_pcapng_arrives_as_recorded() {
    let Some(bench) = Bench::new("every_frame_of_a_pcapng_arrives_as_recorded") else { return };
    let capture = Capture::get();
    let file = capture.write_pcapng(bench.folder.path());
    let options = format!("{PATH} --discipline llist --rate recorded --loop 1 {ROOMY}");
    let report = replay_whole(&bench, || Replay::start(&bench.near, &file, "tx0", &options));
    let (took, recorded) = (report.seconds, capture.span().as_secs_f64());
    assert!(took > 0.9 * recorded, "{took} s to replay what took {recorded} s");
}

#[test]
fn ten_times_too_much_is_dropped_and_accounted_for() {
    let Some(bench) = Bench::new("ten_times_too_much_is_dropped_and_accounted_for") else { return };
    let capture = Capture::get();
    // A limit below the socket's send buffer: tbf refuses before the socket holds the sender back.
    bench.near.tc("qdisc add dev tx0 root tbf rate 10mbit burst 10kb limit 30kb");
    let receiver = Receiver::start(&bench.far, "rx0");
    let replay = bench.replay("--kernel-qdisc --discipline llist --rate 100mbit --loop 1");
    let report = replay.finish(LONG);
    // Packets that tbf accepted belong to the kernel; they leave at tbf's rate after the command has ended.
    let drained = wait_until(LONG, || bench.near.root_qdisc("tx0")["backlog"] == 0);
    assert!(drained, "{}", bench.near.root_qdisc("tx0"));
    let arrived = receiver.finish();

    assert_conserved(&report);
    bench.assert_sent_is_true(&report);
    assert_eq!(report.offered, capture.frames.len() as u64, "{report:?}");
    assert!(report.all_dropped() > 0, "nothing was dropped: {report:?}");
    assert_eq!(report.sent, arrived.len() as u64, "{report:?}");
    // tbf counts each refusal as a drop, but the kernel never owned a refused frame: it is tried again or dropped here.
    let tbf = bench.near.root_qdisc("tx0");
    assert_eq!(tbf["packets"], report.sent, "{tbf}");
    assert!(tbf["drops"].as_u64() > Some(0), "tbf never refused: {tbf}");
    in_order(&capture.frames, &arrived).expect("in order within each flow");
}

#[test]
fn the_far_end_may_go_away_and_come_back() {
    let Some(bench) = Bench::new("the_far_end_may_go_away_and_come_back") else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let replay = bench.replay(&format!("--discipline llist --rate 20kpps {ENDLESS}"));
    receiver.wait_for_more(5000, LONG);

    bench.far.ip("link set rx0 down");
    let unplugged = bench.near.counters("tx0");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(unplugged, bench.near.counters("tx0"), "frames left although nothing takes them");

    bench.far.ip("link set rx0 up");
    receiver.wait_for_more(5000, LONG);
    replay.signal(libc::SIGTERM);
    let report = replay.finish(LONG);
    let arrived = receiver.finish();
    assert_conserved(&report);
    bench.assert_sent_is_true(&report);
    assert!(arrived.len() as u64 <= report.sent, "{} arrived: {report:?}", arrived.len());
    // Only packets in the far CPU's backlog (net.core.netdev_max_backlog) at the moment of the cut can be lost.
    assert!(report.sent - arrived.len() as u64 <= 1000, "{} arrived: {report:?}", arrived.len());
}

/// Packets for an interface that is down would wait until somebody starts it.
#[test]
fn an_interface_that_is_down_is_said_at_once() {
    let Some(bench) = Bench::new("an_interface_that_is_down_is_said_at_once") else { return };
    bench.near.ip("link set tx0 down");
    let file = Capture::get().write_pcap(bench.folder.path());
    let mut command = bench.near.command(env!("CARGO_BIN_EXE_txq"));
    let ended = Running::start(command.arg("replay").arg(file).args(["--dev", "tx0"])).finish(LONG);
    assert_eq!(ended.status.code(), Some(2), "{}{}", ended.stdout, ended.stderr);
    let text = "txq: interface \"tx0\" is down: `ip link set tx0 up` starts it\n";
    assert_eq!(ended.stderr, text);
}

/// Stops a long replay half way through.
fn stop(test: &str, signal: libc::c_int) {
    let Some(bench) = Bench::new(test) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let replay = bench.replay(&format!("--discipline llist --rate 20kpps {ENDLESS}"));
    receiver.wait_for_more(8000, LONG);
    replay.signal(signal);
    let report = replay.finish(LONG);
    let arrived = receiver.finish();
    assert_conserved(&report);
    bench.assert_sent_is_true(&report);
    assert_eq!(report.sent, arrived.len() as u64, "{report:?}");
}

#[test]
fn sigterm_stops_in_order() {
    stop("sigterm_stops_in_order", libc::SIGTERM);
}

#[test]
fn sigint_stops_in_order() {
    stop("sigint_stops_in_order", libc::SIGINT);
}
