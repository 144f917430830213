//! Errors in a qdisc's text, in tc's words, with the remedy that tc leaves out.
//!
//! [`ParseError::message`] is the text that tc 6.1 prints, which users know and can search for. `Display` adds the remedy in
//! parentheses, and the kind's usage on a second line:
//!
//! ```text
//! pfifo: unknown parameter "limti" (did you mean "limit"?)
//! Usage: ... pfifo [ limit PACKETS ]
//! ```

/// Why a qdisc's text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{}", remedy_suffix(.remedy), usage_suffix(.usage))]
pub struct ParseError {
    message: String,
    remedy: Option<String>,
    usage: Option<&'static str>,
}

impl ParseError {
    /// Returns an error with this message.
    pub fn new(message: impl Into<String>) -> ParseError {
        ParseError { message: message.into(), remedy: None, usage: None }
    }

    /// Returns the error for a word that names nothing valid, in tc's form for handles and devices.
    pub fn argument(value: &str, problem: &str, remedy: &str) -> ParseError {
        ParseError::new(format!("Error: argument \"{value}\" is wrong: {problem}")).with_remedy(remedy)
    }

    /// Returns the error for a text that ends where the value of `name` should follow.
    pub fn incomplete(name: &str) -> ParseError {
        ParseError::new("Command line is not complete. Try option \"help\"")
            .with_remedy(format!("\"{name}\" wants a value"))
    }

    /// Returns the error for a word given before; `second` is its value now.
    pub fn duplicate(name: &str, second: &str) -> ParseError {
        ParseError::new(format!("Error: duplicate \"{name}\": \"{second}\" is the second value."))
            .with_remedy(format!("give \"{name}\" once"))
    }

    /// Returns the error for `root` after another parent. `stop` is the full stop, where tc prints one.
    pub fn duplicate_root(stop: &str) -> ParseError {
        ParseError::new(format!("Error: \"root\" is duplicate parent ID{stop}"))
            .with_remedy("give one of root and parent, once")
    }

    /// Returns the error for a qdisc kind that is not among `known`. `option` is the first word after it, if any, which tc
    /// names.
    pub fn unknown_kind(kind: &str, option: Option<&str>, known: &[&str]) -> ParseError {
        let message = match option {
            Some(option) => format!("Unknown qdisc \"{kind}\", hence option \"{option}\" is unparsable"),
            None => "Error: Specified qdisc kind is unknown.".to_owned(),
        };
        let remedy =
            nearest(kind, known).unwrap_or_else(|| format!("\"{kind}\" is none of {}", known.join(", ")));
        ParseError::new(message).with_remedy(remedy)
    }

    /// Returns the error with a remedy: what to do about it.
    pub fn with_remedy(self, remedy: impl Into<String>) -> ParseError {
        ParseError { remedy: Some(remedy.into()), ..self }
    }

    /// Returns the error with the kind's usage, which starts with `Usage:`.
    pub fn with_usage(self, usage: &'static str) -> ParseError {
        ParseError { usage: Some(usage), ..self }
    }

    /// Returns tc's text, without remedy and usage.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the remedy: what to do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// Returns the kind's usage, if the error is about a kind's options.
    pub fn usage(&self) -> Option<&'static str> {
        self.usage
    }
}

/// Parses the value of a word that may be given once. As in tc, a second occurrence is an error before its value is parsed.
///
/// # Errors
/// [`ParseError::duplicate`], or the error of `parse`.
pub fn set_once<T>(
    slot: &mut Option<T>,
    name: &str,
    second: &str,
    parse: impl FnOnce() -> Result<T, ParseError>,
) -> Result<(), ParseError> {
    if slot.is_some() {
        return Err(ParseError::duplicate(name, second));
    }
    *slot = Some(parse()?);
    Ok(())
}

/// Returns `did you mean "limit"?` if one of `known` is similar to `word` or begins with it.
pub(crate) fn nearest(word: &str, known: &[&str]) -> Option<String> {
    // 0.8 allows two wrong or swapped letters of six, and keeps "foo" from suggesting "flows".
    let likeness = |candidate: &str| match !word.is_empty() && candidate.starts_with(word) {
        true => 1.0,
        false => strsim::jaro_winkler(word, candidate),
    };
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= 0.8).then(|| format!("did you mean \"{best}\"?"))
}

fn remedy_suffix(remedy: &Option<String>) -> String {
    remedy.as_ref().map(|remedy| format!(" ({remedy})")).unwrap_or_default()
}

fn usage_suffix(usage: &Option<&'static str>) -> String {
    usage.map(|usage| format!("\n{usage}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_suggests_the_nearest() {
        let known = ["pfifo", "bfifo", "pfifo_fast", "fq_codel"];
        let error = ParseError::unknown_kind("fq_codle", Some("limit"), &known);
        assert_eq!(
            error.to_string(),
            "Unknown qdisc \"fq_codle\", hence option \"limit\" is unparsable (did you mean \"fq_codel\"?)"
        );
        let error = ParseError::unknown_kind("zzz", None, &known);
        assert_eq!(
            error.to_string(),
            "Error: Specified qdisc kind is unknown. (\"zzz\" is none of pfifo, bfifo, pfifo_fast, fq_codel)"
        );
    }

    #[test]
    fn nearest_needs_likeness() {
        let known = ["limit", "burst", "latency", "flows"];
        for (word, best) in [("limt", "limit"), ("bust", "burst"), ("lat", "latency"), ("ltaency", "latency")]
        {
            assert_eq!(nearest(word, &known), Some(format!("did you mean \"{best}\"?")), "{word}");
        }
        for word in ["foo", "", "handle", "xyz"] {
            assert_eq!(nearest(word, &known), None, "{word}");
        }
    }
}
