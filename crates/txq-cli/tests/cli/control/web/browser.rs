//! A headless Chromium, driven by its DevTools protocol over two pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

/// The names under which distributions have it.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// A page that does not get there in this time never does.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    last: u64,
    /// What the page has complained of.
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    /// Opens a page; `None` without a Chromium.
    pub(crate) fn open(url: &str) -> Option<Self> {
        let name = NAMES.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())?;
        let (read, to) = pipe();
        let (from, write) = pipe();
        let mut command = Command::new(name);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]);
        command.args(["--window-size=1100,720", "--no-first-run", "about:blank"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let ends = (read.as_raw_fd(), write.as_raw_fd());
        // SAFETY: dup and dup2 are async-signal-safe. The copies lie above 3 and 4, so neither dup2 closes the other's source.
        unsafe {
            command.pre_exec(move || {
                let (read, write) =
                    (libc::fcntl(ends.0, libc::F_DUPFD, 10), libc::fcntl(ends.1, libc::F_DUPFD, 10));
                match libc::dup2(read, 3) == 3 && libc::dup2(write, 4) == 4 {
                    true => Ok(()),
                    false => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().expect("the browser starts");
        let (to, from) = (File::from(to), BufReader::new(File::from(from)));
        let mut browser = Self { child, to, from, session: None, last: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Runtime.enable", json!({}));
        browser.call("Log.enable", json!({}));
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({ "url": url }));
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut request = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        write!(self.to, "{request}\0").expect("the browser reads");
        loop {
            let mut line = Vec::new();
            self.from.read_until(0, &mut line).expect("the browser answers");
            assert!(line.pop() == Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&line).expect("JSON");
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            let event = message["method"].as_str().unwrap_or_default();
            if event == "Runtime.exceptionThrown" || event == "Log.entryAdded" {
                self.complaints.push(message["params"].to_string());
            }
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let result =
            self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns a picture of the page, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }))["data"].clone();
        BASE64_STANDARD.decode(picture.as_str().expect("a picture")).expect("base64")
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait(&mut self, expression: &str) {
        let start = Instant::now();
        while self.eval(expression) != true {
            let body = self.eval("document.body?.innerText");
            assert!(start.elapsed() < PATIENCE, "never true: {expression}\n{body}\n{:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the ends of a pipe to read and to write, which programs do not inherit.
fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = std::io::pipe().expect("a pipe");
    (read.into(), write.into())
}
