//! Interval belongs to a whole process: forks, its death, and its signals. One test, because a process has one of each.

mod device;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use device::{Folder, LONG, device, wait_for, words};
use txq_control::{Client, Error, Server, State, probe, serve};

/// Set for the process that serves, forks and waits for its death: the socket.
const HELPER: &str = "TXQ_CONTROL_TEST_SOCKET";

#[test]
fn a_process_forks_dies_and_starts_again() {
    if let Some(socket) = std::env::var_os(HELPER) {
        return serve_fork_and_wait(socket.into());
    }
    a_forked_child_harms_nothing();
    a_dead_process_is_replaced_while_its_child_lives();
    a_server_never_raises_sigpipe();
}

/// Returns the child's id; in the child, calls `f` and ends.
fn fork(f: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses the allocator, which glibc makes usable after a fork, and no lock of another thread.
    match unsafe { libc::fork() } {
        0 => {
            f();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        child => child,
    }
}

fn a_forked_child_harms_nothing() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let listener = Server::builder().at(folder.path().join("bound.sock")).bind().unwrap();
    let mut held = Some((server, dev, listener));
    let child = fork(|| drop(held.take()));
    let mut status = 1;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child ends by itself");
    let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
    assert_eq!(client.info().unwrap().pid, std::process::id());
    let (server, dev, listener) = held.expect("the parent's");
    // Both sockets are there, and locked.
    for path in [server.path(), listener.path()] {
        assert!(path.exists(), "{}", path.display());
        assert!(matches!(serve(&dev, path), Err(Error::InUse { .. })));
    }
    drop((server, listener));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Serves, forks a child that stays, prints the child's id, and waits to be killed.
fn serve_fork_and_wait(socket: std::path::PathBuf) {
    let dev = device("d0");
    let _server = serve(&dev, socket).unwrap();
    let sleep = || std::thread::sleep(LONG);
    let child = fork(sleep);
    println!("child {child}");
    sleep();
}

fn a_dead_process_is_replaced_while_its_child_lives() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "a_process_forks_dies_and_starts_again"])
        .env(HELPER, folder.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The harness may have begun the line.
    let child = lines.find_map(|line| line.split_once("child ").and_then(|(_, id)| id.parse::<i32>().ok()));
    let child = child.expect("the child's id");
    assert_eq!(probe(&folder.socket(), LONG).pid, Some(helper.id()));
    let held = serve(&dev, folder.socket()).unwrap_err();
    assert!(matches!(held, Error::InUse { pid: Some(pid), .. } if pid == helper.id()), "{held}");
    helper.kill().unwrap();
    helper.wait().unwrap();
    // The child holds the socket open, so it is not stale; nobody answers there.
    assert!(folder.socket().exists());
    let server = serve(&dev, folder.socket()).expect("the dead process's lock is free");
    let found = probe(&folder.socket(), LONG);
    assert_eq!((found.state, found.pid), (State::Live, Some(std::process::id())));
    let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
    assert_eq!(client.tc(&words("qdisc show dev d0"), Default::default()).unwrap().rc, 0);
    // SAFETY: takes integers; the child is this test's own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    drop(server);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A program that has not disabled SIGPIPE, as Rust's runtime does, would end by it.
fn a_server_never_raises_sigpipe() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    // SAFETY: installs the default action, which ends the process; no handler runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    for _ in 0..50 {
        let raw = UnixStream::connect(folder.socket()).unwrap();
        rustix::net::send(&raw, b"{\"info\":{}}\n{\"info\":{}}\n", rustix::net::SendFlags::NOSIGNAL).unwrap();
        // Gone before the answer.
        drop(raw);
    }
    wait_for("an answer", || Client::connect(folder.socket()).is_ok_and(|mut client| client.info().is_ok()));
}
