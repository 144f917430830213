//! Clients in three languages before a real interface.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use txq_control::socket::{Client, Error, Reason};

use super::bench::{Bench, LONG, end};
use crate::support::netns::Netns;
use crate::support::process::{Running, run, wait_until};
use crate::support::receiver::Receiver;
use crate::support::skip::{require_root, require_tools};
use crate::support::socket_frame::frame;

/// Where the clients' sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/socket");

/// A daemon between a socket and one end of a veth; the other end is far.
struct Wired {
    bench: Bench,
    daemon: Running,
    far: Netns,
    _near: Netns,
}

impl Wired {
    fn new(test: &str, qdisc: &str, keys: &str) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip", "ethtool"])) {
            return None;
        }
        let (bench, near, far) = (Bench::new(), Netns::new(), Netns::new());
        near.connect("v0", &far, "v1", 1);
        let device = format!(
            "[[device]]\nname = \"wan\"\naf_packet = {{ interface = \"v0\" }}\nqdisc = \"{qdisc}\"\n"
        );
        let daemon = bench.daemon(&(device + &bench.socket("lan", keys)), Some(&near));
        Some(Self { bench, daemon, far, _near: near })
    }

    fn socket(&self) -> String {
        self.bench.file("lan.sock").display().to_string()
    }

    /// Runs a client that sends 500 frames of 700 bytes at 10 Mbit/s, and checks that they arrive whole, in order, and no faster.
    #[track_caller]
    fn sends(self, tag: u8, client: impl FnOnce(&str)) {
        let receiver = Receiver::start(&self.far, "v1");
        let before = Instant::now();
        client(&self.socket());
        let all = wait_until(LONG, || receiver.count() >= 500);
        let took = before.elapsed();
        let frames = receiver.finish();
        assert!(all && frames.len() == 500, "{} frames", frames.len());
        for (n, got) in (0..).zip(&frames) {
            assert_eq!(*got, frame(tag, n, 700));
        }
        // 2.8 Mbit less a burst of 10 kB.
        assert!(took >= Duration::from_millis(250), "{took:?} for 500 frames at 10 Mbit/s");
        self.bench.assert_over("wan", "lan");
        assert_eq!(self.bench.counter("wan", "tx_dropped"), 0);
        end(self.daemon);
        assert!(!self.bench.file("lan.sock").exists());
    }
}

const SHAPED: &str = "tbf rate 10mbit burst 10k limit 200k";

#[test]
fn a_rust_client_is_shaped() {
    let Some(wired) = Wired::new("a_rust_client_is_shaped", SHAPED, "slots = 64") else { return };
    wired.sends(1, |path| {
        let mut client = Client::connect(path).unwrap();
        (0..500).for_each(|n| client.send(&frame(1, n, 700), 2).unwrap());
    });
}

