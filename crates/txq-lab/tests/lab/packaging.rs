//! `txq-lab completions` and `txq-lab man`: each command is known to the shell and has its page.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

fn lab(words: &[&str]) -> Finished {
    let ended = Running::start(Command::new(env!("CARGO_BIN_EXE_txq-lab")).args(words));
    let ended = ended.finish(Duration::from_secs(120));
    assert!(ended.status.success(), "{words:?}: {}", ended.stderr);
    ended
}

#[test]
fn each_command_has_a_page() {
    let folder = TempDir::new();
    lab(&["man", folder.path().to_str().expect("a path")]);
    for (page, part) in [
        ("txq-lab", "txq\\-lab\\-bench"),
        ("txq-lab-bench", "overload"),
        ("txq-lab-sim", "txq\\-lab\\-sim\\-plan"),
        ("txq-lab-sim-run", "Examples"),
        ("txq-lab-sim-plan", "Examples"),
    ] {
        let text = fs::read_to_string(folder.path().join(format!("{page}.1"))).expect(page);
        assert!(text.contains(part), "no {part:?} in {page}: {text}");
    }
}

#[test]
fn the_completions_have_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = lab(&["completions", shell]).stdout;
        for word in ["txq-lab", "bench", "sweep", "calibrate", "completions"] {
            assert!(text.contains(word), "no {word:?} for {shell}: {text}");
        }
    }
}
