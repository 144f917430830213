//! Where results go: stdout, and files that are opened before the results are known.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::common::failure::refused;

/// Writes a report to stdout, as [`printable`] text.
pub fn write(text: &str) -> anyhow::Result<()> {
    let text = printable(text);
    io::stdout().write_all(text.as_bytes()).context("the report cannot be written to stdout")
}

/// Returns a text with its control characters as escapes of Rust, but for line breaks and tabs: a terminal executes none of them. The
/// text may be another program's.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    Cow::Owned(plain)
}

/// Returns a text as a part of one line: as [`printable`], with line breaks and tabs as escapes, too.
pub fn cell(text: &str) -> Cow<'_, str> {
    match printable(text) {
        text if text.contains(['\n', '\t']) => Cow::Owned(text.replace('\n', "\\n").replace('\t', "\\t")),
        text => text,
    }
}

/// A file for results.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: fs::File,
}

impl File {
    /// Opens the file, or creates it. It keeps its contents until new ones are ready. An error is a refusal.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        Ok(Self { path: path.to_owned(), file: file.map_err(cannot(path))? })
    }

    /// Removes the contents.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        self.file.set_len(0).map_err(cannot(&self.path))
    }

    /// Writes a text behind all that was written since the file was opened.
    pub fn add(&mut self, text: &str) -> anyhow::Result<()> {
        self.file.write_all(text.as_bytes()).map_err(cannot(&self.path))
    }

    /// Replaces the contents of a file to which nothing was added.
    pub fn replace(mut self, text: &str) -> anyhow::Result<()> {
        self.clear()?;
        self.add(text)
    }
}

fn cannot(path: &Path) -> impl FnOnce(io::Error) -> anyhow::Error {
    refused(format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_executes_nothing() {
        assert_eq!(printable("a\tb\n"), "a\tb\n");
        assert_eq!(printable("\u{1b}[2Jä\r\u{9b}x\0"), "\\u{1b}[2Jä\\r\\u{9b}x\\u{0}");
        assert_eq!(cell("a\nb\u{7f}"), "a\\nb\\u{7f}");
    }
}
