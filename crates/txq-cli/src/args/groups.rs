//! The commands of `txq --help`, under headings: clap has none for commands, so the headings are a part of its template.

use std::fmt::Write;

use clap::Subcommand;

use super::Command;

/// The headings, and the commands below each.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Send", &["run", "replay", "exec", "shell"]),
    ("Shape", &["bridge", "daemon", "check", "reload", "save"]),
    ("Watch", &["top", "web", "stat", "trace", "ls", "contention", "hist"]),
    ("tc", &["tc", "dev"]),
    ("Machine", &["doctor", "xps"]),
    ("Laboratory", &["bench", "sim"]),
    ("Packaging", &["completions", "man"]),
];
/// The width of the column of names.
const NAMES: usize = 11;

/// Returns the template of the program's help.
pub(super) fn template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("txq"));
    let about = |name: &str| {
        let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
        about.map(ToString::to_string).unwrap_or_default()
    };
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in names {
            let _ = writeln!(text, "  {name:NAMES$}  {}", about(name));
        }
        text.push('\n');
    }
    text + "`txq help COMMAND` prints the options and examples of a command.\n\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Args;
    use super::*;

    #[test]
    fn each_command_is_below_one_heading_of_the_help() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = Args::command();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = Args::command().render_help().to_string();
        for command in command.get_subcommands() {
            let line =
                format!("\n  {:NAMES$}  {}\n", command.get_name(), command.get_about().expect("a line"));
            assert_eq!(help.matches(&line).count(), 1, "{line:?} in {help}");
        }
    }
}
