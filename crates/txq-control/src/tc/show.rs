//! `tc qdisc show`: selects qdiscs and prints them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use txq::tc::{Handle, ParseError, QdiscInfo, Style, Words, show_json, show_text};

use super::check::unknown_word;
use super::command::{Object, find};
use super::pretty::pretty;
use crate::answer::Answer;
use crate::devices::Devices;
use crate::target::Target;

/// tc's options for its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Show {
    /// Counters (`-s`).
    pub stats: bool,
    /// Details (`-d`).
    pub details: bool,
    /// Handles as numbers, too (`-r`).
    pub raw: bool,
    /// JSON (`-j`).
    pub json: bool,
    /// JSON with line breaks (`-p`).
    pub pretty: bool,
    /// Units of 1024 (`-iec`).
    pub iec: bool,
    /// Each object on one line (`-o`).
    #[serde(skip_serializing_if = "is_false")]
    pub oneline: bool,
    /// Protocols as numbers (`-N`).
    #[serde(skip_serializing_if = "is_false")]
    pub numeric: bool,
    /// Classes as a tree (`-g`).
    #[serde(skip_serializing_if = "is_false")]
    pub graph: bool,
    /// What a command has changed (`-echo`).
    #[serde(skip_serializing_if = "is_false")]
    pub echo: bool,
}

/// Options that older servers do not know are sent only if they are set.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Show {
    /// Returns a text with its line breaks, or with tc's `\` in their places.
    pub(super) fn lines(&self, text: String) -> String {
        if self.oneline { text.replace('\n', "\\") } else { text }
    }
}

/// Which qdiscs to show.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    dev: Option<&'a str>,
    parent: Option<Handle>,
    handle: Option<Handle>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(rest: &'a [String]) -> Result<Self, Answer> {
        let mut words = Words::from_args(rest);
        let mut filter = Self::default();
        while let Some(word) = words.next_word() {
            match find(word, &["handle", "parent"]).unwrap_or(word) {
                // Of several devices, the last one counts.
                "dev" => filter.dev = Some(words.value("dev")?),
                "root" => {
                    filter.free(word)?;
                    filter.parent = Some(Handle::ROOT);
                }
                "parent" => {
                    filter.free(word)?;
                    filter.parent = Some(Handle::parse_parent(words.value("parent")?)?);
                }
                "handle" => {
                    filter.free(word)?;
                    filter.handle = Some(handle(words.value("handle")?)?);
                }
                "ingress" | "clsact" => {
                    filter.free(word)?;
                    filter.parent = Some(Handle::INGRESS);
                }
                // All qdiscs are listed anyway.
                "invisible" => {}
                help if "help".starts_with(help) => return Err(Answer::help(Object::Qdisc.usage())),
                _ => return Err(unknown_word(word)),
            }
        }
        Ok(filter)
    }

    /// Refuses a second one of root, parent and handle.
    fn free(&self, word: &str) -> Result<(), ParseError> {
        let there = match (self.parent, self.handle) {
            (Some(_), _) => "parent",
            (_, Some(_)) => "handle",
            _ => return Ok(()),
        };
        let problem = format!("{there} is already specified");
        Err(ParseError::argument(word, &problem, "give one of root, parent and handle, once"))
    }

    fn passes(&self, info: &QdiscInfo) -> bool {
        self.parent.is_none_or(|parent| parent == info.parent)
            && self.handle.is_none_or(|handle| handle == info.handle)
    }
}

/// Parses a handle; the error has the words that tc uses in `show`.
fn handle(text: &str) -> Result<Handle, ParseError> {
    let wrong = |_| ParseError::argument(text, "invalid handle ID", "use 1: to ffff:, hexadecimal");
    Handle::parse_qdisc(text).map_err(wrong)
}

/// Lists the selected qdiscs of the named device, or of all devices.
pub(super) fn qdiscs(devices: &Devices, rest: &[String], show: &Show) -> Result<Answer, Answer> {
    let filter = Filter::read(rest)?;
    let style = Style { iec: show.iec, details: show.details, raw: show.raw, ..Style::default() };
    let listed = match filter.dev {
        Some(name) => {
            let mut of = listed(devices, name, |target| target.qdiscs(style))?;
            // Like tc, leave out a device that the command names.
            of.iter_mut().for_each(|info| info.dev = None);
            of
        }
        None => {
            let all = devices.targets(None);
            all.iter().map(|target| target.qdiscs(style)).collect::<Result<Vec<_>, _>>()?.concat()
        }
    };
    let listed: Vec<_> = listed.into_iter().filter(|info| filter.passes(info)).collect();
    Ok(Answer::good(print(&listed, show)))
}

/// Returns the result of `f` on the named device or scheduler; an error if there is no such device.
pub(super) fn listed<T>(
    devices: &Devices,
    name: &str,
    f: impl FnOnce(&Target) -> Result<Vec<T>, ParseError>,
) -> Result<Vec<T>, Answer> {
    let found = devices.with_target(name, f);
    Ok(found.ok_or_else(|| Answer::no_device(name, &devices.names()))??)
}

fn print(qdiscs: &[QdiscInfo], show: &Show) -> String {
    if show.json {
        return json(&show_json(qdiscs, show.stats), show);
    }
    if !show.raw {
        return show.lines(show_text(qdiscs, show.stats));
    }
    let raw = |info: &QdiscInfo| {
        let name = format!("qdisc {} {:x}:", info.kind, info.handle.major());
        let text = show_text(std::slice::from_ref(info), show.stats);
        text.replacen(&name, &format!("{name}[{:08x}]", info.handle.0), 1)
    };
    show.lines(qdiscs.iter().map(raw).collect())
}

pub(super) fn json(value: &Value, show: &Show) -> String {
    match show.pretty {
        true => format!("{}\n", pretty(value)),
        false => format!("{value}\n"),
    }
}
