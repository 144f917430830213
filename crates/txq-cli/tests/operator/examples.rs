//! The examples of `--help`, each as it stands: an operator who types one gets no error about its words.
//!
//! An example that serves or watches is ended after a second. A program that is not here (jq, man) excuses an example.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::TXQ;
use crate::process::{Finished, Running};
use crate::shell::{HELP, programs};
use crate::skip::{note_missing, require_root, require_tools};
use crate::tempdir::TempDir;

/// How long the examples of a command may need on a busy machine.
const LONG: Duration = Duration::from_secs(600);

/// Words that stand for what the machine of a reader has, and what stands for them here.
const HERE: [(&str, &str); 5] = [
    ("tc --name shell qdisc", "tc --name link qdisc"),
    ("/etc/txq.toml", "txq.toml"),
    ("--group netadmin", "--group users"),
    ("/run/user/1000/txq", "/run/txq"),
    ("txq daemon &", "txq daemon & sleep 0.5; kill %1"),
];

/// What an example needs first.
const FIRST: [(&str, &str); 9] = [
    (
        "dev up root netem",
        "(txq shell --peer --quiet --name link --up 'netem delay 1ms' -- sleep 9 &); until txq stat --name link > other; do sleep 0.05; done 2> other",
    ),
    (
        "filter get",
        "txq tc qdisc del dev d0 root; txq tc qdisc add dev d0 root handle 1: htb
         txq tc filter add dev d0 parent 1: protocol ip pref 1 u32 match u32 0 0",
    ),
    ("--handle 1:2", "txq tc qdisc replace dev wan root handle 1: mq"),
    ("txq ls ", "(txq daemon --socket /tmp/mine.sock &); until [ -S /tmp/mine.sock ]; do sleep 0.05; done"),
    (
        "curl ",
        "(txq web --quiet &); for _ in {1..200}; do curl -s http://127.0.0.1:9119/healthz && break; command sleep 0.05; done",
    ),
    ("txq dev del d0", "txq dev add d0 2> other"),
    (
        "&& txq reload",
        // A daemon that ended while it started leaves its socket.
        "txq stat > other 2>&1 || { txq daemon --quiet --config txq.toml & echo $! > pid; }
         until txq stat > other; do sleep 0.05; done 2> other",
    ),
    ("txq daemon &", "kill $(cat pid); wait $(cat pid)"),
    (
        "dev eth1 root cake",
        "(txq bridge eth0 eth1 --quiet --up cake &); until txq stat > other; do sleep 0.05; done 2> other",
    ),
];

/// The interfaces, programs and files of which examples speak, but no daemon.
const WORLD: &str = "
export HOME=$PWD/home PATH=$PATH:$PWD/home/.local/bin
mkdir -p $HOME/.local/bin $HOME/.zfunc $HOME/.config/fish/completions $HOME/.local/share/man/man1 /run/lab
for n in 0 1; do
    ip link add eth$n numtxqueues 4 numrxqueues 4 type veth peer name peer$n numtxqueues 4 numrxqueues 4
    ip link set eth$n up; ip link set peer$n up
