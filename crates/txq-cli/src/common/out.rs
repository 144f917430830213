//! Where results go: stdout, and files that are opened before the results are known.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::common::failure::refused;

/// Writes a report to stdout.
pub fn write(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("the report cannot be written to stdout")
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
