//! `txq tc`, `txq dev` and `txq daemon` from outside: what they say is what the real tc says.

#[path = "../../txq/tests/netns/mod.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../tests/support/process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../tests/support/report.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod report;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use netns::{DEV, Netns};
use process::Running;
use report::{Report, assert_conserved};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(20);

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("txq-tc-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A txq that listens, and commands to it.
struct Served {
    running: Running,
    socket: String,
    folder: Folder,
}

/// What a command ended with.
#[derive(Debug, PartialEq)]
struct Said {
    out: String,
    err: String,
    rc: i32,
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { out: text(output.stdout), err: text(output.stderr), rc: output.status.code().expect("a code") }
    }

    /// Without what txq adds to tc's words.
    fn tc_words(&self) -> String {
        let lines = self.err.lines().filter(|line| !line.starts_with("txq: "));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[track_caller]
    fn good(self) -> String {
        assert_eq!((self.rc, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }
}

fn txq(words: &[&str]) -> Said {
    Said::of(Command::new(env!("CARGO_BIN_EXE_txq")).args(words).output().expect("txq"))
}

fn start(words: &[&str]) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_txq")).args(words))
}

impl Served {
    fn daemon(test: &str) -> Self {
        let folder = Folder::new(test);
        let socket = folder.file("control.sock");
        let mut running = start(&["daemon", "--socket", &socket]);
        running.wait_for_text("listening on", LONG);
        Self { running, socket, folder }
    }

    fn tc(&self, words: &str) -> Said {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", &self.socket], &words[..]].concat())
    }

    fn dev(&self, words: &str) -> Said {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["dev", "--socket", &self.socket], &words[..]].concat())
    }

    fn batch(&self, options: &[&str], text: &str) -> Said {
        let words = [&["tc", "--socket", &self.socket], options, &["-batch", "-"]].concat();
        fed(Command::new(env!("CARGO_BIN_EXE_txq")).args(words), text)
    }

    fn end(self) {
        self.running.signal(libc::SIGTERM);
        let ended = self.running.finish(LONG);
        assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
        assert!(!fs::exists(&self.socket).expect("a path"), "the socket stays");
    }
}

/// Runs a command with a text on its standard input.
fn fed(command: &mut Command, text: &str) -> Said {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a child");
    // Who stops early does not read all.
    let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
    Said::of(child.wait_with_output().expect("an end"))
}

#[test]
fn devices_come_and_go() {
    let daemon = Served::daemon("dev");
    assert_eq!(daemon.dev("show").good(), "");
    daemon.dev("add d0 type dummy numtxqueues 4 mtu 9000").good();
    daemon.dev("add d1 txqueuelen 0").good();
    let listed = "d0: mtu 9000 numtxqueues 4 qdisc mq\nd1: mtu 1500 numtxqueues 1 qdisc noqueue\n";
    assert_eq!(daemon.dev("show").good(), listed);
    let again = daemon.dev("add d0");
    assert_eq!((again.rc, again.tc_words().as_str()), (2, "RTNETLINK answers: File exists\n"));
    assert_eq!(daemon.tc("qdisc show dev d1").good(), "qdisc noqueue 0: root refcnt 2 \n");
    assert!(daemon.tc("q sh").good().starts_with("qdisc mq 0: dev d0 root \n"));
    daemon.dev("del d0").good();
    let gone = daemon.tc("qdisc show dev d0");
    assert_eq!((gone.rc, gone.err.as_str()), (1, "Cannot find device \"d0\"\ntxq: there are d1\n"));
    assert_eq!(daemon.dev("del d0").rc, 1);
    daemon.end();
}

