//! The options of `txq completions` and `txq man`.

use std::path::PathBuf;

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(txq completions bash)                 for this shell
  txq completions zsh > ~/.zfunc/_txq
  txq completions fish > ~/.config/fish/completions/txq.fish";

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  txq man ~/.local/share/man/man1; man txq-tc
  txq man /tmp/man; man -l /tmp/man/txq.1";

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The folder, which is made if it does not exist
    pub(crate) folder: PathBuf,
}
