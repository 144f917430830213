//! The daemon under a service manager: systemd's protocol of notifications (sd_notify(3)).

use std::os::unix::net::UnixDatagram;

use super::{LONG, Place};
use crate::support::process::Running;

#[test]
fn the_manager_hears_that_the_daemon_serves_lives_and_ends() {
    let place = Place::new();
    let path = place.0.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    let hear = || {
        let mut buffer = [0; 1000];
        let length = socket.recv(&mut buffer).expect("a notification");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    };
    let mut command = place.command("daemon --quiet");
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000");
    let daemon = Running::start(&mut command);
    let ready = hear();
    assert!(ready.starts_with("READY=1\nSTATUS=serving /"), "{ready}");
    // It serves by now.
    place.good("tc qdisc show");
    assert_eq!([hear(), hear(), hear()], ["WATCHDOG=1"; 3]);
    daemon.signal(libc::SIGTERM);
    while hear() != "STOPPING=1" {}
    assert!(daemon.finish(LONG).status.success());
}
