//! `tc -batch FILE`: executes one command a line, up to the first failure, or all of them with `-force`.
//!
//! A `#` anywhere begins a comment; a backslash at the end of a line continues the command on the next line; words may be
//! quoted. Errors name a command by the number of its last line.

use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;

use txq_control::Answer;
use txq_control::tc::{INPUT, words};

use crate::control::tell;

/// The most commands that are executed in one exchange with the process that has the devices.
const MAX_COMMANDS: usize = 128;
/// How much of the file is read at a time, which bounds the size of an exchange, too.
const FILE_CHUNK: usize = 16 << 10;

/// Executes the commands of a file, `-` for the standard input; returns the exit code. `say` executes commands as many as are
/// read already, up to the first that fails unless all are to be executed, and returns an answer for each executed.
pub(super) fn run(
    file: &str,
    force: bool,
    mut say: impl FnMut(&[Vec<String>]) -> anyhow::Result<Vec<Answer>>,
) -> anyhow::Result<ExitCode> {
    let input: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin()),
        _ => match std::fs::File::open(file) {
            Ok(file) => Box::new(file),
            Err(error) => {
                let message = format!("Cannot open file \"{file}\" for reading: {}", reason(&error));
                return tell(&Answer::bad(INPUT, &message, Some("check the path, or use - for stdin")));
            }
        },
    };
    let mut commands = Commands { lines: BufReader::with_capacity(FILE_CHUNK, input), number: 0 };
    let (mut group, mut numbers, mut code) = (Vec::new(), Vec::new(), ExitCode::SUCCESS);
    // Prints an answer; returns whether to go on.
    let mut report = |answer: &Answer, number: usize| -> anyhow::Result<bool> {
        tell(answer)?;
        if answer.rc != 0 {
            eprintln!("Command failed {file}:{number}");
            code = ExitCode::from(INPUT);
        }
        Ok(answer.rc == 0 || force)
    };
    loop {
        let next = commands.next();
        let is_last = match &next {
            Ok(Some(Ok(words))) => {
                if !words.is_empty() {
                    group.push(words.clone());
                    numbers.push(commands.number);
                }
                group.len() >= MAX_COMMANDS || !commands.is_ready()
            }
            _ => true,
        };
        if !is_last {
            continue;
        }
        let answers = if group.is_empty() { Vec::new() } else { say(&group)? };
        for (answer, number) in answers.iter().zip(numbers.drain(..)) {
            if !report(answer, number)? {
                return Ok(code);
            }
        }
        group.clear();
        match next {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(message))) => {
                if !report(&Answer::bad(INPUT, message, Some("close the quotes")), commands.number)? {
                    return Ok(code);
                }
            }
            Ok(None) => return Ok(code),
            Err(error) => {
                let remedy = "commands are lines of UTF-8";
                let message = format!("{file}:{}: {error}", commands.number);
                return tell(&Answer::bad(INPUT, &message, Some(remedy)));
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
    lines: BufReader<R>,
    number: usize,
}

impl<R: Read> Commands<R> {
    /// Returns whether the next command has been read, so that reading it does not wait for the file's writer.
    fn is_ready(&self) -> bool {
        let lines = self.lines.buffer().split_inclusive(|&byte| byte == b'\n');
        lines.into_iter().any(|line| line.ends_with(b"\n") && !line.ends_with(b"\\\n"))
    }

    /// Returns the words of the next command, or why it has none; `None` at the end of the file.
    fn next(&mut self) -> std::io::Result<Option<Result<Vec<String>, &'static str>>> {
        Ok(self.next_command()?.map(|line| words(&line)))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_comments_cut_off() {
        let text = "# c\n\nqdisc add \\\n root # x\nshow#z\na \\\n# c \\\nlast \\";
        let mut commands = Commands { lines: BufReader::new(text.as_bytes()), number: 0 };
        let mut read = Vec::new();
        while let Some(command) = commands.next_command().unwrap() {
            let words = words(&command).unwrap().join(" ");
            if !words.is_empty() {
                read.push((commands.number, words));
            }
        }
        let expected = [(4, "qdisc add root"), (5, "show"), (7, "a"), (8, "last \\")];
        assert_eq!(read, expected.map(|(number, text)| (number, text.to_owned())));
        let mut open = Commands { lines: BufReader::new("a \\\n".as_bytes()), number: 0 };
        assert!(open.next_command().is_err());
    }
}
