//! Members of a daemon's group: what they may ask for.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use txq_control::Client;

use super::{LONG, Place};
use crate::support::skip::require_root;
use crate::support::user::{NOBODY, as_user};

const GROUP: u32 = 4242;

/// The daemon opens files, interfaces and sockets with its own permissions: members of its group name none.
#[test]
fn a_member_has_nothing_opened() {
    if !require_root("a_member_has_nothing_opened") {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).expect("an open folder");
    let control = place.0.path().join("control.sock");
    let closed = place.0.path().join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("a closed folder");
    let victim = closed.join("victim");
    fs::write(&victim, "mine").expect("a file");
    let _daemon = place.daemon(&format!("--socket {} --group {GROUP}", control.display()));
    let dev = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        as_user(NOBODY, GROUP, || Client::connect_within(control.clone(), LONG)?.dev(&words))
            .expect("an answer")
    };
    let socket = closed.join("socket");
    for words in [
        format!("add evil type pcap file {}", victim.display()),
        format!("add evil type null socket {}", socket.display()),
        "add evil type af_packet interface lo".to_owned(),
        "add evil type af_xdp interface lo".to_owned(),
        "add evil type tap".to_owned(),
        "add evil type tun".to_owned(),
        "add evil type udp remote 127.0.0.1:9".to_owned(),
    ] {
        let answer = dev(&words);
        assert!(answer.rc == 2 && answer.err.contains("Operation not permitted"), "{words}: {answer:?}");
    }
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "mine");
    assert!(!socket.exists());
    assert_eq!(dev("show").out, "");
    // A qdisc reads no file that a member names, however the command is written.
    place.good(&format!("dev --socket {} add q0", control.display()));
    let tc = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        as_user(NOBODY, GROUP, || {
            Client::connect_within(control.clone(), LONG)?.tc(&words, Default::default())
        })
        .expect("an answer")
    };
    for words in [
        format!("qdisc replace dev q0 root trace {}", victim.display()),
        format!("qdisc replace dev q0 root netem delay 5ms 1ms dist {}", victim.display()),
        format!("q add dev q0 root trace\t{} limit 5", victim.display()),
    ] {
        let answer = tc(&words);
        assert!(answer.rc == 2 && answer.err.contains("Operation not permitted"), "{words}: {answer:?}");
    }
    assert_eq!(tc("qdisc replace dev q0 root netem delay 5ms").rc, 0);
    place.good(&format!("dev --socket {} del q0", control.display()));
    // Members add devices that use nothing of the system, and root adds all.
    for words in ["add d0", "add n0 type null ring 64", "del d0", "del n0"] {
        assert_eq!(dev(words).rc, 0, "{words}");
    }
    let file = closed.join("mine.pcap");
    let at = format!("--socket {}", control.display());
    place.good(&format!("dev {at} add p0 type pcap file {}", file.display()));
    assert!(file.exists());
}
