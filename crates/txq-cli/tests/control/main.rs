//! Programs that serve commands, and `txq` that reaches them: a program of the library, a run, a daemon, stopped and dead ones.

#[path = "../../../../tests/support/process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/tempdir.rs"]
mod tempdir;

mod ls;
mod program;
mod recordings;
mod stopped;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use process::{Finished, Running};
use tempdir::TempDir;

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
        let mut command = Command::new(example());
        command.args([name, &seconds.to_string()]).env("XDG_RUNTIME_DIR", self.0.path());
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

/// Builds the example program, if it is not up to date, and returns its path. Cargo builds it before the tests only if all
/// tests of the package run. It is built with the features of the whole workspace, so that `cargo test --workspace` compiles
/// nothing again.
fn example() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--workspace", "--example", "served"]);
        cargo.args(["--message-format", "json"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let built = cargo.output().expect("cargo");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let text = String::from_utf8(built.stdout).expect("JSON");
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let program = lines.filter(|line| line["target"]["name"] == "served");
        let path = program.filter_map(|line| line["executable"].as_str().map(PathBuf::from)).next_back();
        path.expect("the program's path")
    })
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
