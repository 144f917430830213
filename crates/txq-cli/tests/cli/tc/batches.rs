//! `tc -batch`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::served::{Said, Served};
use crate::txq_netns::{DEV, Netns};

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

/// A program that waits for the answer to a command before it writes the next one has the answer.
#[test]
fn a_batch_answers_before_it_waits_for_more() {
    let daemon = Served::daemon("waits");
    daemon.dev("add d0").good();
    let mut txq = Command::new(env!("CARGO_BIN_EXE_txq"));
    txq.args(["tc", "--socket", &daemon.socket, "-batch", "-"]);
    let mut txq = txq.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let (mut commands, out) = (txq.stdin.take().expect("piped"), txq.stdout.take().expect("piped"));
    let mut answers = BufReader::new(out).lines();
    for limit in 5..8 {
        // The second command is ready, and the third is not whole yet.
        let text = format!("qdisc replace dev d0 root pfifo limit {limit}\nqdisc show dev d0\nqdisc \\\n");
        commands.write_all(text.as_bytes()).expect("it reads");
        let answer = answers.next().expect("an answer").expect("a line");
        assert!(answer.contains(&format!("limit {limit}p")), "{answer}");
        commands.write_all(b" show dev d0\n").expect("it reads");
        assert_eq!(answers.next().expect("an answer").expect("a line"), answer);
    }
    drop(commands);
    assert!(txq.wait().expect("an end").success());
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
