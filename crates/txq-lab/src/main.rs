//! The program `txq-lab`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    txq_lab::main()
}
