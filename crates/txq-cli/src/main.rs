//! The program `txq`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    txq_cli::main()
}
