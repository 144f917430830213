//! The text from which a scheduler is built: the qdisc at the root, and commands on further lines.

use crate::tc::{Command, Object, ParseError, Verb};

/// A text, split behind the line of the root.
pub(super) struct Text<'a> {
    /// The root in tc's words from its handle on.
    pub(super) root: &'a str,
    /// The lines behind it.
    pub(super) commands: &'a str,
    /// The number of lines before `commands`.
    pub(super) lines: usize,
}

/// Splits a text. Its first line is the root, as `handle 1: htb` or as a whole command. Empty lines and comments before it are
/// skipped.
///
/// # Errors
/// The line of the root is a command other than one that adds a qdisc.
pub(super) fn split(text: &str) -> Result<Text<'_>, ParseError> {
    let (mut lines, mut rest) = (0, text);
    loop {
        let (line, commands) = rest.split_once('\n').unwrap_or((rest, ""));
        lines += 1;
        let root = line.trim();
        if !(root.is_empty() || root.starts_with('#')) || commands.is_empty() {
            return Ok(Text { root: root_words(root)?, commands, lines });
        }
        rest = commands;
    }
}

/// Returns the words behind `qdisc add`, if the line begins with them.
fn root_words(line: &str) -> Result<&str, ParseError> {
    let begins = line.split_whitespace().next().unwrap_or_default();
    if !["tc", "qdisc", "class", "filter"].contains(&begins) {
        return Ok(line);
    }
    match Command::parse(line)? {
        Command { object: Object::Qdisc, verb: Verb::Add | Verb::Replace, rest } => Ok(rest),
        _ => Err(ParseError::new(format!("\"{line}\" adds no root"))
            .with_remedy("let the first line be the qdisc at the root: qdisc add root handle 1: htb")),
    }
}
