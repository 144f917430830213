//! Clients that misbehave: the server stays up, answers all others, and says which bound was exceeded.

mod device;
#[path = "../../../tests/support/skip.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../tests/support/user.rs"]
mod user;

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use device::{Folder, LONG, Raw, device, wait_for, words};
use serde_json::Value;
use skip::require_root;
use txq_control::{Access, Client, Error, Limits, Server, serve};
use user::{NOBODY, as_user};

const INFO: &str = "{\"info\":{}}";

#[track_caller]
fn works(socket: &Path) {
    let mut client = Client::connect_within(socket, LONG).expect("a connection");
    let answer = client.tc(&words("qdisc show dev d0"), Default::default()).expect("an answer");
    assert!(answer.rc == 0 && answer.out.starts_with("qdisc pfifo"), "{answer:?}");
}

#[track_caller]
fn says(answer: Option<Value>, text: &str) {
    let answer = answer.expect("an answer");
    assert!(answer["err"].as_str().is_some_and(|err| err.contains(text)), "{text}: {answer}");
    assert_ne!(answer["rc"], 0, "{answer}");
}

/// Returns bounds that a test reaches soon.
fn short(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[test]
fn an_enormous_request_is_answered_and_closed() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut raw = Raw::new(&folder.socket());
    let chunk = vec![b'x'; 1 << 20];
    // More than the socket's buffers hold: the server must read some, refuse, and let the client end.
    let mut sent = 0;
    let error = loop {
        match raw.write(&chunk) {
            Ok(()) => sent += chunk.len(),
            Err(error) => break error,
        }
        assert!(sent < 1 << 34, "the server reads without end");
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    says(raw.answer(), "longer than 262144 bytes");
    assert_eq!(raw.answer(), None);
    // The longest request that is allowed is read whole, and is nonsense.
    let mut raw = Raw::new(&folder.socket());
    says(raw.ask(&"[".repeat((256 << 10) - 1)), "not a request");
    assert_eq!(raw.ask(INFO).unwrap()["rc"], 0);
    works(&folder.socket());
}

#[test]
fn garbage_is_answered_line_by_line() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut raw = Raw::new(&folder.socket());
    let mut state = 1u32;
    let mut lines = 0;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
        raw.write(&bytes).unwrap();
    }
    raw.write(b"\n").unwrap();
    for _ in 0..=lines {
        says(raw.answer(), "not a request");
    }
    assert_eq!(raw.ask(INFO).unwrap()["rc"], 0);
    // Requests that arrive together are answered in order, also behind the client's last byte.
    let mut raw = Raw::new(&folder.socket());
    let tc = "{\"tc\":{\"words\":[\"qdisc\",\"show\",\"dev\",\"d0\"]}}";
    raw.write(format!("{INFO}\n{tc}\n\n{INFO}\nhalf").as_bytes()).unwrap();
    raw.stream().shutdown(Shutdown::Write).unwrap();
    let answers: Vec<_> = std::iter::from_fn(|| raw.answer()).collect();
    let codes: Vec<_> = answers.iter().map(|answer| answer["rc"].as_u64().unwrap()).collect();
    assert_eq!(codes, [0, 0, 1, 0]);
    assert!(answers[1]["out"].as_str().unwrap().starts_with("qdisc pfifo"));
}

#[test]
fn half_a_line_and_silence_is_closed() {
    let (folder, dev) = (Folder::new(), device("d0"));
    // An idle connection would live on: the bound of a request ends these.
    let limits = short(|limits| {
        (limits.request_time, limits.idle_time) = (Duration::from_millis(200), LONG * 10);
    });
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let mut half = Raw::new(&folder.socket());
    half.write(b"{\"info\"").unwrap();
    works(&folder.socket());
    says(half.answer(), "not complete within 200ms");
    assert_eq!(half.answer(), None);
    // Single bytes do not prolong it.
    let mut slow = Raw::new(&folder.socket());
    wait_for("the end of the slow request", || {
        std::thread::sleep(Duration::from_millis(10));
        slow.write(b"x").is_err()
    });
    says(slow.answer(), "not complete within 200ms");
    works(&folder.socket());
}

#[test]
fn idle_connections_lock_nobody_out() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut early = Client::connect_within(folder.socket(), LONG).unwrap();
    early.info().unwrap();
    let mut idle: Vec<_> = (0..200).map(|_| Raw::new(&folder.socket())).collect();
    works(&folder.socket());
    // Beyond the bound of 256, each connection replaces the one that is idle for the longest time.
    for _ in 0..200 {
        idle.push(Raw::new(&folder.socket()));
        works(&folder.socket());
    }
    says(idle[0].answer(), "took the place of this idle one");
    assert_eq!(idle[0].answer(), None);
    assert_eq!(idle.last_mut().unwrap().ask(INFO).unwrap()["rc"], 0);
    // A client whose idle connection was replaced connects again by itself.
    assert_eq!(early.info().unwrap().devices.len(), 1);
}

