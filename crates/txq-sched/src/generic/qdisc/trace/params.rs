//! The parameters of a trace, in tc's words.

use std::sync::Arc;

use super::file;
use super::link::Schedule;
use crate::tc::{OptionWords, Options, ParseError, Style, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "trace",
    words: &["limit", "once", "overhead", "seed"],
    usage: "Usage: ... trace FILE [ limit PACKETS ] [ once ] [ overhead BYTES ] [ seed SEED ]",
    wording: Wording::Named,
};

#[derive(Clone, Debug)]
pub(super) struct Params {
    /// The file's path, as the user named it.
    file: String,
    pub(super) schedule: Arc<Schedule>,
    pub(super) limit: u32,
    pub(super) once: bool,
    pub(super) overhead: i32,
    pub(super) seed: Option<u64>,
}

impl Params {
    /// Reads the parameters, and the file. A change (`old`) keeps all that it does not name.
    pub(super) fn parse(words: &mut Words<'_>, old: Option<&Self>) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let named = options.peek().filter(|word| word.contains('/'));
        let mut params = match (named, old) {
            (Some(path), _) => {
                let _ = options.next_word();
                let schedule = file::read(path)?;
                let overhead = schedule.overhead();
                let (limit, once, seed) =
                    old.map_or((1000, false, None), |old| (old.limit, old.once, old.seed));
                Self { file: path.to_owned(), schedule: Arc::new(schedule), limit, once, overhead, seed }
            }
            (None, Some(old)) => old.clone(),
            (None, None) => {
                return Err(ParseError::new("trace: \"FILE\" is required")
                    .with_remedy("name a file by a path with a \"/\", such as ./lte.up")
                    .with_usage(SYNTAX.usage));
            }
        };
        while let Some(word) = options.next_word() {
            match word {
                "limit" => params.limit = options.value_u32(word)?,
                "once" => params.once = true,
                "overhead" => params.overhead = number(&mut options, word, "use a number of bytes")?,
                "seed" => params.seed = Some(number(&mut options, word, "use 0 to 18446744073709551615")?),
                other => return Err(options.unknown(other)),
            }
        }
        Ok(params)
    }

    pub(super) fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.put("file", self.file.as_str(), &self.file);
        options.packets("limit", self.limit.into());
        if self.once {
            options.put("once", true, "once");
        }
        options.put("overhead", self.overhead, format_args!("overhead {}", self.overhead));
        if let Some(seed) = self.seed {
            options.number("seed", seed);
        }
        options
    }
}

fn number<T: std::str::FromStr>(
    options: &mut OptionWords<'_, '_>,
    name: &str,
    remedy: &str,
) -> Result<T, ParseError> {
    let word = options.value(name)?;
    word.parse().map_err(|_| options.illegal(name, word, remedy))
}
