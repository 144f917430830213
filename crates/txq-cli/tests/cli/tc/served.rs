//! A listening txq, and the results of commands to it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::process::Running;

pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("txq-tc-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A listening txq, and commands to it.
pub(crate) struct Served {
    running: Running,
    pub(crate) socket: String,
    pub(crate) folder: Folder,
}

/// The output and exit code of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) rc: i32,
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { out: text(output.stdout), err: text(output.stderr), rc: output.status.code().expect("a code") }
    }

    /// Returns stderr without the lines that txq adds to tc's text.
    pub(crate) fn tc_words(&self) -> String {
        let lines = self.err.lines().filter(|line| !line.starts_with("txq: "));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!((self.rc, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }
}

pub(crate) fn txq(words: &[&str]) -> Said {
    Said::of(Command::new(env!("CARGO_BIN_EXE_txq")).args(words).output().expect("txq"))
}

pub(crate) fn start(words: &[&str]) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_txq")).args(words))
}

impl Served {
    pub(crate) fn daemon(test: &str) -> Self {
        let folder = Folder::new(test);
        let socket = folder.file("control.sock");
        let mut running = start(&["daemon", "--socket", &socket]);
        running.wait_for_text("listening on", LONG);
        Self { running, socket, folder }
    }

    pub(crate) fn tc(&self, words: &str) -> Said {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", &self.socket], &words[..]].concat())
    }

    pub(crate) fn dev(&self, words: &str) -> Said {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["dev", "--socket", &self.socket], &words[..]].concat())
    }

    pub(crate) fn batch(&self, options: &[&str], text: &str) -> Said {
        let words = [&["tc", "--socket", &self.socket], options, &["-batch", "-"]].concat();
        fed(Command::new(env!("CARGO_BIN_EXE_txq")).args(words), text)
    }

    /// Returns a number from `/proc/PID/status`.
    pub(crate) fn status(&self, field: &str) -> u64 {
        self.running.status(field)
    }

    pub(crate) fn end(self) {
        self.running.signal(libc::SIGTERM);
        let ended = self.running.finish(LONG);
        assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
        assert!(!fs::exists(&self.socket).expect("a path"), "the socket stays");
    }
}

/// Runs a command with a text on its standard input.
pub(crate) fn fed(command: &mut Command, text: &str) -> Said {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a child");
    // The write fails if the command stops before it has read everything.
    let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
    Said::of(child.wait_with_output().expect("an end"))
}
