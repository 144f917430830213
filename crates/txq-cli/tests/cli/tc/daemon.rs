//! Devices, the socket, and the messages on it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::served::{LONG, Served, start, txq};

#[test]
fn devices_come_and_go() {
    let daemon = Served::daemon("dev");
    assert_eq!(daemon.dev("show").good(), "");
    daemon.dev("add d0 type dummy numtxqueues 4 mtu 9000").good();
    daemon.dev("add d1 txqueuelen 0").good();
    let listed = "d0: mtu 9000 numtxqueues 4 qdisc mq\nd1: mtu 1500 numtxqueues 1 qdisc noqueue\n";
    assert_eq!(daemon.dev("show").good(), listed);
    let again = daemon.dev("add d0");
    assert_eq!((again.rc, again.tc_words().as_str()), (2, "RTNETLINK answers: File exists\n"));
    assert_eq!(daemon.tc("qdisc show dev d1").good(), "qdisc noqueue 0: root refcnt 2 \n");
    assert!(daemon.tc("q sh").good().starts_with("qdisc mq 0: dev d0 root \n"));
    daemon.dev("del d0").good();
    let gone = daemon.tc("qdisc show dev d0");
    assert_eq!((gone.rc, gone.err.as_str()), (1, "Cannot find device \"d0\"\ntxq: there are d1\n"));
    assert_eq!(daemon.dev("del d0").rc, 1);
    daemon.end();
}

/// The types of `dev add` are the tables of a file, with the same keys.
#[test]
fn devices_have_the_types_and_keys_of_a_file() {
    let daemon = Served::daemon("types");
    let capture = daemon.folder.file("out.pcap");
    daemon.dev("add n0 numtxqueues 2 type null rate 10gbit delay 10us inline false").good();
    daemon.dev(&format!("add p0 type pcap file {capture}")).good();
    daemon.dev("add u0 txqueuelen 10 type udp remote 127.0.0.1:9 local 127.0.0.1:0").good();
    let listed = daemon.dev("show").good();
    for line in ["n0: mtu 1500 numtxqueues 2 qdisc mq\n", "p0: mtu 1500 ", "u0: mtu "] {
        assert!(listed.contains(line), "{listed}");
    }
    assert!(fs::exists(&capture).unwrap());
    for (words, rc, says) in [
        ("add x0 type veth", 2, "type \"veth\" is none: use one of dummy, null, pcap, af_packet"),
        ("add x0 type null rat 1gbit", 2, "type null: unknown field `rat`, expected one of `ring`, `rate`"),
        ("add x0 type null rate", 1, "rate without a value"),
        ("add x0 type udp", 2, "type udp: missing field `remote`"),
        ("add x0 type af_packet", 2, "there is no interface \"x0\": `ip link` lists the interfaces"),
        ("add x0 type af_packet interface 7", 2, "there is no interface \"7\""),
        ("add x0 mtu 1400 type udp remote 127.0.0.1:9", 2, "mtu is for dummy, null, tap and tun"),
        ("add x0 type tun mtu 40", 1, "use a number from 68 to 65535"),
    ] {
        let said = daemon.dev(words);
        assert!(said.rc == rc && said.err.contains(says), "{words}: {said:?}");
    }
    (["n0", "p0", "u0"]).iter().for_each(|name| drop(daemon.dev(&format!("del {name}")).good()));
    assert_eq!(daemon.dev("show").good(), "");
    daemon.end();
}

/// A hundred idle devices cost a few threads, and little memory each.
#[test]
fn idle_devices_cost_little() {
    const DEVICES: u64 = 100;
    let daemon = Served::daemon("idle");
    daemon.dev("add d0").good();
    let before = daemon.status("VmRSS:");
    (1..=DEVICES).for_each(|n| drop(daemon.dev(&format!("add d{n}")).good()));
    let each = (daemon.status("VmRSS:") - before) / DEVICES;
    assert!(each < 200, "{each} KiB for each device");
    let threads = daemon.status("Threads:");
    assert!(threads <= 8, "{threads} threads");
    // They are driven all the same, and can be removed.
    daemon.tc("qdisc replace dev d7 root tbf rate 1mbit burst 10kb limit 10kb").good();
    (0..=DEVICES).for_each(|n| drop(daemon.dev(&format!("del d{n}")).good()));
    assert_eq!(daemon.dev("show").good(), "");
    daemon.end();
}

#[test]
fn a_socket_has_one_listener_and_one_user() {
    let daemon = Served::daemon("socket");
    let mode = fs::metadata(&daemon.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = txq(&["daemon", "--socket", &daemon.socket]);
    assert!(second.rc == 2 && second.err.contains("another txq listens there"), "{second:?}");
    daemon.tc("qdisc show").good();
    // A daemon that died leaves its socket behind; nobody listens there.
    let stale = daemon.folder.file("stale.sock");
    drop(UnixListener::bind(&stale).expect("a socket"));
    let nobody = txq(&["tc", "--socket", &stale, "qdisc"]);
    assert!(nobody.rc == 2 && nobody.err.contains("start `txq daemon`"), "{nobody:?}");
    assert_eq!(nobody.err.lines().count(), 1, "{nobody:?}");
    let mut heir = start(&["daemon", "--socket", &stale]);
    heir.wait_for_text("listening on", LONG);
    assert_eq!(txq(&["tc", "--socket", &stale, "qdisc"]).good(), "");
    // The daemon does not replace a file that is no socket.
    let file = daemon.folder.file("file");
    fs::write(&file, "mine").expect("a file");
    let refused = txq(&["daemon", "--socket", &file]);
    assert!(refused.rc == 2 && refused.err.contains("no socket"), "{refused:?}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
    daemon.end();
}

#[test]
fn requests_are_lines_and_nonsense_is_answered() {
    use std::io::{BufRead, BufReader};
    let daemon = Served::daemon("lines");
    let mut stream = UnixStream::connect(&daemon.socket).expect("a socket");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket"));
    let mut ask = |line: &str| -> Value {
        // In two pieces, with a pause that is longer than the other side waits at a time.
        let (first, second) = line.split_at(line.len() / 2);
        stream.write_all(first.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(80));
        stream.write_all(second.as_bytes()).expect("sent");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).expect("JSON")
    };
    assert_eq!(ask("{\"dev\":{\"words\":[\"add\",\"d0\"]}}\n"), json!({"out": "", "err": "", "rc": 0}));
    let shown = ask("{\"tc\":{\"words\":[\"qdisc\",\"sh\"],\"show\":{\"json\":true}}}\n");
    assert!(shown["out"].as_str().is_some_and(|out| out.contains("\"dev\":\"d0\"")), "{shown}");
    for nonsense in ["\n", "{}\n", "[1]\n", "{\"tc\":{}}\n", "\u{1}\u{2}\n", "{\"tc\":{\"words\":[\"\"]}}\n"]
    {
        assert_ne!(ask(nonsense)["rc"], 0, "{nonsense:?}");
    }
    daemon.tc("qdisc show").good();
    daemon.end();
}
