//! Errors of a file with their place, in one line: `FILE:LINE: key "KEY": problem and remedy`.

use anyhow::anyhow;

/// Returns an error of the TOML parser as one line with its place.
pub(super) fn describe(name: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let at = error.span().map(|span| span.start.min(text.len()));
    let line = at.map(|at| text[..at].matches('\n').count() + 1);
    let place = line.map_or(name.to_owned(), |line| format!("{name}:{line}"));
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
