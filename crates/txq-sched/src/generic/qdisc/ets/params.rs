//! The parameters, as tc reads and prints them.

use crate::generic::qdisc::Env;
use crate::tc::{OptionWords, ParseError, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "ets",
    words: &["bands", "strict", "quanta", "priomap"],
    usage: "Usage: ... ets [bands NUMBER] [strict NUMBER] [quanta Q1 Q2...] [priomap P1 P2...]",
    wording: Wording::Plain,
};

pub(super) static CLASS: Syntax = Syntax {
    kind: "ets",
    words: &["quantum"],
    usage: "Usage: ... ets [quantum Q1]",
    wording: Wording::Plain,
};

/// The most bands (`TCQ_ETS_MAX_BANDS`).
const ETS_MAX_BANDS: usize = 16;
const PRIORITIES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Params {
    /// The quantum of each band; 0 for a strict one. The strict ones come first.
    pub(super) quanta: Vec<u32>,
    pub(super) map: [u8; PRIORITIES],
}

impl Params {
    pub(super) fn parse(words: &mut Words<'_>, env: &Env) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let (mut bands, mut strict) = (0, 0);
        let (mut quanta, mut map) = (Vec::new(), Vec::new());
        while let Some(word) = options.next_word() {
            match word {
                "bands" => bands = number(&mut options, word)?,
                "strict" => strict = number(&mut options, word)?,
                "quanta" => {
                    quanta = list(&mut options, word, quantum)?;
                    if quanta.len() > ETS_MAX_BANDS {
                        let error = ParseError::new("\"quanta\" index cannot be higher than 15");
                        return Err(error.with_remedy("there are at most 16 bands"));
                    }
                }
                "priomap" => {
                    map = list(&mut options, word, |options, word| {
                        word.parse::<u32>().map_err(|_| illegal(options, "priomap", word))
                    })?;
                    if map.len() > PRIORITIES {
                        let error = ParseError::new("\"priomap\" index cannot be higher than 15");
                        return Err(error.with_remedy("there are 16 priorities"));
                    }
                }
                other => return Err(options.unknown(other)),
            }
        }
        let bands = if bands > 0 { bands } else { strict + quanta.len() };
        if bands == 0 {
            let error = ParseError::new("One of \"bands\", \"quanta\" or \"strict\" needs to be specified");
            return Err(error.with_usage(SYNTAX.usage));
        }
        if bands < strict + quanta.len() {
            let error = ParseError::new("Not enough total bands to cover all the strict bands and quanta");
            return Err(error.with_usage(SYNTAX.usage));
        }
        if bands > ETS_MAX_BANDS {
            return Err(too_many("bands"));
        }
        if let Some(band) = map.iter().find(|&&band| band as usize >= bands) {
            let error = ParseError::new("\"priomap\" element is out of bounds");
            return Err(error.with_remedy(format!("\"{band}\" is no band from 0 to {}", bands - 1)));
        }
        let last = bands as u32 - 1;
        let map = std::array::from_fn(|priority| map.get(priority).copied().unwrap_or(last) as u8);
        let mut all = vec![0; strict];
        all.append(&mut quanta);
        all.resize(bands, env.mtu.max(1));
        Ok(Self { quanta: all, map })
    }

    /// Returns the number of strict bands.
    pub(super) fn strict(&self) -> usize {
        self.quanta.iter().take_while(|&&quantum| quantum == 0).count()
    }

    /// Reads the quantum of a class; `None` if the words name none.
    pub(super) fn parse_class(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
        let mut options = words.options(&CLASS);
        let mut found = None;
        while let Some(word) = options.next_word() {
            match word {
                "quantum" => {
                    let text = options.value(word)?;
                    found = Some(quantum(&options, text)?);
                }
                other => return Err(options.unknown(other)),
            }
        }
        Ok(found)
    }
}

fn number(options: &mut OptionWords<'_, '_>, word: &str) -> Result<usize, ParseError> {
    match options.value_decimal(word)? as usize {
        bands if bands > ETS_MAX_BANDS => Err(too_many(word)),
        bands => Ok(bands),
    }
}

fn too_many(word: &str) -> ParseError {
    ParseError::new(format!("The number of \"{word}\" must be <= 16"))
}

/// Reads values up to the next word of the kind; at least one.
fn list(
    options: &mut OptionWords<'_, '_>,
    name: &str,
    read: impl Fn(&OptionWords<'_, '_>, &str) -> Result<u32, ParseError>,
) -> Result<Vec<u32>, ParseError> {
    let first = options.value(name)?;
    let mut values = vec![read(options, first)?];
    while let Some(word) = options.peek().filter(|word| !SYNTAX.words.contains(word)) {
        values.push(read(options, word)?);
        options.next_word();
    }
    Ok(values)
}

fn quantum(options: &OptionWords<'_, '_>, word: &str) -> Result<u32, ParseError> {
    match word.parse::<crate::tc::Size>() {
        Ok(size) if size.0 > 0 => Ok(size.0),
        Ok(_) => Err(ParseError::new("\"quanta\" must be > 0").with_remedy("give a number of bytes")),
        Err(_) => Err(illegal(options, "quanta", word)),
    }
}

fn illegal(options: &OptionWords<'_, '_>, name: &str, word: &str) -> ParseError {
    let error = options.illegal(name, word, "use a number");
    ParseError::new(format!("Illegal \"{name}\" element")).with_remedy(error.remedy().unwrap_or_default())
}
