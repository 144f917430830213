//! The words of a qdisc's text, and a kind's parser of its options.
//!
//! tc's language has no punctuation: blanks separate words, and a value follows its name. [`Words`] is the text as words
//! with a cursor. A kind describes itself once in a [`Syntax`] and parses its options through [`OptionWords`], whose errors
//! have the very text that tc prints for that kind. The counterpart is iproute2's `NEXT_ARG` macros and each kind's
//! `parse_qopt`.
//!
//! ```
//! use txq_sched::tc::{OptionWords, ParseError, Syntax, Wording, Words};
//!
//! static PFIFO: Syntax = Syntax {
//!     kind: "pfifo",
//!     words: &["limit"],
//!     usage: "Usage: ... pfifo [ limit PACKETS ]",
//!     wording: Wording::Named,
//! };
//!
//! fn limit(mut options: OptionWords<'_, '_>) -> Result<u32, ParseError> {
//!     let mut limit = 1000;
//!     while let Some(word) = options.next_word() {
//!         match word {
//!             "limit" => limit = options.value_size("limit")?.0,
//!             other => return Err(options.unknown(other)),
//!         }
//!     }
//!     Ok(limit)
//! }
//!
//! assert_eq!(limit(Words::split("limit 50").options(&PFIFO)), Ok(50));
//! let error = limit(Words::split("limit abc").options(&PFIFO)).unwrap_err();
//! assert_eq!(error.message(), "pfifo: Illegal value for \"limit\": \"abc\"");
//! ```

use std::str::FromStr;

use super::abbrev::full;
use super::error::{ParseError, nearest};
use super::units::{Micros, Nanos, Rate, Size, UnitError};

/// A text as words, with a cursor.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    /// Splits a text at its blanks.
    pub fn split(text: &'a str) -> Words<'a> {
        Words { words: text.split_whitespace().collect(), at: 0 }
    }

    /// Takes words that a shell has already split.
    pub fn from_args<S: AsRef<str>>(args: &'a [S]) -> Words<'a> {
        Words { words: args.iter().map(AsRef::as_ref).collect(), at: 0 }
    }

    /// Takes the next word.
    pub fn next_word(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// Returns the next word without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// Takes the next word, as the value of `name`.
    ///
    /// # Errors
    /// The text has no further word.
    pub fn value(&mut self, name: &str) -> Result<&'a str, ParseError> {
        self.next_word().ok_or_else(|| ParseError::incomplete(name))
    }

    /// Returns the rest of the text as the options of a kind.
    pub fn options<'w>(&'w mut self, syntax: &'static Syntax) -> OptionWords<'w, 'a> {
        #[cfg(test)]
        LAST.set(Some(syntax));
        OptionWords { words: self, syntax, short: &[] }
    }
}

#[cfg(test)]
thread_local! {
    /// The syntax of the options that the thread parsed last.
    static LAST: std::cell::Cell<Option<&'static Syntax>> = const { std::cell::Cell::new(None) };
}

/// Calls `parse`; returns its result, and the syntax of the options that it parsed last.
#[cfg(test)]
pub(crate) fn syntax_of<R>(parse: impl FnOnce() -> R) -> (R, Option<&'static Syntax>) {
    LAST.set(None);
    (parse(), LAST.get())
}

/// A description of a kind's options, for its errors.
#[derive(Debug)]
pub struct Syntax {
    /// The kind's name, such as `pfifo`.
    pub kind: &'static str,
    /// All words that the kind understands. The error for an unknown word suggests the nearest.
    pub words: &'static [&'static str],
    /// The kind's usage, such as `Usage: ... pfifo [ limit PACKETS ]`.
    pub usage: &'static str,
    /// How tc words this kind's errors.
    pub wording: Wording,
}

/// How tc words the errors of a kind: different authors wrote tc's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wording {
    /// `pfifo: unknown parameter "x"`, `pfifo: Illegal value for "limit": "x"`: pfifo, bfifo, pfifo_head_drop.
    Named,
    /// `tbf: unknown parameter "x"`, `tbf: illegal value for "limit": "x"`: tbf.
    NamedLower,
    /// `What is "x"?`, `Illegal "limit"`: htb, fq, codel, fq_codel, cake, netem, prio, drr, sfq, red, pie and ets.
    Plain,
    /// `qdisc 'pfifo_fast' does not support option parsing`: pfifo_fast.
    NoOptions,
    /// `Error: argument "x" is wrong: unknown argument`: mqprio and taprio.
    Argument,
    /// `Unknown qdisc "mq", hence option "x" is unparsable`: mq, which tc itself does not know.
    Unparsable,
}

