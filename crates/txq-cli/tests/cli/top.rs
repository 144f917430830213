//! `txq top`: in a terminal, which tmux plays, and as one table.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

/// A bound that no test reaches on a working program, however slow the machine is.
const LONG: Duration = Duration::from_secs(120);
/// The variable that has the arguments of the program that sends.
const EXAMPLE: &str = "TXQ_TEST_EXAMPLE";

/// The program that sends: this test alone, in a process of its own.
#[test]
#[ignore = "it is a program, which other tests start"]
fn example() {
    crate::served::run(&std::env::var(EXAMPLE).expect("the name"), 600).expect("the example runs");
}

/// Our end of a terminal.
struct Pty(File);

impl Pty {
    /// Waits until the program has drawn something.
    fn wait_for_output(&self) {
        let mut some = [0; 4096];
        assert!((&self.0).read(&mut some).expect("output") > 0);
    }
}

/// A runtime folder.
struct Place(TempDir);

impl Place {
    /// Starts the program that sends.
    fn program(&self) -> Running {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        command.args(["--exact", "top::example", "--ignored", "--nocapture"]);
        command.env(EXAMPLE, "shaper").env("XDG_RUNTIME_DIR", self.0.path());
        let mut running = Running::start(&mut command);
        running.wait_for_text("serving on", LONG);
        running
    }