#[test]
fn an_idle_connection_ends_and_its_client_goes_on() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let limits = short(|limits| limits.idle_time = Duration::from_millis(50));
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let mut raw = Raw::new(&folder.socket());
    let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
    says(raw.answer(), "idle for 50ms");
    assert_eq!(raw.answer(), None);
    std::thread::sleep(Duration::from_millis(100));
    // On a slow machine, the new connection may be idle for too long, too.
    wait_for("an answer", || client.info().is_ok_and(|info| info.devices.len() == 1));
}

#[test]
fn too_many_recordings_are_told() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let limits = short(|limits| (limits.connections, limits.recordings) = (2, 1));
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let mut first = Raw::new(&folder.socket());
    first.write(b"{\"contention\":{\"ms\":3600000}}\n").unwrap();
    wait_for("recording", || dev.is_recording_contention());
    let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
    let error = client.hist(txq_control::Interval::Xmit, None, Duration::from_millis(1)).unwrap_err();
    assert!(error.to_string().contains("too many recordings"), "{error}");
    let mut second = Raw::new(&folder.socket());
    // It has taken the place of the idle client.
    second.write(b"{\"contention\":{\"ms\":0}}\n").unwrap();
    says(second.answer(), "too many recordings");
    drop((first, second, client));
}

/// A client that has its answer is idle, however late the server's own threads run: the next one takes its place.
#[test]
fn an_answered_client_gives_its_place() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let limits = short(|limits| limits.connections = 1);
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let mut last = None;
    for _ in 0..500 {
        let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
        let answer = client.tc(&words("qdisc"), Default::default()).unwrap();
        assert_eq!((answer.rc, answer.err.as_str()), (0, ""));
        last = Some(client);
    }
    drop(last);
}

/// With all connections at work, a further one gets an answer and no broken pipe.
#[test]
fn too_many_commands_are_told() {
    let (folder, d0, d1) = (Folder::new(), device("d0"), device("d1"));
    let limits = short(|limits| limits.connections = 2);
    let builder = Server::builder().at(folder.socket()).device(&d0).device(&d1).limits(limits);
    let _server = builder.start().unwrap();
    let mut busy = Vec::new();
    for dev in [&d0, &d1] {
        let mut raw = Raw::new(&folder.socket());
        let name = &dev.info().name;
        raw.write(format!("{{\"contention\":{{\"dev\":\"{name}\",\"ms\":3600000}}}}\n").as_bytes()).unwrap();
        busy.push(raw);
        wait_for("recording", || dev.is_recording_contention());
    }
    for _ in 0..20 {
        let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
        let answer = client.tc(&words("qdisc"), Default::default()).unwrap();
        assert_eq!((answer.rc, answer.err.as_str()), (2, "too many commands at a time\ntxq: try again\n"));
    }
    busy.pop();
    wait_for("a place", || {
        let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
        client.tc(&words("qdisc"), Default::default()).unwrap().rc == 0
    });
}

#[test]
fn a_client_that_dies_or_does_not_read_harms_nobody() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let limits = short(|limits| limits.answer_time = Duration::from_millis(100));
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    for part in ["", "{", "{\"tc\":{\"words\":[\"qdisc\"", "{\"info\":{}}\n", "{\"info\":{}}\n{\"info\""] {
        for _ in 0..20 {
            let mut raw = Raw::new(&folder.socket());
            raw.write(part.as_bytes()).unwrap();
        }
    }
    works(&folder.socket());
    // It asks without end and reads nothing: its answers fill the socket, and it is closed.
    let mut deaf = Raw::new(&folder.socket());
    deaf.stream().set_write_timeout(Some(LONG)).unwrap();
    let many = format!("{INFO}\n").repeat(100);
    wait_for("the end of the deaf client", || deaf.write(many.as_bytes()).is_err());
    works(&folder.socket());
}

