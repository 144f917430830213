//! Programs that do not answer: commands end, and say why.

use std::os::unix::net::UnixStream;

use serde_json::Value;

use super::{LONG, Place, wait_for};
use crate::support::process::Running;

#[test]
fn a_stopped_program_is_named() {
    let place = Place::new();
    let daemon = place.daemon("--name lab");
    let pid = daemon.status("Pid:");
    place.good("dev --name lab add d0");
    daemon.signal(libc::SIGSTOP);
    let stopped =
        format!("no answer within 200ms: process {pid} is stopped: `kill -CONT {pid}` continues it");
    for command in ["tc --name lab --timeout 200ms qdisc", "dev --name lab --timeout 200ms show"] {
        wait_for("the stop", || place.refused(command).contains(&stopped));
    }
    for command in [
        "contention --name lab --duration 1ms --timeout 200ms",
        "hist --name lab --duration 1ms --timeout=200ms",
    ] {
        assert!(place.refused(command).contains(&stopped), "{command}");
    }
    let listed: Value = serde_json::from_str(&place.good("ls --json --timeout 200ms")).expect("JSON");
    assert_eq!((listed[0]["state"].as_str(), listed[0]["pid"].as_u64()), (Some("silent"), Some(pid)));
    // With more connections than the kernel keeps for a server, even connecting waits.
    let path = place.socket("lab");
    let mut waiting = Vec::new();
    while waiting.len() < 1000 {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        );
        let socket = socket.expect("a socket");
        let address = rustix::net::SocketAddrUnix::new(&path).expect("an address");
        if rustix::net::connect(&socket, &address).is_err() {
            break;
        }
        waiting.push(UnixStream::from(socket));
    }
    assert!(waiting.len() < 1000, "the kernel keeps that many");
    let full = place.refused("tc --name lab --timeout 200ms qdisc");
    assert!(full.contains("no answer within 200ms: its process is busy or stuck"), "{full}");
    daemon.signal(libc::SIGCONT);
    assert!(place.good("tc --name lab --timeout 120s qdisc").starts_with("qdisc pfifo_fast"));
    drop(waiting);
    daemon.signal(libc::SIGTERM);
    assert!(daemon.finish(LONG).status.success());
}

#[test]
fn a_command_that_is_too_long_is_refused() {
    let place = Place::new();
    let _daemon = place.daemon("");
    let mut command = place.command("tc qdisc show");
    // Beyond 256 KiB together; the system passes words of up to 128 KiB.
    command.args(["x".repeat(100_000), "y".repeat(100_000), "z".repeat(100_000)]);
    let ended = Running::start(&mut command).finish(LONG);
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stderr, "a request is longer than 262144 bytes\n");
}
