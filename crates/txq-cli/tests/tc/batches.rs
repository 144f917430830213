//! `tc -batch`.

use std::fs;
use std::process::{Command, Stdio};

use crate::netns::{DEV, Netns};
use crate::served::{Said, Served};

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
            // txq's usage lines differ from tc's, or are missing.
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

/// `txq tc ... | head -1`: tc ends by SIGPIPE, without a word.
#[test]
fn a_closed_pipe_is_silent() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut txq = Command::new(env!("CARGO_BIN_EXE_txq"));
    let ended = txq.args(["tc", "-V"]).stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(141), ""));
}
