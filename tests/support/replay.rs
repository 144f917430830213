//! Runs `txq replay` inside a namespace.

use super::netns::Netns;
use super::process::Running;
use super::report::Report;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Replay(Running);

impl Replay {
    /// Starts the command with `options`, split at blanks; a `~` in an option stands for a blank. The file, the device and
    /// `--json` are added.
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

    /// Waits for an orderly end and returns the command's report.
    pub(crate) fn finish(self, within: Duration) -> Report {
        let ended = self.0.finish(within);
        assert_eq!(ended.status.code(), Some(0), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
        Report::of_output(&ended.stdout)
    }
}
