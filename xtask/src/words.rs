//! The worst patterns of prose: sentences that need two readings because a pronoun stands for nothing or the subject comes last.
//!
//! Reads comments of all Rust sources and all Markdown. A paragraph is joined before it is searched, so a line break hides nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// What must not stand in a sentence, and what to write instead.
const ANYWHERE: [(&str, &str); 16] = [
    ("for who ", "name the thread: for the owner"),
    ("by who ", "name the thread: by the owner"),
    ("to who ", "name the thread: to the owner"),
    ("of who ", "name the thread: of the owner"),
    ("with who ", "name the thread: with the owner"),
    ("from who ", "name the thread: from the owner"),
    ("and who ", "name the thread: and the sender that"),
    ("whoever", "name the thread: the thread that"),
    (" is told ", "say what the function returns or reports"),
    (" are told ", "say what the function returns or reports"),
    ("has the line come", "prefetches the line"),
    ("of which no ", "whose .. never"),
    ("there is to be ", "say which there are"),
    ("as it were", "leave it out"),
    ("of no home", "not bound to a home"),
    ("lies down", "sleeps"),
];

/// What must not begin a sentence.
const FIRST: [(&str, &str); 6] = [
    ("Who ", "name the thread: The sender that"),
    ("Whose ", "name the thing first"),
    ("What is ", "name the thing: The packets that are"),
    ("What was ", "name the thing: The packets that were"),
    ("What has ", "name the thing: The packets that have"),
    ("What comes ", "name the thing: The packets that come"),
];

/// A paragraph of prose and the line that it begins at.
struct Paragraph {
    line: usize,
    text: String,
}

/// Prints each place with a remedy; an error if there is one.
pub(crate) fn check() -> Result<()> {
    let mut found = 0;
    for file in files()? {
        let source = fs::read_to_string(Path::new(root()).join(&file))
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let paragraphs =
            if file.extension().is_some_and(|e| e == "md") { markdown(&source) } else { comments(&source) };
        for paragraph in paragraphs {
            for (pattern, remedy) in patterns(&paragraph.text) {
                println!("{}:{}: \"{}\": {remedy}", file.display(), paragraph.line, pattern.trim());
                found += 1;
            }
        }
    }
    if found > 0 {
        bail!("{found} sentences need a second draft (CONTRIBUTING.md, \"Words\")");
    }
    Ok(())
}

/// The sources and documents that git knows, without the list of changes, which quotes.
fn files() -> Result<Vec<PathBuf>> {
    let listed = Command::new("git").args(["ls-files", "*.rs", "*.md"]).current_dir(root()).output()?;
    let names = String::from_utf8(listed.stdout).context("names of files are UTF-8")?;
    let skipped = |name: &&str| ["CHANGELOG.md", "xtask/src/words.rs"].contains(name);
    Ok(names.lines().filter(|name| !skipped(name)).map(PathBuf::from).collect())
}

/// The patterns that a paragraph has.
fn patterns(text: &str) -> Vec<(&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let anywhere = ANYWHERE.into_iter().filter(|(pattern, _)| {
        // A question may ask so.
        lower.match_indices(pattern).any(|(at, _)| at == 0 || !lower.as_bytes()[at - 1].is_ascii_alphabetic())
    });
    let first = FIRST.into_iter().filter(|(pattern, _)| {
        text.match_indices(pattern).any(|(at, _)| {
            let begins = at == 0 || [". ", ": ", "| "].iter().any(|end| text[..at].ends_with(end));
            let end = text[at..]
                .find(['.', '?', '|'])
                .map_or('.', |end| text[at + end..].chars().next().unwrap_or('.'));
            begins && end != '?'
        })
    });
    anywhere.chain(first).collect()
}

/// The comments of a Rust source, one paragraph for each run of comment lines without an empty one.
fn comments(source: &str) -> Vec<Paragraph> {
    let text = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("//")?;
        Some(rest.trim_start_matches(['/', '!']).trim().to_owned())
    };
    paragraphs(source.lines().map(text))
}

/// The text of a Markdown file without its code.
fn markdown(source: &str) -> Vec<Paragraph> {
    let mut code = false;
    let text = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then(|| line.trim().to_owned())
    };
    paragraphs(source.lines().map(text))
}

fn paragraphs(lines: impl Iterator<Item = Option<String>>) -> Vec<Paragraph> {
    let mut all: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (index, line) in lines.enumerate() {
        match line.filter(|line| !line.is_empty()) {
            Some(line) if open => {
                let last = all.last_mut().expect("a paragraph is open");
                last.text.push(' ');
                last.text.push_str(&line);
            }
            Some(text) => {
                all.push(Paragraph { line: index + 1, text });
                open = true;
            }
            None => open = false,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&'static str> {
        patterns(text).into_iter().map(|(pattern, _)| pattern).collect()
    }

    #[test]
    fn pronouns_without_a_noun_are_found() {
        assert_eq!(found("leaves it for who has the qdisc"), ["for who "]);
        assert_eq!(found("Counts. Who pushes next has the duty."), ["Who "]);
        assert_eq!(found("the sender, who waits"), [""; 0]);
        assert_eq!(found("Who sends? Nobody."), [""; 0]);
    }

    #[test]
    fn a_line_break_hides_nothing() {
        let source = "/// Kept for\n/// who has it.\nfn f() {}\n";
        let all = comments(source);
        assert_eq!((all.len(), all[0].line), (1, 1));
        assert_eq!(found(&all[0].text), ["for who "]);
    }

    #[test]
    fn code_in_markdown_is_not_prose() {
        let all = markdown("# Title\n\n```\nfor who \n```\n\nText.\n");
        assert_eq!(all.iter().map(|p| p.text.as_str()).collect::<Vec<_>>(), ["# Title", "Text."]);
    }
}
