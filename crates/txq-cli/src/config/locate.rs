//! Errors of a file with their place, in one line: `FILE:LINE:COLUMN: key "KEY": problem and remedy`.

use std::ops::Range;

use anyhow::anyhow;
use toml::de::{DeTable, DeValue};

/// A step from a file's top to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// An error in a value that the parser accepts: the problem and the remedy.
#[derive(Debug)]
pub(crate) struct Fault {
    path: Vec<Step>,
    message: String,
}

impl Fault {
    /// Returns a fault of the value at the end of the path, or of the last one on it that the file has.
    pub(crate) fn new(path: impl IntoIterator<Item = Step>, message: impl Into<String>) -> Self {
        Self { path: path.into_iter().collect(), message: message.into() }
    }

    /// Returns what is wrong, without its place.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error with its place in the file.
    pub(crate) fn at(self, name: &str, text: &str) -> anyhow::Error {
        let found = DeTable::parse(text).ok().and_then(|table| span(table.get_ref(), &self.path));
        let place = found.map_or(name.to_owned(), |span| place(name, text, span.start));
        anyhow!("{place}: {}", self.message)
    }
}

/// Returns the path of steps that are keys and indices.
macro_rules! steps {
    ($($step:expr),*) => {
        [$($crate::config::locate::Step::from($step)),*]
    };
}
pub(crate) use steps;

/// Returns the place of the value at the end of the path, or of the last one on it.
fn span(table: &DeTable<'_>, path: &[Step]) -> Option<Range<usize>> {
    let (Step::Key(first), rest) = path.split_first()? else { return None };
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    let (mut at, mut value) = (key.span(), value);
    for step in rest {
        match (step, value.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                let Some((key, next)) = table.iter().find(|(key, _)| key.get_ref() == name) else { break };
                (at, value) = (key.span(), next);
            }
            (Step::Index(index), DeValue::Array(list)) => {
                let Some(next) = list.get(*index) else { break };
                (at, value) = (next.span(), next);
            }
            _ => break,
        }
    }
    Some(at)
}

/// Returns `FILE:LINE:COLUMN`, both from 1 on; columns are characters.
fn place(name: &str, text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{name}:{line}:{column}")
}

/// Returns an error of the TOML parser as one line with its place.
pub(super) fn describe(name: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let at = error.span().map(|span| span.start.min(text.len()));
    let line = at.map(|at| text[..at].matches('\n').count() + 1);
    let place = at.map_or(name.to_owned(), |at| place(name, text, at));
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    if let Some(unknown) = Unknown::read(&message) {
        return anyhow!("{place}: {unknown}");
    }
    if message == "invalid type: map, expected a sequence" {
        return anyhow!("{place}: there may be several of these: write [[..]] with two brackets");
    }
    let key = line.and_then(|line| text.lines().nth(line - 1)).and_then(|line| line.split_once('='));
    match key.map(|(key, _)| key.trim()) {
        Some(key) if !key.is_empty() && !key.starts_with('#') => anyhow!("{place}: key \"{key}\": {message}"),
        _ => anyhow!("{place}: {message}"),
    }
}

/// An unknown key, and the keys that are known in its place.
struct Unknown<'a> {
    key: &'a str,
    known: Vec<&'a str>,
}

impl<'a> Unknown<'a> {
    /// Parses serde's message, in which the key and the known keys stand in backticks; `None` for another message.
    fn read(message: &'a str) -> Option<Self> {
        let rest = message.strip_prefix("unknown field `")?;
        let mut quoted = rest.split('`').step_by(2);
        Some(Self { key: quoted.next()?, known: quoted.filter(|word| !word.is_empty()).collect() })
    }
}

impl std::fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no key \"{}\" here: ", self.key)?;
        let like = |known: &&&str| strsim::jaro_winkler(self.key, known);
        match self.known.iter().max_by(|a, b| like(a).total_cmp(&like(b))).filter(|best| like(best) >= 0.8) {
            Some(best) => write!(f, "did you mean \"{best}\"?"),
            None => write!(f, "use one of {}", self.known.join(", ")),
        }
    }
}
