//! tc's options, which precede the object and may be abbreviated to any beginning.

use std::path::PathBuf;

use super::answer::{Answer, WORDS, nearest};
use super::show::Show;

/// tc's options, in the order in which tc searches for one that begins like the word.
const NAMES: [&str; 12] = [
    "-statistics",
    "-stats",
    "-details",
    "-raw",
    "-pretty",
    "-json",
    "-iec",
    "-help",
    "-Version",
    "-force",
    "-batch",
    "-netns",
];

/// The options before the object, and the words from the object on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    pub(super) show: Show,
    pub(super) force: bool,
    pub(super) check: bool,
    pub(super) help: bool,
    pub(super) version: bool,
    pub(super) batch: Option<String>,
    pub(super) socket: Option<PathBuf>,
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
                "--socket" => flags.socket = Some(words.next().ok_or_else(no_socket)?.into()),
                long if long.starts_with("--socket=") => flags.socket = Some(long[9..].into()),
                _ => match NAMES.iter().find(|name| word.len() > 1 && name.starts_with(word.as_str())) {
                    Some(&("-statistics" | "-stats")) => flags.show.stats = true,
                    Some(&"-details") => flags.show.details = true,
                    Some(&"-raw") => flags.show.raw = true,
                    Some(&"-pretty") => flags.show.pretty = true,
                    Some(&"-json") => flags.show.json = true,
                    Some(&"-iec") => flags.show.iec = true,
                    Some(&"-help") => flags.help = true,
                    Some(&"-Version") => flags.version = true,
                    Some(&"-force") => flags.force = true,
                    Some(&"-batch") => match words.next() {
                        Some(file) => flags.batch = Some(file.clone()),
                        None => flags.help = true,
                    },
                    Some(&"-netns") => {
                        let remedy = "txq's devices are in no namespace: use --socket to name another txq";
                        return Err(Answer::bad(WORDS, "Option \"-netns\" is not supported.", Some(remedy)));
                    }
                    _ => return Err(unknown(word)),
                },
            }
        }
        flags.words = words.cloned().collect();
        Ok(flags)
    }
}

fn no_socket() -> Answer {
    Answer::bad(WORDS, "Option \"--socket\" wants a path.", Some("use --socket PATH"))
}

fn unknown(word: &str) -> Answer {
    let known = [&NAMES[..], &["--socket", "--check"]].concat();
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
        ] {
            let flags = read(text).unwrap();
            assert_eq!((flags.show, flags.words[0].as_str()), (expected, "q"), "{text}");
        }
        let flags = read("-fo -b - --socket /x --check").unwrap();
        assert_eq!((flags.force, flags.check, flags.batch.as_deref()), (true, true, Some("-")));
        assert_eq!(flags.socket, Some("/x".into()));
    }

    #[test]
    fn an_unknown_option_is_told_as_tc_does_with_the_nearest() {
        let answer = read("-jsno q").unwrap_err();
        let told = "Option \"-jsno\" is unknown, try \"tc -help\".\ntxq: did you mean \"-json\"?\n";
        assert_eq!((answer.rc, answer.err.as_str()), (255, told));
        for text in ["-", "--statistics q", "-foo", "--socket", "-n x"] {
            assert_eq!(read(text).unwrap_err().rc, 255, "{text}");
        }
    }
}
