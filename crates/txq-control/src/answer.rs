//! The answer to a command: its output, its errors and its exit code.

use std::io::Write;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use txq::tc::ParseError;

/// tc's exit code for wrong words, which tc refuses without a device.
pub(super) const WORDS: u8 = 255;
/// tc's exit code for wrong options of a kind, and for devices that do not exist.
pub(super) const INPUT: u8 = 1;
/// tc's exit code for a refusal of the kernel; here the device refuses.
pub(super) const REFUSED: u8 = 2;

/// The texts for both output streams, and the exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) rc: u8,
}

impl Answer {
    /// Makes a success with an output.
    pub(crate) fn good(out: String) -> Self {
        Self { out, ..Self::default() }
    }

    /// Makes a success with a usage on stderr, where tc prints it.
    pub(super) fn help(text: &str) -> Self {
        Self { err: text.to_owned(), ..Self::default() }
    }

    /// Makes an error of tc's message and a remedy.
    pub(crate) fn bad(rc: u8, message: &str, remedy: Option<&str>) -> Self {
        let mut err = format!("{message}\n");
        if let Some(remedy) = remedy {
            err += &format!("txq: {remedy}\n");
        }
        Self { err, rc, ..Self::default() }
    }

    /// Makes the error for a device that does not exist; the remedy names the nearest known device, or all.
    pub(crate) fn no_device(name: &str, known: &[String]) -> Self {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let remedy = match (nearest(name, &known), known.is_empty()) {
            (Some(best), _) => best,
            (None, true) => "there is no device: make one with `txq dev add NAME`".to_owned(),
            (None, false) => format!("there are {}", known.join(", ")),
        };
        Self::bad(INPUT, &format!("Cannot find device \"{name}\""), Some(&remedy))
    }

    /// Prints both texts; returns the exit code.
    pub(crate) fn tell(&self) -> anyhow::Result<ExitCode> {
        std::io::stderr().write_all(self.err.as_bytes())?;
        let mut out = std::io::stdout();
        out.write_all(self.out.as_bytes())?;
        out.flush()?;
        Ok(ExitCode::from(self.rc))
    }
}

impl From<ParseError> for Answer {
    fn from(error: ParseError) -> Self {
        let message = match error.usage() {
            Some(usage) => format!("{}\n{usage}", error.message()),
            None => error.message().to_owned(),
        };
        Self::bad(code(&error), &message, error.remedy())
    }
}

/// Returns the exit code for a message. The beginning of tc's message shows its source: `RTNETLINK answers`, or `Error: `
/// with a sentence, is the kernel's; `Error: ` with a word in quotes is about that word; a message of a kind's parser begins
/// with the kind's name.
fn code(error: &ParseError) -> u8 {
    let message = error.message();
    let about_a_word =
        ["Error: argument \"", "Error: duplicate \"", "Error: \"", "Command line is not complete"];
    if message.ends_with("is classless.") {
        return INPUT;
    }
    if about_a_word.iter().any(|start| message.starts_with(start)) {
        WORDS
    } else if message.starts_with("RTNETLINK answers: ") || message.starts_with("Error: ") {
        REFUSED
    } else {
        INPUT
    }
}

/// Returns a question with the known word nearest to `word`, if one is near enough.
pub(crate) fn nearest(word: &str, known: &[&str]) -> Option<String> {
    let like = |known: &&str| strsim::jaro_winkler(word, known);
    let best = known.iter().max_by(|a, b| like(a).total_cmp(&like(b)))?;
    (like(best) >= 0.8).then(|| format!("did you mean \"{best}\"?"))
}
