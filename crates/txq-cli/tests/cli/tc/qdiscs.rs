//! `tc qdisc`.

use super::served::{Said, Served};
use crate::txq_netns::{DEV, Netns};

/// Commands for both: after each one the output, the exit code and the qdiscs must be equal.
const COMMANDS: [&str; 64] = [
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
    "qdisc add dev X parent 1: parent zz pfifo",
    "qdisc add dev X handle 1: handle",
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
        // txq's usage text of a kind differs from tc's.
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

/// Returns the text of each qdisc, sorted: the kernel's order is by a hash of handles.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<_> = text.split("qdisc ").collect();
    parts.sort_unstable();
    parts
}
