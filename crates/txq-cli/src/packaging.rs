//! `txq completions` and `txq man`: what packages contain beside the binary, made from the options themselves.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::common::packaging;

/// Prints a shell's completions.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    packaging::completions(args.shell, Args::command())
}

/// Writes a page for the command and one for each subcommand into a folder.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    packaging::man(&args.folder, Args::command())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("txq-man-{}", std::process::id()));
        man(&ManArgs { folder: folder.clone() }).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        let pages: Vec<_> = Args::command()
            .get_subcommands()
            .map(|sub| (sub.get_name().to_owned(), page(&format!("txq-{}", sub.get_name()))))
            .collect();
        assert!(page("txq").contains("txq\\-tc"), "{}", page("txq"));
        std::fs::remove_dir_all(folder).unwrap();
        for (name, text) in pages {
            assert!(text.contains(&format!("txq\\-{name}")) && text.contains("Examples"), "{name}: {text}");
        }
    }

    #[test]
    fn bash_accepts_its_completions() {
        let mut text = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut Args::command(), "txq", &mut text);
        let shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut shell) = shell else {
            println!("SKIP there is no bash");
            return;
        };
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), &text).unwrap();
        let out = shell.wait_with_output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