#[test]
fn a_socket_has_one_listener_and_one_user() {
    let daemon = Served::daemon("socket");
    let mode = fs::metadata(&daemon.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = txq(&["daemon", "--socket", &daemon.socket]);
    assert!(second.rc == 2 && second.err.contains("another txq listens there"), "{second:?}");
    daemon.tc("qdisc show").good();
    // One that died leaves its socket, which is of no use to anybody.
    let stale = daemon.folder.file("stale.sock");
    drop(UnixListener::bind(&stale).expect("a socket"));
    let nobody = txq(&["tc", "--socket", &stale, "qdisc"]);
    assert!(nobody.rc == 2 && nobody.err.contains("start `txq daemon`"), "{nobody:?}");
    assert_eq!(nobody.err.lines().count(), 1, "{nobody:?}");
    let mut heir = start(&["daemon", "--socket", &stale]);
    heir.wait_for_text("listening on", LONG);
    assert_eq!(txq(&["tc", "--socket", &stale, "qdisc"]).good(), "");
    // What is no socket is somebody's.
    let file = daemon.folder.file("file");
    fs::write(&file, "mine").expect("a file");
    let refused = txq(&["daemon", "--socket", &file]);
    assert!(refused.rc == 2 && refused.err.contains("no socket"), "{refused:?}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
    daemon.end();
}

#[test]
fn requests_are_lines_and_nonsense_is_answered() {
    use std::io::{BufRead, BufReader};
    let daemon = Served::daemon("lines");
    let mut stream = UnixStream::connect(&daemon.socket).expect("a socket");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket"));
    let mut ask = |line: &str| -> Value {
        // In two pieces, with a pause that is longer than the other side waits at a time.
        let (first, second) = line.split_at(line.len() / 2);
        stream.write_all(first.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(80));
        stream.write_all(second.as_bytes()).expect("sent");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).expect("JSON")
    };
    assert_eq!(ask("{\"dev\":{\"words\":[\"add\",\"d0\"]}}\n"), json!({"out": "", "err": "", "rc": 0}));
    let shown = ask("{\"tc\":{\"words\":[\"qdisc\",\"sh\"],\"show\":{\"json\":true}}}\n");
    assert!(shown["out"].as_str().is_some_and(|out| out.contains("\"dev\":\"d0\"")), "{shown}");
    for nonsense in ["\n", "{}\n", "[1]\n", "{\"tc\":{}}\n", "\u{1}\u{2}\n", "{\"tc\":{\"words\":[\"\"]}}\n"]
    {
        assert_ne!(ask(nonsense)["rc"], 0, "{nonsense:?}");
    }
    daemon.tc("qdisc show").good();
    daemon.end();
}

#[test]
fn texts_are_checked_without_a_daemon() {
    let check = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", "/nowhere/at/all", "--check"], &words[..]].concat())
    };
    for good in [
        "qdisc add dev x root handle 1: tbf rate 1mbit burst 10k latency 50ms",
        "qdisc change dev x parent 7:3 handle 9: fq_codel target 5ms",
        "qdisc del dev x root",
        "qdisc show dev x root",
        "class add dev x parent 7: classid 7:1 htb rate 1mbit",
        "filter add dev x parent 7: protocol ip pref 1 u32 match ip dport 80 0xffff flowid 7:1",
        "filter show dev x parent 7:",
        "q r dev x root mqprio num_tc 2 map 0 1 queues 2@0 2@2 hw 0",
    ] {
        assert_eq!(check(good), Said { out: String::new(), err: String::new(), rc: 0 }, "{good}");
    }
    for (bad, rc, told) in [
        ("qdisc add dev x root fq_codel tagret 5ms", 1, "What is \"tagret\"?"),
        ("qdisc add dev x root pfifo limit z", 1, "pfifo: Illegal value for \"limit\": \"z\""),
        ("qdisc add dev x root zzz", 2, "Error: Specified qdisc kind is unknown."),
        ("qdisc add root pfifo", 2, "RTNETLINK answers: No such device"),
        ("qdisc add dev x root handle zz: pfifo", 255, "Error: argument \"zz:\" is wrong: invalid qdisc ID"),
        ("class add dev x parent 7: classid 7:1 htb rate zz", 1, "Illegal \"rate\""),
        ("class add dev x parent 7: classid 7:1 pfifo", 1, "Error: Qdisc \"pfifo\" is classless."),
        ("filter add dev x parent 7: prio 2 u32 match foo", 1, "Illegal \"match\""),
        ("qdisc show foo", 255, "What is \"foo\"? Try \"tc qdisc help\"."),
    ] {
        let said = check(bad);
        assert_eq!((said.rc, said.tc_words().lines().next()), (rc, Some(told)), "{bad}: {said:?}");
        assert!(said.err.contains("\ntxq: ") || bad.ends_with("foo"), "no remedy: {said:?}");
    }
    let batch = fed(
        Command::new(env!("CARGO_BIN_EXE_txq")).args(["tc", "--check", "-batch", "-"]),
        "qdisc add dev x root pfifo # fine\nqdisc add dev x root pfifo lmit 4\n",
    );
    assert_eq!(batch.rc, 1);
    assert!(batch.err.ends_with("txq: did you mean \"limit\"?\nCommand failed -:2\n"), "{batch:?}");
}

