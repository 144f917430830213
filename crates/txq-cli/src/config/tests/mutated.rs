//! Files that were damaged at random: each is accepted, or refused by one line that begins with the file's name.
//!
//! `PROPTEST_CASES=1000000 cargo test --release -p txq-cli --bin txq mutated` runs for an hour.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::{Purpose, parse, rehearse};

/// The files to damage: all that the documents show.
const FILES: &[&str] = &[
    include_str!("../../../examples/classes.toml"),
    include_str!("../../../examples/default.toml"),
    include_str!("../../../examples/faulty.toml"),
    include_str!("../../../examples/shared-uplink.toml"),
    include_str!("../../../examples/two-devices.toml"),
    include_str!("../../../examples/daemon/every-key.toml"),
    include_str!("../../../../../contrib/txq.toml"),
];
/// What stands where something else stood: values at the edges of their ranges, and marks that end or begin something.
const WORDS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "1e309",
    "nan",
    "true",
    "\"\"",
    "\"max\"",
    "\"off\"",
    "\"10gbit\"",
    "\"0bit\"",
    "\"5s\"",
    "\"-5s\"",
    "\"pfifo limit 0\"",
    "\"htb default 10\"",
    "\"root handle ffff:\"",
    "\"\\u0000\"",
    "\"é\u{301}\"",
    "'''",
    "\"\"\"",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    "#",
    "\n",
    "\r",
    "\u{feff}",
    "[[device]]",
    "[[sender]]",
    "[[bridge]]",
    "[[socket]]",
    "[[replay]]",
    "[device.null]",
    "tc = [\"qdisc add root handle 1: tbf rate 1\"]",
    "txqs = 3",
    "txqs = 2\ntxqs = 2",
    "1979-05-27T07:32:00Z",
    "[1, [2, [3]]]",
    "{ a = { b = 1 } }",
];

/// A change of a text at a place.
#[derive(Debug, Clone)]
enum Damage {
    /// A word is replaced.
    Replace(Index, &'static str),
    /// A word is inserted.
    Insert(Index, &'static str),
    /// Some words are cut out.
    Cut(Index, usize),
    /// Some lines are repeated at another place.
    Repeat(Index, usize, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), select(WORDS)).prop_map(|(at, word)| Damage::Replace(at, word)),
        2 => (at(), select(WORDS)).prop_map(|(at, word)| Damage::Insert(at, word)),
        1 => (at(), 1..20_usize).prop_map(|(at, words)| Damage::Cut(at, words)),
        1 => (at(), 1..8_usize, at()).prop_map(|(from, lines, to)| Damage::Repeat(from, lines, to)),
    ]
}

/// Returns the words of a text, and the space between them: joined, they are the text.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive(|c: char| c.is_whitespace() || "=,[]{}.".contains(c)).collect()
}

fn damaged(text: &str, damage: &Damage) -> String {
    let mut parts = words(text);
    if parts.is_empty() {
        return text.to_owned();
    }
    let count = parts.len();
    match damage {
        Damage::Replace(at, word) => parts[at.index(count)] = word,
        Damage::Insert(at, word) => parts.insert(at.index(count), word),
        Damage::Cut(at, n) => {
            let at = at.index(count);
            parts.drain(at..(at + n).min(count));
        }
        Damage::Repeat(from, n, to) => {
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            let from = from.index(lines.len());
            let again = lines[from..(from + n).min(lines.len())].to_vec();
            let to = to.index(lines.len());
            lines.splice(to..to, again);
            parts = lines;
        }
    }
    parts.concat()
}

proptest! {
    #[test]
    fn a_damaged_file_is_accepted_or_refused_in_a_line(
        file in select(FILES),
        damages in prop::collection::vec(damage(), 1..5),
    ) {
        let text = damages.iter().fold(file.to_owned(), |text, damage| damaged(&text, damage));
        for purpose in [Purpose::Run, Purpose::Daemon] {
            let said = match parse("x.toml", &text, purpose) {
                Err(error) => format!("{error:#}"),
                // The largest devices take long to build.
                Ok(loaded) if loaded.config.device.iter().any(|dev| dev.txqs.is_some_and(|txqs| txqs.get() > 16)) => {
                    continue;
                }
                Ok(loaded) => match rehearse::rehearse(&loaded.config) {
                    Ok(()) => continue,
                    Err(fault) => format!("{:#}", fault.at("x.toml", &text)),
                },
            };
            prop_assert!(said.starts_with("x.toml:"), "{said:?} of\n{text}");
            prop_assert!(!said.contains('\n'), "{said:?} of\n{text}");
        }
    }
}
