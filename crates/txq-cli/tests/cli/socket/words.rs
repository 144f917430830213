//! Sockets that the command line names: those of `txq dev add`, and that of `txq bridge`.

use txq_control::socket::{Client, Error, Reason};

use super::bench::{Bench, LONG, end};
use crate::support::netns::Netns;
use crate::support::process::{Running, wait_until};
use crate::support::receiver::Receiver;
use crate::support::skip::{require_root, require_tools};
use crate::support::socket_frame::frame;

#[test]
fn a_device_that_a_command_adds_has_a_socket() {
    let bench = Bench::new();
    let daemon = bench.daemon("", None);
    let (one, two) = (bench.file("one.sock"), bench.file("two.sock"));
    let good = |words: &str| assert_eq!(bench.txq(words), (String::new(), 0), "{words}");
    good(&format!("dev add d0 type null socket {} clients 2 credit 8", one.display()));
    good("dev add d1");
    let mut client = Client::connect(&one).unwrap();
    let _second = Client::connect(&one).unwrap();
    assert!(matches!(Client::connect(&one), Err(Error::Refused(Reason::Full))));
    (0..50).for_each(|n| client.send(&frame(0, n, 60), 0).unwrap());
    assert!(wait_until(LONG, || bench.counter("d0", "tx_packets") == 50));
    assert_eq!(bench.counter("d0", "socket_one_frames"), 50);
    assert!(bench.counters("d1")["socket_one_frames"].is_null());
    for (words, why) in [
        ("dev add d2 type null clients 2".to_owned(), "clients is a key of a socket: add socket PATH"),
        (format!("dev add d2 type null socket {} clients 0", two.display()), "use 1 to 1024"),
        (format!("dev add d2 type null socket {} idle_timeout 5", two.display()), "has no unit"),
        (
            format!("dev add d2 type null socket {} credit 9999999", two.display()),
            "use fewer clients, or a lower credit",
        ),
        (
            format!("dev add d2 type null socket {}", one.display()),
            "another device has a socket called \"one\"",
        ),
        (format!("dev add d2 type null socket {}/none/two.sock", one.display()), "use another path"),
    ] {
        let (said, rc) = bench.txq(&words);
        assert!(rc != 0 && said.contains(why), "{words}: {said}");
        assert!(!bench.txq("dev show").0.contains("d2:"), "{words}");
    }
    // The device goes, and the socket with it; then another has its path.
    good("dev del d0");
    assert!(matches!(client.check(), Err(Error::Refused(Reason::Ended))));
    assert!(!one.exists());
    good(&format!("dev add d0 type null socket {}", one.display()));
    Client::connect(&one).unwrap().send(&frame(0, 0, 60), 0).unwrap();
    assert!(wait_until(LONG, || bench.counter("d0", "tx_packets") == 1));
    end(daemon);
    assert!(!one.exists());
}

#[test]
fn clients_of_a_bridge_send_to_its_second_end() {
    let test = "clients_of_a_bridge_send_to_its_second_end";
    if !(require_root(test) && require_tools(test, &["ip", "ethtool"])) {
        return;
    }
    let (bench, near, far) = (Bench::new(), Netns::new(), Netns::new());
    near.connect("v0", &far, "v1", 1);
    near.connect("w0", &far, "w1", 1);
    let socket = bench.file("wan.sock").display().to_string();
    let mut command = near.command(env!("CARGO_BIN_EXE_txq"));
    command.args(["bridge", "v0", "w0", "--client-socket", &socket, "--client-group", "root"]);
    let mut running =
        Running::start(command.args(["--socket", &bench.file("control.sock").display().to_string()]));
    running.wait_for_text("listening on", LONG);
    let receiver = Receiver::start(&far, "w1");
    let mut client = Client::connect(&socket).unwrap();
    (0..20).for_each(|n| client.send(&frame(7, n, 200), 0).unwrap());
    assert!(wait_until(LONG, || receiver.count() >= 20));
    let expected: Vec<_> = (0..20).map(|n| frame(7, n, 200)).collect();
    assert_eq!(receiver.finish(), expected);
    drop(client);
    bench.assert_over("w0", "wan");
    end(running);
}