/// The options of one kind: its words, taken one by one, and the errors in tc's words.
#[derive(Debug)]
pub struct OptionWords<'w, 'a> {
    words: &'w mut Words<'a>,
    syntax: &'static Syntax,
    /// The options that may be abbreviated, in tc's order.
    short: &'static [&'static str],
}

impl<'a> OptionWords<'_, 'a> {
    /// Lets some of the options be abbreviated: the first of `short` that begins like a word is meant. These are tc's own, in tc's
    /// order.
    pub(crate) fn abbreviated(self, short: &'static [&'static str]) -> Self {
        Self { short, ..self }
    }

    /// Takes the next word. An abbreviated option is returned whole.
    pub fn next_word(&mut self) -> Option<&'a str> {
        self.words.next_word().map(|word| full(word, self.short))
    }

    /// Returns the next word without taking it, for options with a variable number of values, such as `priomap`.
    pub fn peek(&self) -> Option<&'a str> {
        self.words.peek()
    }

    /// Takes the next word, as the value of `name`.
    ///
    /// # Errors
    /// The text has no further word.
    pub fn value(&mut self, name: &str) -> Result<&'a str, ParseError> {
        self.words.value(name).map_err(|error| error.with_usage(self.syntax.usage))
    }

    /// Takes a whole number as C reads one: `0x10` is 16 and, a trap that tc shares, `010` is 8. Most options use it.
    ///
    /// # Errors
    /// The text ends, or the word is no number below 2^32.
    pub fn value_u32(&mut self, name: &str) -> Result<u32, ParseError> {
        self.number(name, c_number, "use 0 to 4294967295; a leading 0x means hexadecimal, a leading 0 octal")
    }

    /// Takes a whole number as C reads one; returns `None` for 0, where it leaves a value as it is.
    ///
    /// # Errors
    /// As [`value_u32`](OptionWords::value_u32).
    pub(crate) fn value_unless_0(&mut self, name: &str) -> Result<Option<u32>, ParseError> {
        Ok(Some(self.value_u32(name)?).filter(|&number| number > 0))
    }

    /// Takes a whole decimal number: htb's `r2q`, `prio` and `quantum`.
    ///
    /// # Errors
    /// The text ends, or the word is no number below 2^32.
    pub fn value_decimal(&mut self, name: &str) -> Result<u32, ParseError> {
        self.number(name, |word| radix_number(word, 10), "use 0 to 4294967295")
    }

    /// Takes a whole hexadecimal number, with or without `0x`: htb's `default`.
    ///
    /// # Errors
    /// The text ends, or the word is no number below 2^32.
    pub fn value_hex(&mut self, name: &str) -> Result<u32, ParseError> {
        let hex = |word: &str| {
            let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
            radix_number(digits, 16)
        };
        self.number(name, hex, "use 0 to ffffffff, hexadecimal")
    }

    /// Takes a size, such as `10k`. tc parses even pfifo's `limit`, a number of packets, this way.
    ///
    /// # Errors
    /// The text ends, or the word is no size; see [`Size`].
    pub fn value_size(&mut self, name: &str) -> Result<Size, ParseError> {
        self.unit(name)
    }

    /// Takes a rate, such as `10mbit`.
    ///
    /// # Errors
    /// The text ends, or the word is no rate; see [`Rate`].
    pub fn value_rate(&mut self, name: &str) -> Result<Rate, ParseError> {
        self.unit(name)
    }

    /// Takes a time, such as `5ms`; a bare number is microseconds.
    ///
    /// # Errors
    /// The text ends, or the word is no time; see [`Micros`].
    pub fn value_micros(&mut self, name: &str) -> Result<Micros, ParseError> {
        self.unit(name)
    }

    /// Takes a time, such as `800ns`; a bare number is nanoseconds.
    ///
    /// # Errors
    /// The text ends, or the word is no time; see [`Nanos`].
    pub fn value_nanos(&mut self, name: &str) -> Result<Nanos, ParseError> {
        self.unit(name)
    }

    /// Checks that the text ends here, for kinds without options.
    ///
    /// # Errors
    /// There is another word.
    pub fn end(&mut self) -> Result<(), ParseError> {
        match self.next_word() {
            Some(word) => Err(self.unknown(word)),
            None => Ok(()),
        }
    }

    /// Returns the error for a word that the kind does not know. For `help`, which all of tc's kinds know, that is the usage
    /// alone.
    pub fn unknown(&self, word: &str) -> ParseError {
        let Syntax { kind, words, usage, wording } = *self.syntax;
        if word == "help" {
            return ParseError::new(usage);
        }
        let message = match wording {
            Wording::Named | Wording::NamedLower => format!("{kind}: unknown parameter \"{word}\""),
            Wording::Plain => format!("What is \"{word}\"?"),
            Wording::Argument => format!("Error: argument \"{word}\" is wrong: unknown argument"),
            Wording::NoOptions => format!("qdisc '{kind}' does not support option parsing"),
            Wording::Unparsable => format!("Unknown qdisc \"{kind}\", hence option \"{word}\" is unparsable"),
        };
        let error = ParseError::new(message).with_usage(usage);
        match nearest(word, words) {
            Some(remedy) => error.with_remedy(remedy),
            None if words.is_empty() => {
                error.with_remedy(format!("{kind} takes no options: remove \"{word}\""))
            }
            None => error,
        }
    }

    /// Returns the error for an invalid `value` of the option `name`; `remedy` says which values are valid.
    pub fn illegal(&self, name: &str, value: &str, remedy: &str) -> ParseError {
        let kind = self.syntax.kind;
        let error = match self.syntax.wording {
            Wording::Named => ParseError::new(format!("{kind}: Illegal value for \"{name}\": \"{value}\"")),
            Wording::NamedLower => {
                ParseError::new(format!("{kind}: illegal value for \"{name}\": \"{value}\""))
            }
            // tc prints neither the kind nor the value here, so the remedy does.
            Wording::Plain | Wording::Argument | Wording::NoOptions | Wording::Unparsable => {
                let error = ParseError::new(format!("Illegal \"{name}\""));
                return error
                    .with_remedy(format!("{kind} got \"{value}\": {remedy}"))
                    .with_usage(self.syntax.usage);
            }
        };
        error.with_remedy(remedy).with_usage(self.syntax.usage)
    }

    /// Returns the error for an option given twice, for kinds in which the last one does not win (tbf).
    pub fn duplicate(&self, name: &str) -> ParseError {
        self.refuse(&format!("duplicate \"{name}\" specification"))
            .with_remedy(format!("give \"{name}\" once"))
    }

    /// Returns the error for a missing mandatory option.
    pub fn mandatory(&self, name: &str) -> ParseError {
        self.refuse(&format!("the \"{name}\" parameter is mandatory."))
    }

    /// Returns the error for options that exclude each other: the kind's name, a colon and the problem.
    pub fn refuse(&self, problem: &str) -> ParseError {
        ParseError::new(format!("{}: {problem}", self.syntax.kind)).with_usage(self.syntax.usage)
    }

    fn number(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<u32>,
        remedy: &str,
    ) -> Result<u32, ParseError> {
        let word = self.value(name)?;
        read(word.trim_start()).ok_or_else(|| self.illegal(name, word, remedy))
    }

    fn unit<T: FromStr<Err = UnitError>>(&mut self, name: &str) -> Result<T, ParseError> {
        let word = self.value(name)?;
        word.parse().map_err(|error: UnitError| self.illegal(name, word, error.remedy()))
    }
}

/// Parses a whole word as C's `strtoul` with base 0 does; returns `None` if it is no number below 2^32.
pub(crate) fn c_number(word: &str) -> Option<u32> {
    let digits = word.strip_prefix('+').unwrap_or(word);
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return digits_of(hex, 16);
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits_of(octal, 8),
        _ => digits_of(digits, 10),
    }
}

/// Parses a whole word as a number in `radix`, with or without a plus.
pub(crate) fn radix_number(word: &str, radix: u32) -> Option<u32> {
    digits_of(word.strip_prefix('+').unwrap_or(word), radix)
}

fn digits_of(text: &str, radix: u32) -> Option<u32> {
    // `from_str_radix` would accept a second sign.
    if text.starts_with(['+', '-']) { None } else { u32::from_str_radix(text, radix).ok() }
}

#[cfg(test)]
mod tests;
