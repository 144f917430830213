//! Commands in a text, as in the files of `tc -batch`: quotes, comments and continued lines.

/// Returns the commands of a text, each with the number of its last line. A backslash at the end of a line continues the command on the
/// next line, and a `#` anywhere begins a comment.
///
/// # Errors
/// The text ends in a continued line.
pub fn lines(text: &str) -> Result<Vec<(usize, String)>, &'static str> {
    let (mut commands, mut command, mut open) = (Vec::new(), String::new(), false);
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let part = line.strip_suffix('\\');
        command += part.unwrap_or(line);
        open = part.is_some();
        if open {
            continue;
        }
        let whole = std::mem::take(&mut command);
        if !whole.trim().is_empty() {
            commands.push((at + 1, whole.trim().to_owned()));
        }
    }
    if open { Err("Missing continuation line") } else { Ok(commands) }
}

/// Splits a command into words at blanks outside of quotes.
///
/// # Errors
/// A quote is not closed.
pub fn words(command: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
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
        let text = "# c\n\nqdisc add \\\n root # x\nshow#z\na \\\n# c \\\nlast";
        let expected = [(4, "qdisc add  root"), (5, "show"), (7, "a"), (8, "last")];
        assert_eq!(lines(text).unwrap(), expected.map(|(number, text)| (number, text.to_owned())));
        assert!(lines("a \\").is_err() && lines("").unwrap().is_empty());
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(" a 'b c' \"d\"  e\n").unwrap(), ["a", "b c", "d", "e"]);
        assert!(words("a 'b").is_err());
    }
}
