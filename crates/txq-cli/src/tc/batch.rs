//! `tc -batch FILE`: executes one command a line, up to the first failure, or all of them with `-force`.
//!
//! A `#` anywhere begins a comment; a backslash at the end of a line continues the command on the next line; words may be
//! quoted. Errors name a command by the number of its last line.

use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use txq_control::Answer;
use txq_control::tc::INPUT;

use crate::control::tell;

/// Executes the commands of a file, `-` for the standard input; returns the exit code.
pub(super) fn run(
    file: &str,
    force: bool,
    mut say: impl FnMut(&[String]) -> anyhow::Result<Answer>,
) -> anyhow::Result<ExitCode> {
    let lines: Box<dyn BufRead> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        _ => match std::fs::File::open(file) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) => {
                let message = format!("Cannot open file \"{file}\" for reading: {}", reason(&error));
                return tell(&Answer::bad(INPUT, &message, Some("check the path, or use - for stdin")));
            }
        },
    };
    let mut commands = Commands { lines, number: 0 };
    let mut code = ExitCode::SUCCESS;
    loop {
        let answer = match commands.next_command() {
            Ok(None) => return Ok(code),
            Ok(Some(line)) => match split(&line) {
                Ok(words) if words.is_empty() => continue,
                Ok(words) => say(&words)?,
                Err(message) => Answer::bad(INPUT, message, Some("close the quotes")),
            },
            Err(error) => {
                let remedy = "commands are lines of UTF-8";
                let message = format!("{file}:{}: {error}", commands.number);
                return tell(&Answer::bad(INPUT, &message, Some(remedy)));
            }
        };
        tell(&answer)?;
        if answer.rc != 0 {
            eprintln!("Command failed {file}:{}", commands.number);
            code = ExitCode::from(INPUT);
            if !force {
                return Ok(code);
            }
        }
    }
}

/// Returns an error's text as C's `strerror` words it.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

struct Commands<R> {
    lines: R,
    number: usize,
}

impl<R: BufRead> Commands<R> {
    /// Returns the next command, with its lines joined and comments removed; `None` at the end of the file.
    fn next_command(&mut self) -> std::io::Result<Option<String>> {
        let mut command = String::new();
        let mut open = false;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return match open {
                    true => Err(std::io::Error::other("Missing continuation line")),
                    false => Ok(None),
                };
            }
            self.number += 1;
            let line = line.split('#').next().unwrap_or_default();
            match line.strip_suffix("\\\n") {
                Some(part) => {
                    command += part;
                    open = true;
                }
                None => {
                    command += line;
                    return Ok(Some(command));
                }
            }
        }
    }
}

/// Splits a command into words at blanks outside quotes; an error if a quote is not closed.
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' | '\'' => rest[1..].split_once(first).ok_or("Unterminated quoted string")?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_comments_cut_off() {
        let text = "# c\n\nqdisc add \\\n root # x\nshow#z\na \\\n# c \\\nlast \\";
        let mut commands = Commands { lines: text.as_bytes(), number: 0 };
        let mut read = Vec::new();
        while let Some(command) = commands.next_command().unwrap() {
            let words = split(&command).unwrap().join(" ");
            if !words.is_empty() {
                read.push((commands.number, words));
            }
        }
        let expected = [(4, "qdisc add root"), (5, "show"), (7, "a"), (8, "last \\")];
        assert_eq!(read, expected.map(|(number, text)| (number, text.to_owned())));
        let mut open = Commands { lines: "a \\\n".as_bytes(), number: 0 };
        assert!(open.next_command().is_err());
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(split(" a 'b c' \"d\"  e\n").unwrap(), ["a", "b c", "d", "e"]);
        assert!(split("a 'b").is_err());
    }
}
