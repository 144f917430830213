//! What packages contain beside a program, made from its options: completions and manual pages.

use std::path::Path;

use anyhow::Context;

use crate::common::out;

/// Prints a shell's completions of a program.
pub fn completions(shell: clap_complete::Shell, mut command: clap::Command) -> anyhow::Result<()> {
    let (mut text, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(shell, &mut command, name, &mut text);
    out::write(&String::from_utf8(text).context("completions")?)
}

/// Writes a page for a program and one for each subcommand into a folder.
pub fn man(folder: &Path, command: clap::Command) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_owned();
    pages(&command, &name, folder)
}

/// Writes the page of a command and those of its subcommands. `txq-lab-sim-run` is the name for `txq-lab sim run`.
fn pages(command: &clap::Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).render(&mut text)?;
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    shown.into_iter().try_for_each(|sub| pages(sub, &format!("{name}-{}", sub.get_name()), folder))
}
