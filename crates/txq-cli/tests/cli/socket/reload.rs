//! `txq reload`: sockets come and go, and the clients of the others stay.

use txq_control::socket::{Client, Error, Reason};

use super::bench::{Bench, LONG, end};
use crate::support::process::wait_until;
use crate::support::socket_frame::frame;

#[test]
fn sockets_come_and_go() {
    let bench = Bench::new();
    let devices = "device = [{ name = \"a\" }, { name = \"b\" }]\n";
    let one = bench.socket("one", "device = \"a\"");
    let two = bench.socket("two", "device = \"b\"");
    let daemon = bench.daemon(&format!("{devices}{one}"), None);
    let mut stays = Client::connect(bench.file("one.sock")).unwrap();
    let mut send = |n| stays.send(&frame(0, n, 60), 0).unwrap();
    send(0);
    bench.write(&format!("{devices}{one}{two}"));
    assert_eq!(bench.txq("reload"), ("txq: the socket \"two\" is opened\n".to_owned(), 0));
    let mut goes = Client::connect(bench.file("two.sock")).unwrap();
    goes.send(&frame(0, 0, 60), 0).unwrap();
    assert!(wait_until(LONG, || bench.counter("b", "tx_packets") == 1));
    // More clients than the device was opened for: its pool grows with them, and it stays open.
    bench.write(&format!("{devices}{one}{}", bench.socket("two", "device = \"b\"\nclients = 40")));
    let said = "txq: the socket \"two\" is closed\ntxq: the socket \"two\" is opened\n";
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    assert!(matches!(goes.check(), Err(Error::Refused(Reason::Ended))));
    assert_eq!(bench.counter("b", "tx_packets"), 1);
    let mut goes = Client::connect(bench.file("two.sock")).unwrap();
    // Another device for it, and other settings: its clients connect again.
    bench.write(&format!("{devices}{one}{}", two.replace("\"b\"", "\"a\"")));
    let said = "txq: the socket \"two\" is closed\ntxq: the socket \"two\" is opened\n";
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    assert!(matches!(goes.check(), Err(Error::Refused(Reason::Ended))));
    assert!(bench.counters("b")["socket_two_clients"].is_null());
    // The queues of a device change: its clients stay.
    bench.write(&format!("device = [{{ name = \"a\", qdisc = \"fq_codel\" }}, {{ name = \"b\" }}]\n{one}"));
    let (said, rc) = bench.txq("reload");
    assert!(rc == 0 && said.contains("txq: the socket \"two\" is closed\n"), "{said}");
    assert!(!bench.file("two.sock").exists());
    send(1);
    assert!(wait_until(LONG, || bench.counter("a", "tx_packets") == 2));
    // The device goes: the socket with it.
    bench.write("device = [{ name = \"b\" }]\n");
    let (said, rc) = bench.txq("reload");
    assert!(
        rc == 0 && said.contains("device \"a\" is closed") && said.contains("\"one\" is closed"),
        "{said}"
    );
    assert!(matches!(stays.check(), Err(Error::Refused(Reason::Ended))));
    end(daemon);
}

/// A path at which another program listens: nothing has changed.
#[test]
fn a_socket_that_does_not_open_changes_nothing() {
    let (bench, other) = (Bench::new(), Bench::new());
    let device = "device = [{ name = \"a\" }]\n";
    let daemons = [&bench, &other].map(|of| of.daemon(&format!("{device}{}", of.socket("one", "")), None));
    let mut client = Client::connect(bench.file("one.sock")).unwrap();
    let taken = other.socket("one", "name = \"taken\"");
    bench.write(&format!("{device}{}{taken}", bench.socket("one", "")));
    let (said, rc) = bench.txq("reload");
    assert!(rc != 0 && said.contains("another program listens there"), "{said}");
    client.send(&frame(0, 0, 60), 0).unwrap();
    assert!(wait_until(LONG, || bench.counter("a", "tx_packets") == 1));
    assert!(Client::connect(other.file("one.sock")).is_ok());
    daemons.into_iter().for_each(end);
}