/// The same to both: after each command the same words, the same exit code and the same qdiscs.
const COMMANDS: [&str; 62] = [
    "qdisc replace dev X root handle 1: tbf rate 8kbit burst 200 limit 400",
    "qdisc add dev X root handle 1: tbf rate 8kbit burst 200 limit 400",
    "qdisc add dev X root handle 2: tbf rate 8kbit burst 200 limit 400",
    "qdisc add dev X parent 1:1 handle 10: pfifo limit 5",
    "qdisc add dev X parent 2:1 handle 11: pfifo limit 5",
    "qdisc add dev X parent 10:1 handle 11: pfifo limit 5",
    "qdisc show dev X parent 1:1",
    "qdisc show dev X handle 10:",
    "qdisc show dev X handle 11:",
    "qdisc show dev X root",
    "qdisc show dev X ingress",
    "qdisc show dev X invisible",
    "qdisc show dev X handle zz",
    "qdisc show dev X parent zz",
    "qdisc show dev X root handle 1:",
    "qdisc show dev X handle 1: root",
    "qdisc show dev nope",
    "qdisc show dev",
    "qdisc show foo",
    "qdisc foo",
    "qdisc adx dev X root pfifo",
    "foo",
    "-Z qdisc show",
    "-foo qdisc",
    "-dev q sh",
    "qdisc change dev X handle 10: pfifo limit 8",
    "qdisc change dev X handle 10: bfifo limit 8",
    "qdisc replace dev X handle 10: pfifo limit 9",
    "qdisc replace dev X handle 12: pfifo limit 9",
    "qdisc add dev X handle 10: pfifo limit 9",
    "qdisc add dev X handle 12: pfifo limit 9",
    "qdisc add dev X pfifo",
    "qdisc del dev X",
    "qdisc del dev X handle 10:",
    "qdisc del dev X handle 12:",
    "qdisc del root",
    "qdisc add root pfifo",
    "qdisc add root pfifo limit zzz",
    "qdisc del dev nope root",
    "qdisc add dev nope root pfifo",
    "qdisc add dev nope root pfifo limit zzz",
    "qdisc add dev X parent 9:9 pfifo limit zzz",
    "qdisc add dev X root zzz",
    "qdisc add dev X root zzz foo",
    "qdisc replace dev X root zzz",
    "qdisc add dev X root root pfifo",
    "qdisc add dev X root parent 1:1 pfifo",
    "qdisc add dev X parent 1:1 root pfifo",
    "qdisc add dev X root dev X pfifo",
    "qdisc add dev X root handle zz: pfifo",
    "qdisc add dev X parent",
    "qdisc de dev X parent 1:1",
    "qdisc d dev X parent 1:1",
    "qdisc r dev X root handle 5: mq",
    "qdisc a dev X parent 5:2 handle 6: pfifo limit 3",
    "qdisc show dev X parent 5:2",
    "qdisc c dev X parent 5:2 pfifo limit 7",
    "qdisc del dev X parent 5:9",
    "qdisc del dev X parent 5:2 handle 7:",
    "-r qdisc show dev X",
    "-iec -d qdisc ls dev X",
    "qdisc r dev X root handle 7: mq",
];

