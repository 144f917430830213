//! tc's options, which precede the object and may be abbreviated to any beginning.

use txq_control::Answer;
use txq_control::tc::{Show, WORDS, nearest};

use crate::args::Target;

/// tc's options, in the order in which tc searches for one that begins like the word.
const NAMES: [&str; 20] = [
    "-statistics",
    "-stats",
    "-details",
    "-raw",
    "-pretty",
    "-graph",
    "-json",
    "-iec",
    "-help",
    "-Version",
    "-force",
    "-batch",
    "-netns",
    "-Numeric",
    "-timestamp",
    "-tshort",
    "-oneline",
    "-brief",
    "-color",
    "-echo",
];

/// How `monitor` prints the times of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stamp {
    #[default]
    None,
    /// On a line of its own (`-timestamp`).
    Line,
    /// Before each change (`-tshort`).
    Short,
}

/// The options before the object, and the words from the object on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    pub(super) show: Show,
    pub(super) force: bool,
    pub(super) check: bool,
    pub(super) help: bool,
    pub(super) version: bool,
    pub(super) stamp: Stamp,
    pub(super) batch: Option<String>,
    pub(super) target: Target,
    pub(super) words: Vec<String>,
}

impl Flags {
    pub(super) fn read(words: &[String]) -> Result<Self, Answer> {
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.as_slice().first().filter(|word| word.starts_with('-')) {
            words.next();
            match word.as_str() {
                "--" => break,
                "--help" => flags.help = true,
                "--check" => flags.check = true,
                long if long.starts_with("--") && is_ours(long) => {
                    let (name, value) = match long.split_once('=') {
                        Some((name, value)) => (name, value.to_owned()),
                        None => (long, words.next().ok_or_else(|| no_value(long))?.clone()),
                    };
                    flags.set(name, value)?;
                }
                color if is_color(color) => {}
                _ => match NAMES.iter().find(|name| word.len() > 1 && name.starts_with(word.as_str())) {
                    Some(&("-statistics" | "-stats")) => flags.show.stats = true,
                    Some(&"-details") => flags.show.details = true,
                    Some(&"-raw") => flags.show.raw = true,
                    Some(&"-pretty") => flags.show.pretty = true,
                    Some(&"-json") => flags.show.json = true,
                    Some(&"-iec") => flags.show.iec = true,
                    Some(&"-graph") => flags.show.graph = true,
                    Some(&"-Numeric") => flags.show.numeric = true,
                    Some(&"-oneline") => flags.show.oneline = true,
                    Some(&"-echo") => flags.show.echo = true,
                    Some(&"-timestamp") => flags.stamp = Stamp::Line,
                    Some(&"-tshort") => flags.stamp = Stamp::Short,
                    // tc colors no qdiscs, classes and filters, and shortens only some filters.
                    Some(&("-brief" | "-color")) => {}
                    Some(&"-help") => flags.help = true,
                    Some(&"-Version") => flags.version = true,
                    Some(&"-force") => flags.force = true,
                    Some(&"-batch") => match words.next() {
                        Some(file) => flags.batch = Some(file.clone()),
                        None => flags.help = true,
                    },
                    Some(&"-netns") => {
                        let remedy =
                            "txq's devices are in no namespace: use --name or --socket for another txq";
                        return Err(Answer::bad(WORDS, "Option \"-netns\" is not supported.", Some(remedy)));
                    }
                    _ => return Err(unknown(word)),
                },
            }
        }
        flags.words = words.cloned().collect();
        Ok(flags)
    }

    /// Sets one of [`OURS`].
    fn set(&mut self, name: &str, value: String) -> Result<(), Answer> {
        let at = &mut self.target.at;
        match name {
            "--socket" => at.socket = Some(value.into()),
            "--name" => at.name = Some(value),
            _ => {
                self.target.timeout =
                    value.parse().map_err(|error: String| Answer::bad(WORDS, &error, None))?
            }
        }
        let both = self.target.at.socket.is_some() && self.target.at.name.is_some();
        match both {
            true => Err(Answer::bad(
                WORDS,
                "Options \"--socket\" and \"--name\" exclude each other.",
                Some("use one"),
            )),
            false => Ok(()),
        }
    }
}

/// Whether an option is `-color=` with a value that tc knows.
fn is_color(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        name.len() > 1 && "-color".starts_with(name) && ["always", "auto", "never"].contains(&value)
    })
}

/// The options that tc does not have, with the values that they want.
const OURS: [(&str, &str); 3] = [("--socket", "a path"), ("--name", "a name"), ("--timeout", "a time")];

fn is_ours(word: &str) -> bool {
    OURS.iter()
        .any(|(name, _)| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

fn no_value(word: &str) -> Answer {
    let wants = OURS.iter().find(|(name, _)| *name == word).map_or("a value", |(_, wants)| wants);
    let value = wants.rsplit(' ').next().unwrap_or_default().to_uppercase();
    Answer::bad(WORDS, &format!("Option \"{word}\" wants {wants}."), Some(&format!("use {word} {value}")))
}

fn unknown(word: &str) -> Answer {
    let known = [&NAMES[..], &["--socket", "--name", "--timeout", "--check"]].concat();
    let message = format!("Option \"{word}\" is unknown, try \"tc -help\".");
    Answer::bad(WORDS, &message, nearest(word, &known).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Flags, Answer> {
        Flags::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_be_abbreviated_and_end_at_the_object() {
        for (text, expected) in [
            ("-s q", Show { stats: true, ..Show::default() }),
            ("-stat q -j", Show { stats: true, ..Show::default() }),
            ("-j -p -iec q", Show { json: true, pretty: true, iec: true, ..Show::default() }),
            ("-js -d -r q", Show { json: true, details: true, raw: true, ..Show::default() }),
            ("-o -N -c -br -color=always q", Show { oneline: true, numeric: true, ..Show::default() }),
            ("-g -ec q", Show { graph: true, echo: true, ..Show::default() }),
        ] {
            let flags = read(text).unwrap();
            assert_eq!((flags.show, flags.words[0].as_str()), (expected, "q"), "{text}");
        }
        let flags = read("-fo -b - --socket /x --check").unwrap();
        assert_eq!((flags.force, flags.check, flags.batch.as_deref()), (true, true, Some("-")));
        assert_eq!(flags.target.at.socket, Some("/x".into()));
        let stamps = ["q", "-t q", "-ts q"].map(|text| read(text).unwrap().stamp);
        assert_eq!(stamps, [Stamp::None, Stamp::Line, Stamp::Short]);
    }

    #[test]
    fn an_unknown_option_is_told_as_tc_does_with_the_nearest() {
        let answer = read("-jsno q").unwrap_err();
        let told = "Option \"-jsno\" is unknown, try \"tc -help\".\ntxq: did you mean \"-json\"?\n";
        assert_eq!((answer.rc, answer.err.as_str()), (255, told));
        for text in [
            "-",
            "--statistics q",
            "-foo",
            "--socket",
            "-n x",
            "--name a --socket /b",
            "--timeout x q",
            "-color=x q",
        ] {
            assert_eq!(read(text).unwrap_err().rc, 255, "{text}");
        }
    }
}