#[test]
fn a_c_client_is_shaped() {
    let test = "a_c_client_is_shaped";
    if !require_tools(test, &["cc"]) {
        return;
    }
    let Some(wired) = Wired::new(test, SHAPED, "slots = 32") else { return };
    let program = wired.bench.file("socket_send").display().to_string();
    let source = format!("{SOURCES}/socket_send.c");
    run(Command::new("cc").args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", &program, &source]));
    wired.sends(2, |path| {
        let said = run(Command::new(&program).args([path, "500", "700", "6", "2"]));
        assert_eq!(said, "500 frames\n");
    });
}

#[test]
fn a_go_client_is_shaped() {
    let test = "a_go_client_is_shaped";
    if !require_tools(test, &["go"]) {
        return;
    }
    let Some(wired) = Wired::new(test, SHAPED, "slots = 32") else { return };
    let program = wired.bench.file("socket_send").display().to_string();
    let mut build = Command::new("go");
    build.env("GOFLAGS", "-mod=mod").env("CGO_ENABLED", "0");
    build.env("GOTOOLCHAIN", "local").env("GOPROXY", "off");
    let built = build.args(["build", "-o", &program, "socket_send.go"]).current_dir(SOURCES);
    let built = built.output().expect("go");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    wired.sends(3, |path| {
        let said = run(Command::new(&program).args([path, "500", "700", "6", "3"]));
        assert_eq!(said, "500 frames\n");
    });
}

/// A priority above the socket's highest never reaches the qdisc; the others choose the band.
#[test]
fn priorities_choose_the_band_up_to_the_highest() {
    let bench = Bench::new();
    let device = "[[device]]\nname = \"out\"\nqdisc = \"handle 1: prio\"\n";
    let daemon = bench.daemon(&(device.to_owned() + &bench.socket("lan", "priority_max = 3")), None);
    let mut client = Client::connect(bench.file("lan.sock")).unwrap();
    // Bulk (2) goes to the third band, best effort (0) to the second.
    (0..10).for_each(|n| client.send(&frame(0, n, 60), 2).unwrap());
    (0..5).for_each(|n| client.send(&frame(0, n, 60), 0).unwrap());
    assert!(matches!(client.send(&frame(0, 0, 60), 6), Err(Error::Priority { priority: 6, max: 3 })));
    drop(client);
    bench.assert_over("out", "lan");
    let (classes, _) = bench.txq("tc -s class show dev out");
    let sent: Vec<_> = classes.lines().filter_map(|line| line.trim().strip_prefix("Sent ")).collect();
    let packets: Vec<_> = sent.iter().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(packets, ["0", "5", "10"], "{classes}");
    end(daemon);
}

/// A client is killed while it sends; another goes on, and everything of the killed one comes back.
#[test]
fn a_killed_client_harms_itself_only() {
    let bench = Bench::new();
    let device = "[[device]]\nname = \"out\"\nqdisc = \"tbf rate 80mbit burst 10k limit 200k\"\n";
    let daemon = bench.daemon(&(device.to_owned() + &bench.socket("lan", "credit = 32")), None);
    let path = bench.file("lan.sock");
    let sending = thread::spawn({
        let path = path.clone();
        move || {
            let mut client = Client::connect(path).unwrap();
            (0..4000).for_each(|n| client.send(&frame(0, n, 600), 0).unwrap());
        }
    });
    for _ in 0..4 {
        let mut victim = Command::new(std::env::current_exe().unwrap());
        victim.args(["--exact", "clients::sends_until_it_is_killed"]).env("TXQ_SOCKET_VICTIM", &path);
        let victim = Running::start(&mut victim);
        assert!(wait_until(LONG, || bench.counter("out", "socket_lan_clients") == 2 || sending.is_finished()));
        thread::sleep(Duration::from_millis(20));
        victim.signal(libc::SIGKILL);
        drop(victim.finish(LONG));
    }
    sending.join().unwrap();
    bench.assert_over("out", "lan");
    assert_eq!(bench.counter("out", "tx_dropped"), 0);
    end(daemon);
}

/// The victim of the test above; nothing without its variable.
#[test]
fn sends_until_it_is_killed() {
    let Some(path) = std::env::var_os("TXQ_SOCKET_VICTIM") else { return };
    let mut client = Client::connect(path).unwrap();
    for n in 0.. {
        client.send(&frame(1, n, 600), 0).unwrap();
    }
}

/// The keys of the file: a client that is idle is ended, and the pool has the buffers of all clients.
#[test]
fn idle_clients_are_ended_and_the_pool_grows() {
    let bench = Bench::new();
    let keys = "idle_timeout = \"20ms\"\ncredit = 1000";
    let daemon =
        bench.daemon(&("[[device]]\nname = \"out\"\n".to_owned() + &bench.socket("lan", keys)), None);
    let before = bench.counter("out", "pool_buffers");
    // 16 clients of 1000, and a stock of 128 each.
    assert!(bench.counter("out", "pool_max_buffers") >= before + 16 * 1128);
    let mut client = Client::connect(bench.file("lan.sock")).unwrap();
    assert_eq!(bench.counter("out", "pool_buffers"), before + 1128);
    assert!(wait_until(LONG, || bench.counter("out", "socket_lan_ended_idle") == 1));
    assert!(matches!(client.send(&frame(0, 0, 60), 0), Err(Error::Refused(Reason::Idle))));
    bench.assert_over("out", "lan");
    end(daemon);
}

/// The daemon ends: clients hear it, and connect to the next one.
#[test]
fn clients_connect_again() {
    let bench = Bench::new();
    let file = "[[device]]\nname = \"out\"\n".to_owned() + &bench.socket("lan", "clients = 1");
    for _ in 0..2 {
        let daemon = bench.daemon(&file, None);
        let mut client = Client::connect(bench.file("lan.sock")).unwrap();
        assert!(matches!(Client::connect(bench.file("lan.sock")), Err(Error::Refused(Reason::Full))));
        client.send(&frame(0, 0, 60), 0).unwrap();
        assert!(wait_until(LONG, || bench.counter("out", "tx_packets") == 1));
        assert_eq!(bench.counter("out", "socket_lan_ended_full"), 1);
        end(daemon);
        assert!(matches!(client.check(), Err(Error::Refused(Reason::Ended))));
    }
    // Killed: no reason is said, and the stale socket is replaced.
    let daemon = bench.daemon(&file, None);
    let mut client = Client::connect(bench.file("lan.sock")).unwrap();
    daemon.signal(libc::SIGKILL);
    drop(daemon.finish(LONG));
    assert!(wait_until(LONG, || matches!(client.check(), Err(Error::Gone))));
    end(bench.daemon(&file, None));
}
