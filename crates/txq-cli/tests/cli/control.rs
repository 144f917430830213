//! Programs that serve commands, and `txq` that reaches them: a program of the library, a run, a daemon, stopped and dead ones.

mod ls;
mod manager;
mod members;
mod program;
mod recordings;
mod stat;
mod stopped;
mod systemd;
mod traces;
// `cargo test --workspace` has the feature, and so has `cargo test -p txq-cli --features watch`.
#[cfg(feature = "watch")]
mod web;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

/// A bound that no test reaches on a working program, however slow the machine is.
const LONG: Duration = Duration::from_secs(120);

/// A runtime folder, and the commands that use it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new())
    }

    /// Returns a command of `txq`.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        command.args(words.split_whitespace()).env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    fn txq(&self, words: &str) -> Finished {
        Running::start(&mut self.command(words)).finish(LONG)
    }

    /// Returns the output of a command that succeeds.
    #[track_caller]
    fn good(&self, words: &str) -> String {
        let ended = self.txq(words);
        assert!(
            ended.status.success() && ended.stderr.is_empty(),
            "{words}: {}{}",
            ended.stdout,
            ended.stderr
        );
        ended.stdout
    }

    /// Returns the error of a command that is refused, with exit code 2.
    #[track_caller]
    fn refused(&self, words: &str) -> String {
        let ended = self.txq(words);
        assert_eq!(ended.status.code(), Some(2), "{words}: {}{}", ended.stdout, ended.stderr);
        ended.stderr
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.0.path().join("txq").join(format!("{name}.sock"))
    }

    /// Starts the example program, which serves its device for `seconds`.
    fn example(&self, name: &str, seconds: u32) -> Running {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        command.args(["--exact", "control::example", "--ignored", "--nocapture"]);
        command.env(EXAMPLE, format!("{name} {seconds}")).env("XDG_RUNTIME_DIR", self.0.path());
        let mut running = Running::start(&mut command);
        running.wait_for_text("serving on", LONG);
        running
    }

    /// Starts a daemon.
    fn daemon(&self, words: &str) -> Running {
        let mut running = Running::start(&mut self.command(&format!("daemon {words}")));
        running.wait_for_text("listening on", LONG);
        running
    }
}

/// The variable that has the example's arguments.
const EXAMPLE: &str = "TXQ_TEST_EXAMPLE";

/// The example, as the program that [`Place::example`] starts: this test alone, in a process of its own. So it is as new as the tests.
#[test]
#[ignore = "it is a program, which other tests start"]
fn example() {
    let words = std::env::var(EXAMPLE).expect("the arguments");
    let (place, seconds) = words.split_once(' ').expect("two words");
    crate::served::run(place, seconds.parse().expect("seconds")).expect("the example runs");
}

/// Returns the name of that program.
fn example_name() -> String {
    let path = std::env::current_exe().expect("a test has a path");
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Polls `done` until it is true; fails after [`LONG`].
#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
