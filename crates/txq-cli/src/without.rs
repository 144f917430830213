//! Commands whose feature this build does not have.

use crate::common::failure::Refused;

/// Returns the error of a command that needs the feature `watch`.
pub(crate) fn watch(command: &str) -> anyhow::Error {
    Refused(format!(
        "this build has no `txq {command}`: build it with `cargo build --release --features watch` in the repository, or install it \
         with `cargo install txq-cli --features watch`"
    ))
    .into()
}
