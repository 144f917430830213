//! Whole commands in tc's words: an object, a verb, and the rest.

use super::ParseError;

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// `tc qdisc`.
    Qdisc,
    /// `tc class`.
    Class,
    /// `tc filter`.
    Filter,
}

/// What a command does to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `add`.
    Add,
    /// `change`.
    Change,
    /// `replace`.
    Replace,
    /// `del` or `delete`.
    Delete,
}

/// A command, of which only the first words are parsed.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// The object.
    pub object: Object,
    /// The verb.
    pub verb: Verb,
    /// The words behind the verb.
    pub rest: &'a str,
}

impl<'a> Command<'a> {
    /// Parses the first words of a command such as `class add parent 1: classid 1:10 htb rate 1mbit`. A leading `tc` makes no
    /// difference.
    ///
    /// # Errors
    /// tc's errors, with a remedy, if the object or the verb is unknown.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        let (mut word, mut rest) = first_word(text);
        if word == "tc" {
            (word, rest) = first_word(rest);
        }
        let object = match word {
            "qdisc" => Object::Qdisc,
            "class" => Object::Class,
            "filter" => Object::Filter,
            object => {
                let error = ParseError::new(format!("Object \"{object}\" is unknown, try \"tc help\"."));
                return Err(
                    error.with_remedy("begin with qdisc, class or filter, then add, change, replace or del")
                );
            }
        };
        let (verb, rest) = first_word(rest);
        let verb = match verb {
            "add" => Verb::Add,
            "change" => Verb::Change,
            "replace" => Verb::Replace,
            "del" | "delete" => Verb::Delete,
            verb => {
                let error =
                    ParseError::new(format!("Command \"{verb}\" is unknown, try \"tc {word} help\"."));
                return Err(error.with_remedy("use add, change, replace or del"));
            }
        };
        Ok(Self { object, verb, rest })
    }
}

/// Why a batch of commands ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct BatchError {
    /// The number of the line, from 1. The commands of the lines before it have been executed.
    pub line: usize,
    /// The error of its command.
    pub error: ParseError,
}

/// Executes the commands of `text`, one a line, by `run`. Empty lines and comments (`#`) are skipped. Returns the warnings of all.
///
/// # Errors
/// The first error of `run`, and its line.
#[doc(hidden)]
pub fn batch(
    text: &str,
    mut run: impl FnMut(&str) -> Result<Vec<String>, ParseError>,
) -> Result<Vec<String>, BatchError> {
    let mut warnings = Vec::new();
    for (line, command) in (1..).zip(text.lines()) {
        let command = command.trim();
        if !command.is_empty() && !command.starts_with('#') {
            warnings.extend(run(command).map_err(|error| BatchError { line, error })?);
        }
    }
    Ok(warnings)
}

/// Splits a text at the end of its first word.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}
