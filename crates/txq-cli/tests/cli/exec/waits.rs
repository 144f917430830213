//! Programs that wait until a socket has room: the qdisc is seen by `poll`, `select` and `epoll`.

use std::path::Path;

use super::{Bench, LONG, counters, end, report};
use crate::support::process::{Running, run};
use crate::support::skip::require_tools;

/// A datagram of `waits.c` takes an eighth of a second.
const SLOW: &str = "tbf rate 64kbit burst 1600 limit 10mb";

#[test]
fn a_full_socket_is_writable_when_it_has_room() {
    let bench = Bench::new();
    let Some(program) = bench.compile("waits", "waits") else { return };
    for call in ["poll", "ppoll", "many", "select", "pselect", "level", "edge", "pwait2"] {
        // With a qdisc for both ways the same stand-in answers for room and for input.
        let down = if ["many", "pselect", "level"].contains(&call) { "pfifo" } else { "netem delay 1ms" };
        let mut command = bench.exec(SLOW);
        let ended = end(command.args(["--down", down, "--drain", "60s", "--"]).arg(&program).arg(call));
        assert_eq!(
            (ended.status.code(), ended.stdout.as_str()),
            (Some(0), "full\n8\n"),
            "{call}: {}",
            ended.stderr
        );
        let report = report(&ended);
        assert_eq!(counters(&report)["sent"], 8, "{call}: {report}");
    }
}

/// Datagrams that a qdisc drops wake nobody by themselves.
#[test]
fn a_socket_whose_datagrams_are_dropped_is_writable() {
    let bench = Bench::new();
    let Some(program) = bench.compile("waits", "waits") else { return };
    for call in ["poll", "select", "level"] {
        let mut command = bench.exec("tbf rate 8bit burst 1600 limit 10mb");
        let mut running = Running::start(command.args(["--name", "held", "--"]).arg(&program).arg(call));
        running.wait_for_text("full", LONG);
        run(bench.txq().args("tc --name held qdisc replace dev udp0 root pfifo".split(' ')));
        let ended = running.finish(LONG);
        assert_eq!(ended.status.code(), Some(0), "{call}: {}", ended.stderr);
        let report = report(&ended);
        let process = counters(&report);
        assert_eq!((&process["accepted"], &process["queued"]), (&8.into(), &0.into()), "{call}: {report}");
    }
}

#[test]
fn event_loops_in_python_send_what_is_reported_as_possible() {
    if !require_tools("selectors", &["python3"]) {
        return;
    }
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exec_programs/event_loops.py");
    let ended = end(bench.exec(SLOW).args(["--drain", "60s", "--", "python3"]).arg(script));
    let expected = "PollSelector 8 0\nSelectSelector 8 0\nEpollSelector 8 0\n";
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), expected), "{}", ended.stderr);
    let report = report(&ended);
    assert_eq!(counters(&report)["sent"], 24, "{report}");
}
