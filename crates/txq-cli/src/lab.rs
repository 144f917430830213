//! `txq bench` and `txq sim`: the program becomes `txq-lab`, the laboratory, which is a package of its own.

use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::failure::Refused;

const PROGRAM: &str = "txq-lab";

/// Executes `txq-lab` in this process, with the same arguments, environment and streams. Prefers the program beside this one to
/// that of PATH. Returns only an error.
pub(crate) fn become_lab() -> anyhow::Error {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    let text = match error.kind() {
        ErrorKind::NotFound => format!(
            "bench and sim are commands of {PROGRAM}, which is neither beside txq nor in PATH: build it with `cargo build --release \
             -p {PROGRAM}` in the repository, or install it with `cargo install {PROGRAM}`"
        ),
        _ => format!("{} cannot be executed: {error}", program.display()),
    };
    Refused(text).into()
}
