//! gact: a decision and nothing else, and the words for the decisions of all actions.

use crate::json::{Map, Value, json};

use crate::tc::{ParseError, Words, c_number, full};

const USAGE: &str = "Usage: ... gact <ACTION> [INDEX]
Where: \tACTION := reclassify | drop | continue | pass | pipe
\tINDEX := index value used";

/// The decisions, in the order in which tc compares their beginnings with a word.
pub(super) const SHORT: [&str; 7] = ["continue", "drop", "shot", "pass", "ok", "reclassify", "pipe"];

/// How a packet goes on after an action (`TC_ACT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// To the class of the rule.
    Ok,
    /// To the next action of the rule.
    Pipe,
    Drop,
    /// To the next filter.
    Continue,
    /// Back to the first filter.
    Reclassify,
    /// Another device has it.
    Stolen,
}

impl Control {
    /// Returns the decision that a word names; `stolen` has none.
    pub(super) fn named(word: &str) -> Option<Self> {
        Some(match full(word, &SHORT) {
            "ok" | "pass" => Self::Ok,
            "pipe" => Self::Pipe,
            "drop" | "shot" => Self::Drop,
            "continue" => Self::Continue,
            "reclassify" => Self::Reclassify,
            _ => return None,
        })
    }

    /// Returns the name that tc prints.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "pass",
            Self::Pipe => "pipe",
            Self::Drop => "drop",
            Self::Continue => "continue",
            Self::Reclassify => "reclassify",
            Self::Stolen => "stolen",
        }
    }

    pub(super) fn json(self) -> Value {
        json!({ "type": self.name() })
    }

    /// Takes a decision if the next word is one.
    pub(super) fn take(words: &mut Words<'_>) -> Option<Self> {
        let control = Self::named(words.peek()?)?;
        words.next_word();
        Some(control)
    }
}

/// Takes `index NUMBER` if it is next.
pub(super) fn take_index(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
    if words.peek().is_none_or(|word| full(word, &["index"]) != "index") {
        return Ok(None);
    }
    words.next_word();
    let word = words.value("index")?;
    let wrong = || ParseError::new("Illegal \"index\"").with_remedy(format!("\"{word}\" is no number"));
    c_number(word).map(Some).ok_or_else(wrong)
}

/// Parses a gact whose first word is `word`.
pub(super) fn parse(word: &str, words: &mut Words<'_>) -> Result<(Control, Option<u32>), ParseError> {
    let Some(control) = Control::named(word) else {
        let error = ParseError::new(format!("Bad action type {word}")).with_usage(USAGE);
        return Err(error.with_remedy(match word {
            "trap" | "goto" | "jump" => format!("there is no {word}"),
            _ => super::KINDS_HINT.to_owned(),
        }));
    };
    if words.peek().is_some_and(|word| full(word, &["random"]) == "random") {
        let error = ParseError::new("What is \"random\"?").with_usage(USAGE);
        return Err(error.with_remedy("a gact here always does the same"));
    }
    Ok((control, take_index(words)?))
}

/// Returns the text after `action order N: `, up to the numbers, and adds the fields.
pub(super) fn show(control: Control, json: &mut Map<String, Value>) -> String {
    json.insert("control_action".to_owned(), control.json());
    let none = json!({ "random_type": "none", "control_action": Control::Ok.json(), "val": 0 });
    json.insert("prob".to_owned(), none);
    format!("gact action {}\n\t random type none pass val 0\n\t ", control.name())
}