#[test]
fn commands_are_those_of_tc() {
    let Some(netns) = Netns::new("commands") else { return };
    let daemon = Served::daemon("commands");
    daemon.dev(&format!("add {DEV} numtxqueues 4")).good();
    for command in COMMANDS {
        let words: Vec<_> = command.split(' ').collect();
        let (ours, theirs) = (daemon.tc(command), Said::of(netns.run("tc", &words)));
        // How to use a kind is told in other words.
        let first = |text: String| text.lines().next().map(str::to_owned);
        assert_eq!(
            (first(ours.tc_words()), ours.rc),
            (first(theirs.err.clone()), theirs.rc),
            "{command}: {ours:?}"
        );
        assert_eq!(parts(&ours.out), parts(&theirs.out), "{command}");
        for option in ["-s", "-d", "-iec"] {
            let show = [option, "qdisc", "show", "dev", DEV];
            let (ours, theirs) = (daemon.tc(&show.join(" ")).good(), netns.tc(&show));
            assert_eq!(parts(&ours), parts(&theirs), "{option} after {command}");
        }
    }
    for options in ["-j", "-j -p", "-s -j -p", "-p -d -js"] {
        for rest in ["", " root", " handle 77:"] {
            let show = format!("{options} qdisc show dev {DEV}{rest}");
            let theirs = netns.tc(&show.split(' ').collect::<Vec<_>>());
            assert_eq!(daemon.tc(&show).good(), theirs, "{show}");
        }
    }
    daemon.end();
}

/// What is said of each qdisc, in any order: that of the kernel is by a hash of handles.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<_> = text.split("qdisc ").collect();
    parts.sort_unstable();
    parts
}

const BATCHES: [&str; 9] = [
    "# c\n\nqdisc replace dev X root handle 1: \\\n pfifo limit 5\nqdisc add dev X root handle 2: pfifo # x\nqdisc foo\n\
     qdisc show dev X\n",
    "tc qdisc show\n",
    "foo\nqdisc show dev X\n",
    "q sh dev \"X\"\n-s q sh dev X\n",
    "qdisc change dev X root pfifo limit 6\nqdisc add dev X parent 1:1 pfifo\nqdisc add dev nope root pfifo\n\
     qdisc add dev X root pfifo limit 1z\n",
    "qdisc show dev X \\",
    "   # x\n  qdisc show dev X # y\n qdisc show dev X#z\n",
    "qdisc show dev X \\\n\n#c\nfoo\n",
    "qdisc show dev X \\\n root \\\n # c\n pfifo limit zz\n",
];

#[test]
fn batches_are_those_of_tc() {
    let Some(netns) = Netns::new("batches") else { return };
    let daemon = Served::daemon("batches");
    daemon.dev(&format!("add {DEV}  numtxqueues 4")).good();
    for batch in BATCHES {
        for options in [&[][..], &["-force"], &["-j"], &["-j", "-p", "-force"]] {
            let file = daemon.folder.file("batch");
            fs::write(&file, batch).expect("a file");
            let words = [options, &["-batch", &file]].concat();
            let (ours, theirs) = (daemon.tc(&words.join(" ")), Said::of(netns.run("tc", &words)));
            let about = format!("{options:?} {batch:?}: {ours:?}");
            // How to use a kind is told in other words, or not at all.
            let told = |said: &Said| -> Vec<String> {
                let usage = |line: &&str| !line.starts_with("Usage: ");
                said.tc_words().lines().filter(usage).map(str::to_owned).collect()
            };
            assert_eq!((told(&ours), ours.rc), (told(&theirs), theirs.rc), "{about}");
            assert_eq!(ours.out, theirs.out, "{about}");
            if options == ["-force"] {
                assert_eq!(daemon.batch(options, batch).rc, theirs.rc, "{about}");
            }
        }
    }
    let absent = ["-batch", "/nowhere/at/all"];
    let (ours, theirs) = (daemon.tc(&absent.join(" ")), Said::of(netns.run("tc", &absent)));
    assert_eq!((ours.tc_words(), ours.rc), (theirs.err, theirs.rc));
    daemon.end();
}

