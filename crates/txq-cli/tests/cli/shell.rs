//! `txq shell` as root and as an ordinary user, with programs that we did not write in it.
//!
//! No test assumes speed: a link is never faster than its rate nor quicker than its delay.

mod ends;
mod outside;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::support::process::{Finished, Running, run, wait_until};
use crate::support::skip::{require, require_root, require_tools, require_tun};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need for work of a second on a quiet one.
const LONG: Duration = Duration::from_secs(60);
const TXQ: &str = env!("CARGO_BIN_EXE_txq");
/// Interfaces and links are numbered in each network namespace, and the tests count them.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs the rest of its command line as nobody. The machine's device file may be root's, and so may the folder of the program: both are
/// covered in a mount namespace, at `/mnt/tun` and `/mnt/txq`.
const AS_NOBODY: &str = "set -e; mount -t tmpfs txq /mnt; mknod -m 666 /mnt/tun c 10 200; mount --bind /mnt/tun /dev/net/tun
touch /mnt/txq; mount --bind \"$1\" /mnt/txq; mkdir -m 700 /mnt/run; chown 65534:65534 /mnt/run; export XDG_RUNTIME_DIR=/mnt/run; shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/txq shell \"$@\"";

/// The user that runs `txq shell`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    Root,
    Nobody,
}

/// A folder for control sockets.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(TempDir::new())
    }

    /// Returns `txq`, with the control sockets of this test.
    fn txq(&self) -> Command {
        let mut command = Command::new(TXQ);
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    /// Returns `txq shell`, up to its options.
    fn shell(&self, user: User) -> Command {
        let mut command = match user {
            User::Root => self.txq(),
            User::Nobody => Command::new("unshare"),
        };
        match user {
            User::Root => command.arg("shell"),
            User::Nobody => command.args(["-m", "sh", "-c", AS_NOBODY, "sh", TXQ]),
        };
        command
    }
}

/// Returns whether the tests of this file can run; prints the skip if not.
fn ready(test: &str, tools: &[&str]) -> bool {
    require_root(test) && require_tun(test) && require_tools(test, tools)
}

/// Returns whether an ordinary user's shells can run; prints the skip if not.
fn ready_for_users(test: &str) -> bool {
    let mut try_it = Command::new("setpriv");
    try_it.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "unshare", "-Urn", "true"]);
    let may = try_it.status().is_ok_and(|status| status.success());
    require_tools(test, &["unshare", "setpriv"])
        && require(test, may, "needs user namespaces for ordinary users")
}

/// Returns the users whose shells can run here.
fn users(test: &str) -> Vec<User> {
    let mut users = vec![User::Root];
    if ready_for_users(test) {
        users.push(User::Nobody);
    }
    users
}

fn end(command: &mut Command) -> Finished {
    Running::start(command).finish(LONG)
}

/// Returns what a command has printed; it must end with this code.
#[track_caller]
fn printed(command: &mut Command, code: i32) -> String {
    let ended = end(command);
    assert_eq!(ended.status.code(), Some(code), "{command:?}\n{}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// Returns the least round trip of a ping's output, in milliseconds.
fn round_trip(ping: &str) -> f64 {
    let line = ping.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    let least = line.and_then(|line| line.split('/').next()?.parse().ok());
    least.unwrap_or_else(|| panic!("no round trip: {ping}"))
}

/// Returns the names of the interfaces of the calling process' network namespace.
fn interfaces() -> Vec<String> {
    let links = run(Command::new("ip").args(["-br", "link"]));
    links.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns whether a process runs whose command line has this word.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes.map(|process| process.path().join("cmdline")).any(|file| has_word(&file, word))
}

fn has_word(file: &Path, word: &str) -> bool {
    let line = std::fs::read(file).unwrap_or_default();
    line.split(|&byte| byte == 0).any(|argument| argument == word.as_bytes())
}
