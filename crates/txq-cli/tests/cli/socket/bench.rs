//! A daemon with a socket, in a namespace of its own or on a null device.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::netns::Netns;
use crate::support::process::{Running, wait_until};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a `[[socket]]` of this name, with further keys.
    pub(crate) fn socket(&self, name: &str, keys: &str) -> String {
        format!("[[socket]]\npath = \"{}\"\n{keys}\n", self.file(&format!("{name}.sock")).display())
    }

    /// Writes the daemon's file.
    pub(crate) fn write(&self, text: &str) -> String {
        let path = self.file("txq.toml");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Starts a daemon with a file, in a namespace if one is given, and waits until it serves.
    pub(crate) fn daemon(&self, text: &str, inside: Option<&Netns>) -> Running {
        let program = env!("CARGO_BIN_EXE_txq");
        let mut command = inside.map_or_else(|| Command::new(program), |inside| inside.command(program));
        let (config, control) = (self.write(text), self.control());
        let mut running = Running::start(command.args(["daemon", "--config", &config, "--socket", &control]));
        running.wait_for_text("listening on", LONG);
        running
    }

    pub(crate) fn control(&self) -> String {
        self.file("control.sock").display().to_string()
    }

    /// Runs a command of txq for the daemon; returns what it said, and its code.
    pub(crate) fn txq(&self, words: &str) -> (String, i32) {
        let mut words: Vec<_> = words.split_whitespace().collect();
        let control = self.control();
        words.splice(1..1, ["--socket", &control]);
        let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(words).output().expect("txq");
        let said = [done.stdout, done.stderr].concat();
        (String::from_utf8(said).expect("text"), done.status.code().expect("a code"))
    }

    /// Returns all counters of a device.
    pub(crate) fn counters(&self, dev: &str) -> Value {
        let (all, rc) = self.txq(&format!("stat {dev} --json"));
        assert_eq!(rc, 0, "{all}");
        let all: Value = serde_json::from_str(&all).expect("JSON");
        all[0]["counters"].clone()
    }

    #[track_caller]
    pub(crate) fn counter(&self, dev: &str, name: &str) -> u64 {
        let all = self.counters(dev);
        all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"))
    }

    /// Waits until no client is connected, and every packet that was accepted is sent or dropped.
    #[track_caller]
    pub(crate) fn assert_over(&self, dev: &str, socket: &str) {
        let mut last = Value::Null;
        let over = wait_until(LONG, || {
            last = self.counters(dev);
            let of = |name: &str| last[name].as_u64().unwrap_or(u64::MAX);
            let rows = last.as_object().expect("counters");
            let pending = rows.iter().filter(|(name, _)| name.ends_with("_pending"));
            of(&format!("socket_{socket}_clients")) == 0
                && of("queued") == 0
                && of("in_flight") == 0
                && of("accepted") + of("created") == of("tx_packets") + of("tx_dropped")
                && of(&format!("socket_{socket}_frames")) == of("accepted")
                && pending.clone().all(|(_, n)| n == 0)
        });
        assert!(over, "{last:#}");
    }
}

/// Ends a daemon, which must have no error.
#[track_caller]
pub(crate) fn end(running: Running) {
    running.signal(libc::SIGTERM);
    let ended = running.finish(LONG);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
}
