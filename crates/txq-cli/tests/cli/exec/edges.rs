//! Calls at the edge of what the kernel accepts: the results are those without txq.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use super::{Bench, LONG, Receiver, end, report};
use crate::support::process::{run, wait_until};

/// Runs a case of `edges` without txq and with it, under qdiscs that send at once and later; asserts that it prints the same, and passes
/// the reports on.
#[track_caller]
fn compare(case: &str, each: impl Fn(&Bench, &Value)) {
    let bench = Bench::new();
    let Some(program) = bench.compile(case, "edges") else { return };
    let receiver = Receiver::start();
    let port = receiver.port.to_string();
    let bare = run(Command::new(&program).args([case, &port]));
    for (qdisc, down) in
        [("pfifo_fast", None), ("netem delay 2ms", None), ("pfifo_fast", Some("netem delay 1ms"))]
    {
        // A busy machine needs time for the end of a device.
        let mut command = bench.exec(qdisc);
        command.args(down.into_iter().flat_map(|down| ["--down", down]));
        let ended = end(command.args(["--drain", "60s", "--"]).arg(&program).args([case, &port]));
        let lines = bare.lines().zip(ended.stdout.lines()).enumerate();
        for (at, (bare, line)) in lines {
            let before: Vec<_> = ended.stdout.lines().take(at).skip(at.saturating_sub(5)).collect();
            assert_eq!(line, bare, "{qdisc}: after {before:#?}");
        }
        assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &bare), "{qdisc}: {}", ended.stderr);
        let report = report(&ended);
        for process in report["processes"].as_array().expect("processes") {
            assert_eq!((&process["event"], &process["queued"]), (&"ended".into(), &0.into()), "{report}");
            assert_eq!(process["accepted"], process["sent"], "{report}");
        }
        each(&bench, &report);
    }
}

fn sent(report: &Value) -> Option<u64> {
    report["processes"][0]["sent"].as_u64()
}

#[test]
fn the_numbers_of_txqs_descriptors_are_the_programs() {
    compare("numbers", |_, report| assert_eq!(sent(report), Some(5), "{report}"));
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on_and_ends() {
    compare("ranges", |_, report| assert_eq!(sent(report), Some(4), "{report}"));
}

#[test]
fn descriptors_that_hidden_calls_replace_carry_no_datagrams() {
    let bench = Bench::new();
    let Some(program) = bench.compile("unseen", "edges") else { return };
    let receiver = Receiver::start();
    let port = receiver.port.to_string();
    let bare = run(Command::new(&program).args(["unseen", &port]));
    let mut all = 4;
    for qdisc in ["pfifo_fast", "netem delay 2ms"] {
        let ended = end(bench.exec(qdisc).arg("--").arg(&program).args(["unseen", &port]));
        assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &bare), "{qdisc}: {}", ended.stderr);
        let report = report(&ended);
        let process = super::counters(&report);
        // A datagram that waits while all descriptors of its socket are closed is lost, and counted.
        assert_eq!((&process["accepted"], &process["queued"]), (&4.into(), &0.into()), "{report}");
        all += sent(&report).unwrap_or_default();
        assert!(wait_until(LONG, || receiver.datagrams() == all), "{} of {all}", receiver.datagrams());
    }
}

#[test]
fn calls_on_little_stacks_return() {
    compare("stacks", |_, report| assert_eq!(sent(report), Some(8), "{report}"));
}

#[test]
fn bad_pointers_are_errors_as_in_the_kernel() {
    compare("pointers", |_, report| assert!(sent(report) > Some(5), "{report}"));
}

#[test]
fn messages_of_too_many_parts_are_errors_as_in_the_kernel() {
    compare("parts", |_, report| assert!(sent(report) > Some(20), "{report}"));
}

#[test]
fn control_messages_of_any_length_are_errors_as_in_the_kernel() {
    compare("control", |_, report| assert!(sent(report) > Some(5), "{report}"));
}

#[test]
fn segments_that_the_kernel_refuses_are_refused() {
    compare("segments", |_, report| assert!(sent(report) > Some(100), "{report}"));
}

#[test]
fn a_program_that_restricts_itself_leaves_txq_first() {
    for case in ["filtered", "filtered_all"] {
        compare(case, |_, report| {
            assert_eq!(sent(report), Some(2), "{report}");
            assert!(report["notes"][0].as_str().unwrap_or_default().contains("seccomp"), "{report}");
        });
    }
}

#[test]
fn children_that_end_at_once_lose_no_datagrams_and_leave_no_sockets() {
    compare("children", |bench, report| {
        let processes = report["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 31, "{report}");
        assert!(processes.iter().all(|process| process["sent"] == 1), "{report}");
        let left: Vec<_> = std::fs::read_dir(bench.0.path().join("txq")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_child_that_no_library_knows_of_sends_past_the_qdisc() {
    let bench = Bench::new();
    let Some(program) = bench.compile("copied", "edges") else { return };
    let receiver = Receiver::start();
    let port = receiver.port.to_string();
    let bare = run(Command::new(&program).args(["copied", &port]));
    let ended = end(bench.exec("netem delay 2ms").arg("--").arg(&program).args(["copied", &port]));
    assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &bare), "{}", ended.stderr);
    let report = report(&ended);
    assert_eq!((sent(&report), report["processes"].as_array().map(Vec::len)), (Some(2), Some(1)), "{report}");
    // Two of the program and two of the child, without txq and with it.
    assert!(wait_until(LONG, || receiver.datagrams() == 8), "{}", receiver.datagrams());
}

/// A datagram that the kernel never takes is dropped after a while, and holds no other socket for ever.
#[test]
fn a_datagram_that_the_kernel_never_takes_ends_its_wait() {
    let bench = Bench::new();
    let Some(program) = bench.compile("refused", "edges") else { return };
    let receiver = Receiver::start();
    let port = receiver.port.to_string();
    let bare = run(Command::new(&program).args(["refused", &port]));
    for qdisc in ["pfifo_fast", "netem delay 2ms"] {
        let mut command = bench.exec(qdisc);
        let ended = end(command.args(["--drain", "60s", "--"]).arg(&program).args(["refused", &port]));
        assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &bare), "{qdisc}: {}", ended.stderr);
        let report = report(&ended);
        let process = super::counters(&report);
        assert_eq!(process["queued"], 0, "{report}");
    }
}

#[test]
fn a_program_on_tcp_is_told_so() {
    let bench = Bench::new();
    let Some(program) = bench.compile("stream", "edges") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let ended = end(bench.exec("fq").arg("--").arg(&program).args(["stream", &port]));
    let report = report(&ended);
    let note = report["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("TCP, which txq does not touch"), "{report}");
}