done
ip netns add blue
ip address add 192.0.2.2/24 dev eth0
for program in server client; do printf '#!/bin/sh\\nexec sleep 9\\n' > $program; chmod +x $program; done
txq run --print-example > my.toml
echo 'qdisc replace dev wan root pfifo' > my.tc
printf 'up netem delay 5ms\\ndown tbf rate 9mbit burst 9k latency 5ms | netem delay 5ms\\n' > link.tc
echo 'qdisc replace dev udp0 root handle 1: htb' > htb.tc
printf '[[device]]\\nname = \"d9\"\\nnull = {}\\n' > txq.toml
cat > shaper.toml << 'END'
device = [{ name = \"null0\", sampling = \"all\", null = {} }, { name = \"eth0\", null = {} }]
sender = [{ device = \"null0\", rate = \"1kpps\" }]
END
export TERM=xterm
";

/// The daemons that examples ask.
const DAEMONS: &str = "
cat > control.toml << 'END'
device = [{ name = \"d0\", null = {} }, { name = \"eth0\", null = {} }, { name = \"wan\", txqs = 4, null = {} }]
END
(txq daemon --quiet --config control.toml &)
(txq daemon --quiet --config shaper.toml --name shaper &)
(txq daemon --quiet --config txq.toml --name lab &)
for name in control shaper lab; do until txq stat --name $name > other 2>&1; do sleep 0.05; done; done
";

/// Returns the examples of a command's help.
fn examples(command: &str) -> Vec<String> {
    let done = Command::new(TXQ).args([command, "--help"]).output().expect("txq");
    let help = String::from_utf8(done.stdout).expect("text").replace("\\\n", " ");
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.map_while(|line| line.strip_prefix("  "));
    // Three blanks part an example from its explanation.
    let found: Vec<_> = lines.filter_map(|line| line.split("   ").next()).map(str::to_owned).collect();
    assert!(!found.is_empty(), "{command} has no examples:\n{help}");
    found
}

/// Returns a script that executes an example, and tells if it fails.
fn script(example: &str) -> String {
    let first: String = FIRST
        .iter()
        .filter(|(part, _)| example.contains(part))
        .map(|(_, first)| format!("{first}\n"))
        .collect();
    let here = HERE.iter().fold(example.to_owned(), |text, (there, here)| text.replace(there, here));
    // A program for a terminal has one.
    let quote = |text: &str| text.replace('\'', "'\\''");
    let here = match here.starts_with("txq top") && !here.contains("--once") {
        true => format!("script -qec '{}' /dev/null", quote(&here)),
        false => here,
    };
    let quoted = quote(&here);
    format!(
        "{first}timeout -s INT 1 bash -c '{quoted}' < /dev/null > said 2>&1; rc=$?\n\
         case $rc in 0|124|130|143) ;; 127) echo \"SKIP $(head -1 said)\" ;;\n\
         *) echo \"FAILED $rc\" '{quoted}'; head -c 2000 said ;; esac\n"
    )
}

/// Executes the examples of a command, in namespaces of their own.
fn execute(command: &str, daemons: &str) {
    let test = format!("examples of {command}");
    if !(require_root(&test) && require_tools(&test, &["unshare", "bash", "ip", "timeout"])) {
        return;
    }
    let folder = TempDir::new();
    for (name, link) in [("traffic.pcap", 1), ("traffic.pcapng", 1), ("tunnel.pcap", 101)] {
        fs::write(folder.path().join(name), capture(link)).expect("a file");
    }
    let Some(place) = programs(&folder) else {
        return note_missing(&test, "an example is not built: cargo build --workspace --examples");
    };
    let all: String = examples(command).iter().map(|example| script(example)).collect();
    let script = format!(
        "set -e\nmount --make-rprivate /\nmount -t sysfs none /sys\n{place}mount -t tmpfs none /run\nip link set lo up\n\
         export XDG_RUNTIME_DIR=\n{HELP}{WORLD}{daemons}set +e\n{all}"
    );
    let mut unshare = Command::new("unshare");
    unshare.env("TXQ_OPERATOR", std::env::current_exe().expect("a path"));
    unshare.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        &script,
    ]);
    let Finished { status, stdout, stderr } = Running::start(&mut unshare).finish(LONG);
    assert!(status.success() && !stdout.contains("FAILED "), "{command}: {status}\n{stdout}\n{stderr}");
    println!("{stdout}");
}

/// Returns a capture of one UDP packet on a link of this type: Ethernet, or packets that begin with IP.
fn capture(link: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    if link == 1 {
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    }
    frame.extend([
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8, 0, 8, 0, 0,
    ]);
    let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link, 1, 0, frame.len() as u32, frame.len() as u32];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    bytes.extend(frame);
    bytes
}

/// Makes a test of each command, with the daemons that its examples ask.
macro_rules! commands {
    ($($test:ident = $command:literal, $daemons:expr;)*) => {
        const COMMANDS: &[&str] = &[$($command),*];
        $(
            #[test]
            fn $test() {
                execute($command, $daemons);
            }
        )*
    };
}

commands! {
    of_bridge = "bridge", "";
    of_check = "check", "";
    of_completions = "completions", "";
    of_contention = "contention", DAEMONS;
    of_daemon = "daemon", "";
    of_dev = "dev", "(txq daemon --quiet &)\n(txq daemon --quiet --config shaper.toml --name shaper &)\nuntil txq dev show && txq dev --name shaper show; do sleep 0.05; done > other 2>&1\n";
    of_doctor = "doctor", DAEMONS;
    of_exec = "exec", "command -v iperf3 dig ss > other && other_host > other\n";
    of_hist = "hist", DAEMONS;
    of_ls = "ls", DAEMONS;
    of_man = "man", "";
    of_reload = "reload", DAEMONS;
    of_replay = "replay", "";
    of_run = "run", "";
    of_save = "save", DAEMONS;
    of_shell = "shell", "sysctl -qw net.ipv4.ip_forward=1; export SHELL=/bin/sh\n";
    of_stat = "stat", DAEMONS;
    of_tc = "tc", DAEMONS;
    of_top = "top", DAEMONS;
    of_trace = "trace", DAEMONS;
    of_web = "web", DAEMONS;
    of_xps = "xps", "";
}

/// Commands whose examples no test executes: they measure for minutes.
const LAB: [&str; 2] = ["bench", "sim"];

#[test]
fn each_command_has_its_test() {
    let done = Command::new(TXQ).arg("--help").output().expect("txq");
    let help = String::from_utf8(done.stdout).expect("text");
    let commands =
        help.lines().filter_map(|line| line.strip_prefix("  ")).filter_map(|line| line.split_once(' '));
    let commands = commands.filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_lowercase()));
    for (name, _) in
        commands.filter(|(name, rest)| rest.starts_with(' ') && *name != "help" && *name != "txq")
    {
        assert!(COMMANDS.contains(&name) || LAB.contains(&name), "{name}");
    }
}
