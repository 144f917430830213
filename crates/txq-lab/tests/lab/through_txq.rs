//! `txq bench` and `txq sim` are this laboratory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};

fn run(program: &Path, words: &[&str]) -> Finished {
    Running::start(Command::new(program).args(words)).finish(Duration::from_secs(120))
}

#[test]
fn the_command_txq_runs_the_laboratory() {
    let lab = Path::new(env!("CARGO_BIN_EXE_txq-lab"));
    // Both are in one folder when the whole workspace is built.
    let txq = lab.with_file_name("txq");
    if !txq.is_file() {
        return println!(
            "SKIP the_command_txq_runs_the_laboratory: txq is not built: cargo build -p txq-cli"
        );
    }
    for words in [
        &["sim", "machines"][..],
        &["sim", "--help"],
        &["bench", "--help"],
        &["sim", "machines", "epyc"],
        &["bench", "crwod"],
        &["sim", "cost", "--", "/no/such/program", "--count", "{}"],
    ] {
        let (direct, through) = (run(lab, words), run(&txq, words));
        assert_eq!(through.status, direct.status, "{words:?}");
        assert_eq!((through.stdout, through.stderr), (direct.stdout, direct.stderr), "{words:?}");
    }
}