#[test]
fn a_server_ends_while_clients_are_connected() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let mut idle = Raw::new(&folder.socket());
    let mut half = Raw::new(&folder.socket());
    half.write(b"{\"in").unwrap();
    let mut recording = Raw::new(&folder.socket());
    recording.write(b"{\"contention\":{\"ms\":3600000}}\n").unwrap();
    wait_for("recording", || dev.is_recording_contention());
    drop(server);
    assert!(!dev.is_recording_contention());
    assert_eq!((idle.answer(), half.answer()), (None, None));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn links_are_refused_as_lock_and_as_socket() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let (victim, lock) = (folder.path().join("victim"), folder.path().join("control.sock.lock"));
    std::fs::write(&victim, "mine").unwrap();
    symlink(&victim, &lock).unwrap();
    let error = serve(&dev, folder.socket()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    std::fs::remove_file(&lock).unwrap();
    symlink(&victim, folder.socket()).unwrap();
    let error = serve(&dev, folder.socket()).unwrap_err();
    assert!(matches!(error, Error::Socket { what, .. } if what.contains("no socket")), "{error}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    // A link to a socket without a server, too.
    let other = folder.path().join("other");
    drop(UnixListener::bind(&other).unwrap());
    std::fs::remove_file(folder.socket()).unwrap();
    symlink(&other, folder.socket()).unwrap();
    assert!(serve(&dev, folder.socket()).is_err());
    assert!(other.exists());
}

#[test]
fn other_users_are_refused() {
    if !require_root("other_users_are_refused") {
        return;
    }
    let (folder, dev) = (Folder::new(), device("d0"));
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = folder.socket();
    let server = serve(&dev, socket.as_path()).unwrap();
    // The file's permissions exclude them.
    let denied = as_user(NOBODY, NOBODY, || Client::connect(socket.as_path()).unwrap_err());
    assert!(matches!(denied, Error::Denied(_)), "{denied}");
    assert_eq!(as_user(NOBODY, NOBODY, || txq_control::probe(&socket, LONG).state.name()), "denied");
    // So do their credentials, if the permissions do not.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = as_user(NOBODY, NOBODY, || Client::connect(socket.as_path()).unwrap().info().unwrap_err());
    assert!(refused.to_string().contains("user 65534 may not control this program"), "{refused}");
    let replaced = words("qdisc replace dev d0 root bfifo");
    let answer = as_user(NOBODY, NOBODY, || {
        Client::connect(socket.as_path()).unwrap().tc(&replaced, Default::default()).unwrap()
    });
    assert_eq!((answer.rc, dev.qdiscs(Default::default())[0].kind.as_str()), (2, "pfifo"));
    works(&socket);
    drop(server);
    // A group may be served, and its members only.
    const GROUP: u32 = 4242;
    let group = Server::builder().at(socket.as_path()).device(&dev).access(Access::Group(GROUP));
    let server = group.start().unwrap();
    let found = std::fs::metadata(&socket).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid()), (0o660, GROUP));
    as_user(NOBODY, GROUP, || works(&socket));
    assert!(as_user(NOBODY, NOBODY, || Client::connect(socket.as_path()).is_err()));
    drop(server);
    let everyone = Server::builder().at(socket.as_path()).device(&dev).access(Access::Everyone);
    let _server = everyone.start().unwrap();
    as_user(NOBODY, NOBODY, || works(&socket));
}

/// Returns a device with so many classes.
fn with_classes(name: &str, classes: u32) -> txq::NetDev {
    let dev = device(name);
    txq_control::tc::apply(&dev, "qdisc replace root handle 1: drr").unwrap();
    for minor in 1..=classes {
        txq_control::tc::apply(&dev, &format!("class add parent 1: classid 1:{minor:x} drr")).unwrap();
    }
    dev
}

/// Clients that do not read their answers hold no thread: others are answered, and the server ends.
#[test]
fn readers_that_do_not_read_delay_nobody() {
    let (folder, dev, big) = (Folder::new(), device("d0"), with_classes("big", 5000));
    // Without end for this test: nothing but the bounds under test lets others pass.
    let limits = short(|limits| (limits.commands, limits.answer_time) = (4, LONG * 100));
    let server =
        Server::builder().at(folder.socket()).device(&dev).device(&big).limits(limits).start().unwrap();
    let show = "{\"tc\":{\"words\":[\"class\",\"show\",\"dev\",\"big\"],\"show\":{\"stats\":true}}}\n";
    let command = "[\"class\",\"show\",\"dev\",\"big\"]";
    let batch = format!("{{\"batch\":{{\"commands\":[{}]}}}}\n", [command; 5000].join(","));
    let silent: Vec<_> = (0..12)
        .map(|n| {
            let mut raw = Raw::new(&folder.socket());
            raw.write(if n < 8 { show } else { &batch }.as_bytes()).unwrap();
            raw
        })
        .collect();
    works(&folder.socket());
    // The answer is whole when it is read late.
    let mut late = Raw::new(&folder.socket());
    let answer = late.ask(show.trim_end()).unwrap();
    assert_eq!(answer["out"].as_str().unwrap().matches("class drr").count(), 5000);
    // Ends now, although commands of batches are left and answers are not read.
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(server);
        ended.send(()).unwrap();
    });
    end.recv_timeout(LONG).expect("the server ends");
    drop(silent);
}

/// A client reads no answer without end.
#[test]
fn an_answer_without_end_is_an_error() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (chunk, mut sent) = ([b' '; 1 << 16], 0u64);
        while std::io::Write::write_all(&mut client, &chunk).is_ok() {
            sent += chunk.len() as u64;
            assert!(sent < 1 << 30, "the client reads without end");
        }
    });
    let error = Client::connect_within(folder.socket(), LONG).unwrap().info().unwrap_err();
    assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
    server.join().unwrap();
}
