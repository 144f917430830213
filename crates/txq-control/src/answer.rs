//! The answer to a command: its output, its errors and its exit code.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use txq::tc::ParseError;

use crate::devices::Devices;

/// tc's exit code for wrong words, which tc refuses without a device.
pub const WORDS: u8 = 255;
/// tc's exit code for wrong options of a kind, and for devices that do not exist.
pub const INPUT: u8 = 1;
/// tc's exit code for a refusal of the kernel; here the device or the server refuses.
pub const REFUSED: u8 = 2;

/// The texts for both output streams, and the exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The text for the standard output.
    pub out: String,
    /// The text for the standard error: tc's message, and the remedy on a line that begins with `txq: `.
    pub err: String,
    /// The exit code, as tc's: 0 for success.
    pub rc: u8,
    /// The result of a request that is not a command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<Value>>,
    /// Whether the server closes the connection, and reads no further request of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) closed: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Answer {
    /// Returns a success with an output.
    pub fn good(out: String) -> Self {
        Self { out, ..Self::default() }
    }

    /// Returns a success with a result.
    pub(crate) fn of(data: impl Serialize) -> Self {
        match serde_json::to_value(data) {
            Ok(data) => Self { data: Some(Box::new(data)), ..Self::default() },
            Err(error) => Self::bad(REFUSED, &format!("the answer is no JSON: {error}"), None),
        }
    }

    /// Returns the same answer, after which the server closes the connection.
    pub(crate) fn closing(self) -> Self {
        Self { closed: true, ..self }
    }

    /// Returns a success with a usage on stderr, where tc prints it.
    pub(crate) fn help(text: &str) -> Self {
        Self { err: text.to_owned(), ..Self::default() }
    }

    /// Returns an error of tc's message and a remedy.
    pub fn bad(rc: u8, message: &str, remedy: Option<&str>) -> Self {
        let mut err = format!("{message}\n");
        if let Some(remedy) = remedy {
            err += &format!("txq: {remedy}\n");
        }
        Self { err, rc, ..Self::default() }
    }

    /// Returns the error for a device that does not exist; the remedy names the nearest known device, or all.
    pub(crate) fn no_device(name: &str, known: &[String]) -> Self {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let remedy = match (nearest(name, &known), known.is_empty()) {
            (Some(best), _) => best,
            (None, true) => "there is no device: make one with `txq dev add NAME`".to_owned(),
            (None, false) => format!("there are {}", known.join(", ")),
        };
        Self::bad(INPUT, &format!("Cannot find device \"{name}\""), Some(&remedy))
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
    if message.ends_with("is classless.") || message.starts_with("Error: any valid address") {
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
pub fn nearest(word: &str, known: &[&str]) -> Option<String> {
    let like = |known: &&str| strsim::jaro_winkler(word, known);
    let best = known.iter().max_by(|a, b| like(a).total_cmp(&like(b)))?;
    (like(best) >= 0.8).then(|| format!("did you mean \"{best}\"?"))
}

/// Returns the error for a device that does not exist, and for a program without devices.
pub(crate) fn absent(devices: &Devices, dev: Option<&str>, none: bool) -> Option<Answer> {
    let remedy = Some("make one with `txq dev add NAME`");
    none.then(|| match dev {
        Some(name) => Answer::no_device(name, &devices.names()),
        None => Answer::bad(REFUSED, "there is no device", remedy),
    })
}

/// Returns the words of a command.
pub(crate) fn owned<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}
