//! `txq check`, and the example of a daemon's file. These need neither root nor interfaces.

use std::fs;
use std::process::Command;

use super::bench::LONG;
use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

fn txq(words: &[&str]) -> Finished {
    Running::start(Command::new(env!("CARGO_BIN_EXE_txq")).args(words)).finish(LONG)
}

/// Returns a pcap of one Ethernet frame.
fn traffic() -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0, 60, 60];
    [words.iter().flat_map(|word| word.to_le_bytes()).collect(), vec![2; 60]].concat()
}

#[test]
fn the_example_has_every_key_and_is_right() {
    let folder = TempDir::new();
    let example = txq(&["daemon", "--print-example"]);
    assert!(example.status.success() && example.stderr.is_empty(), "{}", example.stderr);
    let path = folder.path().join("every-key.toml");
    fs::write(&path, &example.stdout).expect("a file");
    let checked = txq(&["check", &path.display().to_string()]);
    assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""));
    // The lines of the replay lack a file: a capture is read; an interface is not searched for.
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|first: char| !first.is_whitespace()) => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    let text: String = example.stdout.lines().map(line).collect();
    assert!(text.contains("\n[[replay]]\n"));
    let capture = folder.path().join("traffic.pcap").display().to_string();
    fs::write(&capture, traffic()).expect("a capture");
    fs::write(&path, text.replace("/tmp/traffic.pcap", &capture)).expect("a file");
    let checked = txq(&["check", &path.display().to_string()]);
    assert_eq!((checked.status.code(), checked.stdout.as_str(), checked.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn the_examples_of_a_run_are_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let files = fs::read_dir(folder).expect("examples").map(|entry| entry.expect("an entry").path());
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let checked = txq(&["check", &path.display().to_string()]);
        assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{path:?}");
    }
}

/// Each line of the example of a run that is a key in a comment is one that the file may have.
#[test]
fn the_keys_in_comments_are_right() {
    let folder = TempDir::new();
    let example = txq(&["run", "--print-example"]).stdout;
    let path = folder.path().join("one.toml");
    let lines: Vec<&str> = example.lines().collect();
    let is_key = |line: &str| line.starts_with("# ") && line.contains(" = ") && !line.starts_with("# [");
    let tables: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].starts_with("# [device.")).collect();
    let keys: Vec<usize> = (0..lines.len()).filter(|&at| is_key(lines[at])).collect();
    assert!(keys.len() > 12 && tables.len() == 5, "{example}");
    for &at in &keys {
        let table = tables.iter().copied().find(|table| table + 1 == at);
        let text = lines.iter().enumerate().map(|(n, line)| match line {
            line if n == at || Some(n) == table => format!("{}\n", &line[2..]),
            // The null device's place is taken by another one.
            line if table.is_some() && (line.starts_with("[device.null]") || line.starts_with("ring =")) => {
                "\n".to_owned()
            }
            // The affinity is that of two workers.
            line if lines[at].starts_with("# affinity") && line.starts_with("# workers") => {
                format!("{}\n", &line[2..])
            }
            line => format!("{line}\n"),
        });
        fs::write(&path, text.collect::<String>()).expect("a file");
        let checked = txq(&["check", &path.display().to_string()]);
        assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{}", lines[at]);
    }
}

/// One line with file, line, column and remedy; nothing is created.
#[test]
fn errors_have_their_place_and_a_remedy() {
    let folder = TempDir::new();
    let path = folder.path().join("bad.toml");
    let name = path.display().to_string();
    let bridge = "[[bridge]]\ndevices = [\"a\", \"b\"]\n";
    for (text, says) in [
        ("[[device]\n", format!("{name}:1:")),
        (
            "[[device]]\nqdics = \"fq\"\n",
            format!("{name}:2:1: there is no key \"qdics\" here: did you mean \"qdisc\"?"),
        ),
        ("[[device]]\ntxqs = 0\n", format!("{name}:2:8: key \"txqs\": 0 is out of range: use 1 to 4096")),
        (
            "[[device]]\nname = \"a\"\nqdisc = \"cake bandwidth fast\"\n",
            format!("{name}:3:1: qdisc \"cake bandwidth fast\": "),
        ),
        (
            "[[device]]\ntc = [\n    \"class add parent 1: classid 1:1 htb rate 1mbit\"]\n",
            format!("{name}:3:5: device \"dev0\", tc \"class add"),
        ),
        (
            "[[device]]\nname = \"a\"\nnull = {}\n[[device]]\nname = \"b\"\n",
            format!("{name}:7:12: device \"a\" does not receive for a bridge: use af_packet"),
        ),
        ("[[device]]\npcap = { file = \"OUT\" }\nqdisc = \"none\"\n", format!("{name}:3:1: ")),
    ] {
        let text = text.replace("OUT", &folder.path().join("out.pcap").display().to_string());
        fs::write(&path, format!("{text}{}", if text.contains("null = {}") { bridge } else { "" }))
            .expect("a file");
        let checked = txq(&["check", &name]);
        assert_eq!((checked.status.code(), checked.stdout.as_str()), (Some(1), ""), "{text}");
        assert!(checked.stderr.starts_with(&format!("txq: {says}")), "{text}: {}", checked.stderr);
        assert_eq!(checked.stderr.lines().count(), 1, "{}", checked.stderr);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
    let none = txq(&["check", &folder.path().join("none.toml").display().to_string()]);
    assert!(
        none.status.code() == Some(1) && none.stderr.contains("cannot be read: check the path"),
        "{}",
        none.stderr
    );
}
