//! A build without the feature `watch`: its help has all commands, and the two of the feature name the remedy.

use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};

fn txq(words: &[&str]) -> Finished {
    Running::start(Command::new(env!("CARGO_BIN_EXE_txq")).args(words)).finish(Duration::from_secs(120))
}

#[test]
fn top_and_web_name_the_feature() {
    for words in [&["top"][..], &["top", "--once", "--json"], &["web", "--listen", "127.0.0.1:0"]] {
        let ended = txq(words);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(2), ""), "{words:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{:?}", ended.stderr);
        let parts =
            [&format!("txq: this build has no `txq {}`", words[0]), "cargo build --release --features watch"];
        assert!(parts.iter().all(|part| ended.stderr.contains(*part)), "{:?}", ended.stderr);
    }
    let help = txq(&["--help"]).stdout;
    assert!(help.contains("\n  top ") && help.contains("\n  web "), "{help}");
}