    /// Starts `txq top` on a terminal of its own; `ignored` lets it ignore SIGHUP.
    fn on_pty(&self, ignored: bool) -> (Pty, std::process::Child) {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudoterminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a pseudoterminal");
        let name = ptsname(&ours, Vec::new()).expect("its name").into_string().expect("text");
        let theirs = File::options().read(true).write(true).open(name).expect("its other end");
        let copy = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        // A session of its own, which has no other terminal.
        let trap = if ignored { "trap '' HUP; " } else { "" };
        let script =
            format!("{trap}exec setsid {} top --name shaper --delay 100ms", env!("CARGO_BIN_EXE_txq"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("XDG_RUNTIME_DIR", self.0.path()).env("TERM", "xterm");
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("sh");
        (Pty(File::from(ours)), child)
    }

    fn txq(&self, words: &str) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        command.args(words.split_whitespace()).env("XDG_RUNTIME_DIR", self.0.path());
        Running::start(&mut command).finish(LONG)
    }

    /// Returns the output of a command that succeeds.
    #[track_caller]
    fn good(&self, words: &str) -> String {
        let ended = self.txq(words);
        assert!(ended.status.success(), "{words}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// Gives the program a tree of classes.
    fn classes(&self) {
        self.good("tc --name shaper qdisc replace dev null0 root handle 1: htb default 10");
        self.good("tc --name shaper class add dev null0 parent 1: classid 1:10 htb rate 1gbit");
    }
}

/// A shell in a terminal.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// Starts a shell; returns `None`, with a line that says so, without tmux.
    fn start(place: &Place) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("SKIP: there is no tmux");
            return None;
        }
        let terminal = Self { folder: TempDir::new() };
        let mut command =
            terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "sh"]);
        command.env("XDG_RUNTIME_DIR", place.0.path()).env_remove("ENV").env_remove("TMUX").env("PS1", "$ ");
        let done = command.output().expect("tmux starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.folder.path().join("tmux")).args(words);
        command
    }

    #[track_caller]
    fn output(&self, words: &[&str]) -> String {
        let done = self.tmux(words).output().expect("tmux runs");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Presses a key by tmux's name for it.
    fn press(&self, key: &str) {
        self.output(&["send-keys", key]);
    }

    /// Types a text.
    fn text(&self, text: &str) {
        self.output(&["send-keys", "-l", text]);
    }

    fn screen(&self) -> String {
        self.output(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it should be, and returns it.
    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if done(&screen) {
                return screen;
            }
            assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Starts `txq top`; the file that is returned has its process.
    fn top(&self) -> PathBuf {
        let pid = self.folder.path().join("pid");
        let txq = env!("CARGO_BIN_EXE_txq");
        self.text(&format!(
            "sh -c 'echo $$ > {}; exec {txq} top --name shaper --delay 100ms'",
            pid.display()
        ));
        self.press("Enter");
        pid
    }

    /// Returns whether a program has a screen of its own, and whether the cursor is visible.
    fn modes(&self) -> String {
        let modes = self.output(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        modes.trim().to_owned()
    }

    /// Checks that the command has ended with code 0, and that the terminal is as before.
    #[track_caller]
    fn ended(&self) {
        // Until then the keys are its own; it leaves its screen last.
        self.wait("the screen of before", |_| self.modes().starts_with("0 "));
        self.text("echo ended-$?");
        self.press("Enter");
        let screen = self.wait("the end", |screen| screen.lines().any(|line| line.contains("ended-0")));
        assert!(screen.lines().any(|line| line.contains("ended-0")), "{screen}");
        self.text(
            "stty -a | tr ' ;' '\\n\\n' | grep -xE -- '-?(icanon|echo|isig|opost)' | tr '\\n' ' '; echo",
        );
        self.press("Enter");
        self.wait("the modes", |screen| {
            screen.lines().any(|line| {
                let mut modes: Vec<_> = line.split_whitespace().filter(|word| word.len() > 1).collect();
                modes.sort_unstable();
                modes == ["echo", "icanon", "isig", "opost"]
            })
        });
        assert_eq!(self.modes(), "0 1");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell that has ended takes tmux with it.
        let _ = self.tmux(&["kill-server"]).output();
    }
}

/// A terminal that closes ends the command, also without SIGHUP, as behind `nohup` or `setsid`.
#[test]
fn a_terminal_that_closes_ends_it() {
    let place = Place(TempDir::new());
    let _program = place.program();
    for ignored in [false, true] {
        let (terminal, mut top) = place.on_pty(ignored);
        terminal.wait_for_output();
        drop(terminal);
        let start = Instant::now();
        let ended = loop {
            if let Some(status) = top.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < LONG, "it runs on without its terminal");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.code(), Some(1), "{ended}");
    }
}

#[test]
fn keys_change_what_the_terminal_shows() {
    let place = Place(TempDir::new());
    let Some(terminal) = Terminal::start(&place) else { return };
    let program = place.program();
    place.classes();
    terminal.top();
    let screen =
        terminal.wait("rates", |screen| screen.contains("live: rates of") && screen.contains("bit "));
    let pid = program.status("Pid:");
    assert!(screen.contains(&format!("pid {pid}, txq ")) && screen.contains("1 device: null0"), "{screen}");
    assert!(screen.contains("\n +txqs: 1"), "{screen}");
    assert!(screen.contains("  htb 1:10 ") && screen.contains("-htb 1: "), "{screen}");
    // The qdisc's row is the third.
    terminal.press("Down");
    terminal.press("Down");
    terminal.text("-");
    terminal.wait("collapsed", |screen| screen.contains("+htb 1: ") && !screen.contains("htb 1:10"));
    terminal.press("Right");
    terminal.wait_for("htb 1:10");
    terminal.text("/1:10");
    terminal.wait("filtered", |screen| screen.contains("filter: 1:10_") && !screen.contains("txqs"));
    terminal.press("Escape");
    terminal.wait_for("txqs: 1");
    terminal.text(">");
    terminal.wait_for("; by rate");
    terminal.text("s");
    terminal.wait_for("0 main");
    terminal.text("d");
    terminal.wait_for("Drops of null0 by reason");
    terminal.text("c");
    terminal.wait_for("hand-offs: ");
    terminal.press("F1");
    terminal.wait_for("select a row");
    terminal.press("F1");
    // A terminal of another size.
    terminal.output(&["resize-window", "-x", "40", "-y", "10"]);
    terminal.wait("the small screen", |screen| screen.contains("PPS") && !screen.contains("BACKLOG"));
    terminal.output(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("BACKLOG");
    terminal.text("q");
    terminal.ended();
}

#[test]
fn the_screen_outlives_the_program_and_the_terminal_a_signal() {
    let place = Place(TempDir::new());
    let Some(terminal) = Terminal::start(&place) else { return };
    let program = place.program();
    let pid_file = terminal.top();
    terminal.wait_for("live: rates of");
    program.signal(libc::SIGSTOP);
    terminal.wait_for("silent since ");
    // Keys work meanwhile.
    terminal.text("h");
    terminal.wait_for("select a row");
    terminal.text("h");
    program.signal(libc::SIGCONT);
    terminal.wait_for("live: rates of");
    program.signal(libc::SIGKILL);
    terminal.wait_for("gone: waiting for it");
    drop(program);
    let again = place.program();
    let pid = format!("pid {}, ", again.status("Pid:"));
    terminal.wait("the new process", |screen| screen.contains(&pid) && screen.contains("live: rates of"));
    let pid = std::fs::read_to_string(pid_file).expect("the process").trim().to_owned();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    terminal.ended();
}

/// Returns the counters of the device.
fn counters(place: &Place) -> Value {
    let stat: Value = serde_json::from_str(&place.good("stat --name shaper --json")).expect("JSON");
    stat[0]["counters"].clone()
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}"))
}

#[test]
fn one_table_agrees_with_the_counters() {
    let place = Place(TempDir::new());
    let _program = place.program();
    place.classes();
    let before = counters(&place);
    let text = place.good("top --name shaper --once --delay 200ms --json");
    let after = counters(&place);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let seconds = found["seconds"].as_f64().expect("seconds");
    assert!(seconds >= 0.2 && text.lines().count() == 1, "{text}");
    let device = &found["devices"][0];
    assert_eq!(device["device"], "null0");
    for (own, stat, rate, unit) in [
        ("packets", "tx_packets", "packets_per_second", 1.0),
        ("bytes", "tx_bytes", "bits_per_second", 8.0),
        ("drops", "tx_dropped", "drops_per_second", 1.0),
    ] {
        let (first, last) = (number(&before, stat), number(&after, stat));
        assert!((first..=last).contains(&number(device, own)), "{own}: {text}");
        // No more than was counted between the commands before and after.
        let counted = device[rate].as_f64().expect("a rate") * seconds / unit;
        assert!(counted <= (last - first) as f64 + 0.5, "{rate}: {counted} of {}: {text}", last - first);
        assert_eq!(found[rate], device[rate]);
    }
    let sent = number(&device["senders"][0]["counters"], "sent");
    assert!((number(&before, "sender_0_main_sent")..=number(&after, "sender_0_main_sent")).contains(&sent));
    let tree: Vec<_> = device["tree"].as_array().expect("rows").iter().map(|row| &row["handle"]).collect();
    assert!(tree.iter().any(|handle| *handle == "1:10"), "{text}");
    let table = place.good("top --name shaper --once --delay 50ms");
    let lines: Vec<_> = table.lines().collect();
    assert!(
        lines[0].contains(", pid ") && lines[1].starts_with("NAME") && lines[2].starts_with("null0 "),
        "{table}"
    );
    assert!(table.contains("    htb 1:10 "), "{table}");
}

#[test]
fn what_is_missing_is_named() {
    let place = Place(TempDir::new());
    for words in ["top --name shaper --once", "top --name shaper --once --json"] {
        let ended = place.txq(words);
        assert_eq!(ended.status.code(), Some(2));
        assert!(ended.stderr.contains("no txq listens on"), "{}", ended.stderr);
    }
    let _program = place.program();
    let ended = place.txq("top --name shaper");
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no terminal") && ended.stderr.contains("--once"), "{}", ended.stderr);
    let ended = place.txq("top --json");
    assert!(ended.status.code() == Some(1) && ended.stderr.contains("--once"), "{}", ended.stderr);
}