#[test]
fn traffic_goes_on_while_qdiscs_change() {
    let folder = Folder::new("traffic");
    let (socket, file) = (folder.file("control.sock"), folder.file("run.toml"));
    let text = "[[device]]\nname = \"d0\"\ntxqs = 2\nqdisc = \"mq\"\n[[sender]]\nthreads = 2\nrate = \"20kpps\"\nbatch = 4\n";
    fs::write(&file, text).expect("a file");
    let running = start(&["run", &file, "--duration", "60s", "--json", "--quiet", "--socket", &socket]);
    let tc = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", &socket], &words[..]].concat())
    };
    let begin = Instant::now();
    while tc("qdisc").rc != 0 {
        assert!(begin.elapsed() < LONG, "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let removed = txq(&["dev", "--socket", &socket, "del", "d0"]);
    assert!(removed.rc == 2 && removed.err.contains("busy"), "{removed:?}");
    let sent = || -> u64 {
        let shown: Value = serde_json::from_str(&tc("-s -j qdisc show dev d0 root").good()).expect("JSON");
        shown[0]["packets"].as_u64().expect("a number")
    };
    let qdiscs = [
        "handle 1: pfifo limit 500",
        "handle 2: tbf rate 1gbit burst 1m latency 50ms",
        "handle 3: fq_codel",
        "handle 4: mq",
    ];
    for (round, qdisc) in qdiscs.iter().cycle().take(12).enumerate() {
        tc(&format!("qdisc replace dev d0 root {qdisc}")).good();
        // Its counters begin at 0, so what it counts has come after it was put there.
        let since = Instant::now();
        while sent() == 0 {
            assert!(since.elapsed() < LONG, "nothing goes through {qdisc} in round {round}");
        }
    }
    running.signal(libc::SIGTERM);
    let ended = running.finish(LONG);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    let report = Report::of_output(&ended.stdout);
    assert_conserved(&report);
    assert!(report.sent > 0, "{report:?}");
    assert!(!fs::exists(&socket).expect("a path"), "the socket stays");
}

/// About filters, one after the other. A kernel without prio has htb for a parent, with the same filters.
const FILTERS: [&str; 27] = [
    "filter add dev X parent 1: protocol ip pref 1 u32 match ip src 1.2.3.0/24 match ip dport 80 0xffff flowid 1:1",
    "f a dev X protocol all pref 5 u32 match u32 0x1 0xff at 20 flowid 1:3",
    "filter add dev X parent 1: protocol ip pref 8 nosuch x",
    "filter add dev X parent 1: protocol ip pref 8 nosuch",
    "filter add dev X parent 1: protocol zzz pref 1 u32",
    "filter add dev X parent 1: protocol ip pref x u32",
    "filter add dev X parent 1:zz u32",
    "filter add dev X parent 2: u32 match u32 0 0",
    "filter add dev X parent 1: pref 1 pref 2 u32",
    "filter add dev X root parent 1: u32",
    "filter add dev X parent 1: prio 2 u32 match foo",
    "filter add dev X parent 1: prio 2 u32 match ip src zz",
    "filter add dev X parent 1: prio 2 u32 foo",
    "filter change dev X parent 1: prio 3 u32 match u32 0 0",
    "filter add dev nope parent 1: prio 2 u32 foo",
    "filter add dev nope parent 1: prio 2 u32 match u32 0 0",
    "filter add dev X",
    "filter show dev nope",
    "filter show dev X foo",
    "filter show dev X parent zz",
    "filter show dev X root parent 1:",
    "filter show dev X pref 5",
    "filter show",
    "filter foo",
    "filter",
    "f d dev X pref 5",
    "filter replace dev X parent 1: protocol ip pref 1 handle 800::800 u32 match u32 0 0 flowid 1:8",
];

#[test]
fn filters_are_those_of_tc() {
    let Some(netns) = Netns::new("filters") else { return };
    if !["prio", "htb"].iter().any(|kind| netns.replace(&["root", "handle", "1:", kind])) {
        return;
    }
    let daemon = Served::daemon("filters");
    daemon.dev(&format!("add {DEV}")).good();
    daemon.tc("qdisc add dev X root handle 1: prio").good();
    for command in FILTERS {
        let (ours, theirs) =
            (daemon.tc(command), Said::of(netns.run("tc", &command.split(' ').collect::<Vec<_>>())));
        let about = format!("{command}: {ours:?} {theirs:?}");
        let told = |text: &str| {
            text.lines().take(2).filter(|l| !l.starts_with("Usage")).collect::<Vec<_>>().join("|")
        };
        assert_eq!((told(&ours.tc_words()), ours.rc), (told(&theirs.err), theirs.rc), "{about}");
        assert_eq!(ours.out, theirs.out, "{about}");
        for show in ["-s filter show dev X", "filter show dev X parent 1:", "-j -p filter show dev X prio 5"]
        {
            let theirs = netns.tc(&show.split(' ').collect::<Vec<_>>());
            assert_eq!(daemon.tc(show).good(), theirs, "{show} after {command}");
        }
    }
    daemon.end();
}

/// About classes, one after the other.
const CLASSES: [&str; 34] = [
    "class add dev X parent 1: classid 1:1 htb rate 1mbit",
    "c a dev X parent 1:1 classid 1:2 htb rate 500kbit ceil 1mbit",
    "class add dev X parent 1:1 classid 1:2 htb rate 500kbit ceil 1mbit",
    "class show",
    "class show dev X root",
    "class show dev X parent 1:1",
    "class show dev X parent 1:",
    "class show dev X classid 1:2",
    "class show dev X qdisc 1:",
    "class show dev X parent zz",
    "class show dev X root parent 1:",
    "class show dev X parent 1: root",
    "class show dev X classid zz",
    "class show dev X qdisc 1: qdisc 1:",
    "class show dev X qdisc zz",
    "class show dev X foo",
    "class show dev nope",
    "class add dev nope parent 1:1 classid 1:2 htb rate 500kbit",
    "class add dev nope parent 1:1 classid 1:2 htb rate 50zz",
    "class add parent 1:1 classid 1:2 htb rate 50",
    "class add dev X parent 1:1 classid 1:2 zzz rate 50",
    "class add dev X parent 1: classid 1:7 pfifo",
    "class add dev X parent 1:1 classid zz htb rate 5",
    "class add dev X parent zz classid 1:2 htb rate 5",
    "class add dev X parent 1:1 parent 1:1 classid 1:2 htb rate 5",
    "class add dev X classid 1:2 classid 1:2 htb rate 5",
    "class change dev X classid 1:9 htb rate 5kbit",
    "class replace dev X parent 1:1 classid 1:9 htb rate 5kbit",
    "class change dev X classid 1:2 htb rate 600kbit ceil 2mbit",
    "class del dev X classid 1:9",
    "class del dev X classid 1:1",
    "class del dev X",
    "class foo",
    "class",
];

#[test]
fn classes_are_those_of_tc() {
    let Some(netns) = Netns::new("tc-classes") else { return };
    if !netns.replace(&["root", "handle", "1:", "htb", "default", "2"]) {
        return;
    }
    let daemon = Served::daemon("classes");
    daemon.dev(&format!("add {DEV}")).good();
    daemon.tc("qdisc add dev X root handle 1: htb default 2").good();
    for command in CLASSES {
        let (ours, theirs) =
            (daemon.tc(command), Said::of(netns.run("tc", &command.split(' ').collect::<Vec<_>>())));
        let about = format!("{command}: {ours:?} {theirs:?}");
        let first = |text: String| text.lines().next().map(str::to_owned);
        assert_eq!((first(ours.tc_words()), ours.rc), (first(theirs.err.clone()), theirs.rc), "{about}");
        let classes = |text: &str| -> Vec<String> {
            let mut list: Vec<_> = text.split("class ").map(str::to_owned).collect();
            list.sort_unstable();
            list
        };
        assert_eq!(classes(&ours.out), classes(&theirs.out), "{about}");
        for option in ["-s", "-d", "-iec"] {
            let show = [option, "class", "show", "dev", DEV];
            let (ours, theirs) = (daemon.tc(&show.join(" ")).good(), netns.tc(&show));
            assert_eq!(classes(&ours), classes(&theirs), "{option} after {command}");
        }
    }
    let shown: Value = serde_json::from_str(&daemon.tc("-j class show dev X").good()).expect("JSON");
    assert_eq!(shown.as_array().map(Vec::len), Some(2), "{shown}");
    daemon.end();
}
