//! The words before a filter's own options: `[dev NAME] [parent X:Y | root] [protocol P] [pref N] [handle H] KIND`, in any
//! order, the kind last. The counterpart is the first half of iproute2's `tc_filter_modify`.

use super::proto;
use crate::tc::{Estimator, Handle, ParseError, Words, c_number, full, nearest, set_once};

/// The words that may be abbreviated, in tc's order.
const SHORT: [&str; 5] = ["preference", "priority", "protocol", "chain", "estimator"];

/// The header of a filter's text. A field that the text does not give is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header<'a> {
    /// The device.
    pub dev: Option<&'a str>,
    /// The qdisc or class that the filters belong to; `None` for the root qdisc.
    pub parent: Option<Handle>,
    /// The ethertype, in host order.
    pub protocol: Option<u16>,
    /// The preference.
    pub pref: Option<u16>,
    /// The handle's text: each kind parses its own.
    pub handle: Option<&'a str>,
    /// The kind.
    pub kind: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// Parses the words up to and including the kind.
    pub(super) fn parse(words: &mut Words<'a>) -> Result<Header<'a>, ParseError> {
        let mut header = Header::default();
        while let Some(word) = words.next_word() {
            match full(word, &SHORT) {
                "dev" => {
                    let word = words.value("dev")?;
                    set_once(&mut header.dev, "dev", word, || Ok(word))?;
                }
                "root" if header.parent.is_some() => return Err(ParseError::duplicate_root("")),
                "root" => header.parent = Some(Handle::ROOT),
                "ingress" | "egress" if header.parent.is_some() => {
                    let error = ParseError::new(format!("Error: \"{word}\" is duplicate parent ID"));
                    return Err(error.with_remedy("give one parent, once"));
                }
                "ingress" => header.parent = Some(Handle::HOOK_INGRESS),
                "egress" => header.parent = Some(Handle::HOOK_EGRESS),
                "parent" => {
                    let word = words.value("parent")?;
                    let remedy = "use a qdisc as 1: or a class as 1:2";
                    let wrong = |_| ParseError::argument(word, "Invalid parent ID", remedy);
                    let parse = || Handle::parse_parent(word).map_err(wrong);
                    set_once(&mut header.parent, "parent", word, parse)?;
                }
                "handle" => {
                    let word = words.value("handle")?;
                    set_once(&mut header.handle, "handle", word, || Ok(word))?;
                }
                "pref" | "prio" | "preference" | "priority" => {
                    let word = words.value("pref")?;
                    let wrong = || ParseError::argument(word, "invalid priority value", "use 1 to 65535");
                    let pref = || c_number(word).and_then(|pref| u16::try_from(pref).ok());
                    set_once(&mut header.pref, "priority", word, || pref().ok_or_else(wrong))?;
                }
                "protocol" => {
                    let word = words.value("protocol")?;
                    let remedy = "use ip, ipv6, arp, 802.1Q, 802.1ad, all or a number as 0x88cc";
                    let wrong = || ParseError::argument(word, "invalid protocol", remedy);
                    let parse = || proto::parse(word).ok_or_else(wrong);
                    set_once(&mut header.protocol, "protocol", word, parse)?;
                }
                "chain" => {
                    let chain = words.value("chain")?;
                    if c_number(chain) != Some(0) {
                        let remedy = "there is chain 0 only";
                        return Err(ParseError::argument(chain, "invalid chain index value", remedy));
                    }
                }
                // The rate of a filter is that of its police, which has none here.
                "estimator" => drop(Estimator::parse(words, false)?),
                _ => {
                    header.kind = Some(word);
                    break;
                }
            }
        }
        Ok(header)
    }
}

/// Returns the error for a kind that is not among `known`. `option` is the first word after it, if any, which tc names.
pub(super) fn unknown_kind(kind: &str, option: Option<&str>, known: &[&str]) -> ParseError {
    let message = match option {
        Some(option) => format!("Unknown filter \"{kind}\", hence option \"{option}\" is unparsable"),
        None => "Error: TC classifier not found.".to_owned(),
    };
    let remedy =
        nearest(kind, known).unwrap_or_else(|| format!("\"{kind}\" is none of {}", known.join(", ")));
    ParseError::new(message).with_remedy(remedy)
}

/// Parses a handle that is a number; 0 without one.
pub(super) fn number_of(handle: Option<&str>) -> Result<u32, ParseError> {
    handle.map_or(Ok(0), |word| {
        let remedy = format!("\"{word}\" is no number");
        c_number(word).ok_or_else(|| ParseError::new("Illegal \"handle\"").with_remedy(remedy))
    })
}

/// Parses the class after `classid` or `flowid`; [`Handle::UNSPEC`] for `none`.
pub(super) fn classid(words: &mut Words<'_>, usage: &'static str) -> Result<Handle, ParseError> {
    let word = words.value("classid").map_err(|error| error.with_usage(usage))?;
    Handle::parse_parent(word).map_err(|_| {
        ParseError::new("Illegal \"classid\"").with_remedy(format!("\"{word}\" is no class such as 1:2"))
    })
}

/// Returns the error for a word that a kind does not know.
pub(super) fn unknown_word(word: &str, known: &[&str], usage: &'static str) -> ParseError {
    let error = match word {
        "help" => return ParseError::new(usage),
        "skip_sw" => ParseError::new("RTNETLINK answers: Operation not supported")
            .with_remedy("there is no hardware that could do it: leave skip_sw out"),
        _ => match nearest(word, known) {
            Some(remedy) => ParseError::new(format!("What is \"{word}\"?")).with_remedy(remedy),
            None => ParseError::new(format!("What is \"{word}\"?")),
        },
    };
    error.with_usage(usage)
}

/// Returns the error for a rule that exists already.
pub(super) fn file_exists(remedy: &str) -> ParseError {
    ParseError::new("RTNETLINK answers: File exists").with_remedy(remedy)
}

/// Returns the error for a command that the kernel refuses without a reason.
pub(super) fn invalid(remedy: impl Into<String>) -> ParseError {
    ParseError::new("RTNETLINK answers: Invalid argument").with_remedy(remedy)
}

/// Returns the error for a rule of another kind than its pref's, which is `kind`.
pub(super) fn wrong_kind(kind: &str) -> ParseError {
    let error = ParseError::new("Error: Specified filter kind does not match existing one.");
    error.with_remedy(format!("{kind} has this pref: give another pref"))
}

/// Returns the error for a rule of another protocol than its pref's, which is `protocol`.
pub(super) fn wrong_protocol(pref: u16, protocol: u16) -> ParseError {
    let error = ParseError::new("Error: Protocol mismatch for filter with specified priority.");
    error.with_remedy(format!("pref {pref} is of protocol {}", proto::name(protocol)))
}
