//! A child process that cannot outlive its test and whose output is never lost to a full pipe.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The exit status and output of an ended process.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running process; it is killed when its guard is dropped, or when the thread that started it ends.
pub(crate) struct Running {
    what: String,
    child: Child,
    stdout: Output,
    stderr: Output,
}

struct Output {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and takes integers here.
        unsafe { command.pre_exec(die_with_parent) };
        Self::spawn(command)
    }

    /// As [`start`](Running::start), but the process outlives this one if this one is killed: for commands that soon end.
    /// Nothing is called between fork and exec, so the standard library spawns the process without a fork, which would copy the
    /// page tables of all pools.
    fn spawn(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let stdout = Output::follow(child.stdout.take().expect("piped"));
        let stderr = Output::follow(child.stderr.take().expect("piped"));
        Self { what, child, stdout, stderr }
    }

    /// Waits until the process has written `text` on either stream; returns all that it has written.
    pub(crate) fn wait_for_text(&mut self, text: &str, within: Duration) -> String {
        let said = wait_until(within, || self.stdout.contains(text) || self.stderr.contains(text));
        assert!(said, "{} did not say {text:?}: {}", self.what, self.text());
        self.text()
    }

    /// Returns all that the process has written so far.
    pub(crate) fn text(&self) -> String {
        self.stdout.copy() + &self.stderr.copy()
    }

    /// Returns a number from the process's `/proc/PID/status`, for example `VmRSS:` in KiB.
    #[allow(dead_code, reason = "few tests ask")]
    pub(crate) fn status(&self, field: &str) -> u64 {
        self.try_status(field).expect(field)
    }

    /// As [`status`](Self::status); `None` once the process has ended.
    pub(crate) fn try_status(&self, field: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        value.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a pid");
        // SAFETY: kill has no memory preconditions; the child is not reaped before `finish`, so the pid is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "{}: cannot be signalled", self.what);
    }

    /// Returns whether the process has ended.
    #[allow(dead_code, reason = "few tests ask")]
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for the end; a process that takes longer is killed and fails the test.
    pub(crate) fn finish(mut self, within: Duration) -> Finished {
        let ended = wait_until(within, || self.child.try_wait().expect("a child").is_some());
        if !ended {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("a child");
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        assert!(ended, "{} still ran after {within:?}\n{stdout}{stderr}", self.what);
        Finished { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    fn follow(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut chunk) {
                written.lock().expect("text").push_str(&String::from_utf8_lossy(&chunk[..length]));
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn contains(&self, text: &str) -> bool {
        self.text.lock().expect("text").contains(text)
    }

    fn copy(&self) -> String {
        self.text.lock().expect("text").clone()
    }

    fn take(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reader of output");
        }
        self.copy()
    }
}

/// Asks the kernel to kill the child when its parent ends: a killed test run drops no guards.
fn die_with_parent() -> std::io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Runs a short command to its end and returns its output; a failure fails the test.
pub(crate) fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    let ended = Running::spawn(command).finish(Duration::from_secs(60));
    assert!(ended.status.success(), "{what}: {}\n{}{}", ended.status, ended.stdout, ended.stderr);
    ended.stdout
}

/// Polls `done` until it is true or the time is up; returns whether it became true.
pub(crate) fn wait_until(within: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
