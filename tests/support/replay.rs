//! Runs `txq replay` inside a namespace.

use super::netns::Netns;
use super::process::Running;
use super::report::Report;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Replay(Running);

impl Replay {
    /// `options` are split at blanks, and a `~` in one of them is a blank; the file, the device and `--json` are given.
    pub(crate) fn start(namespace: &Netns, file: &Path, device: &str, options: &str) -> Self {
        let mut command = namespace.command(env!("CARGO_BIN_EXE_txq"));
        command
            .arg("replay")
            .arg(file)
            .args(["--dev", device, "--json"])
            .args(options.split_whitespace().map(|word| word.replace('~', " ")));
        Self(Running::start(&mut command))
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        self.0.signal(signal);
    }

    /// Waits for an orderly end and returns what the command says it did.
    pub(crate) fn finish(self, within: Duration) -> Report {
        let ended = self.0.finish(within);
        assert_eq!(ended.status.code(), Some(0), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
        Report::of_output(&ended.stdout)
    }
}
