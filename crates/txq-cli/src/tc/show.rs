//! `tc qdisc show`: which qdiscs, and how.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use txq::NetDev;
use txq::tc::{Handle, ParseError, QdiscInfo, Style, Words, show_json, show_text};

use super::answer::Answer;
use super::check::unknown_word;
use super::command::Object;
use super::pretty::pretty;
use crate::control::Devices;

/// tc's options about output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Show {
    pub(crate) stats: bool,
    pub(crate) details: bool,
    pub(crate) raw: bool,
    pub(crate) json: bool,
    pub(crate) pretty: bool,
    pub(crate) iec: bool,
}

/// Which qdiscs to show.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    dev: Option<&'a str>,
    parent: Option<Handle>,
    handle: Option<Handle>,
    nothing: bool,
}

impl<'a> Filter<'a> {
    pub(super) fn read(rest: &'a [String]) -> Result<Self, Answer> {
        let mut words = Words::from_args(rest);
        let mut filter = Self::default();
        while let Some(word) = words.next_word() {
            match word {
                // Of several the last one is meant.
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
                // There are none of these.
                "ingress" | "clsact" => filter.nothing = true,
                // All that there is is listed anyway.
                "invisible" => {}
                help if "help".starts_with(help) => return Err(Answer::help(Object::Qdisc.usage())),
                _ => return Err(unknown_word(word)),
            }
        }
        Ok(filter)
    }

    /// One of root, parent and handle is enough.
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
        !self.nothing
            && self.parent.is_none_or(|parent| parent == info.parent)
            && self.handle.is_none_or(|handle| handle == info.handle)
    }
}

/// tc words this one differently here.
fn handle(text: &str) -> Result<Handle, ParseError> {
    let wrong = |_| ParseError::argument(text, "invalid handle ID", "use 1: to ffff:, hexadecimal");
    Handle::parse_qdisc(text).map_err(wrong)
}

/// Lists them.
pub(super) fn qdiscs(devices: &Devices<'_>, rest: &[String], show: &Show) -> Result<Answer, Answer> {
    let filter = Filter::read(rest)?;
    let style = Style { iec: show.iec, details: show.details, raw: show.raw };
    let listed = match filter.dev {
        Some(name) => {
            let of = listed(devices, name, |dev| dev.qdiscs(style))?;
            // Who names the device need not be told.
            of.into_iter().map(|info| QdiscInfo { dev: None, ..info }).collect()
        }
        None => devices.all(|dev| dev.qdiscs(style)).concat(),
    };
    let listed: Vec<_> = listed.into_iter().filter(|info| filter.passes(info)).collect();
    Ok(Answer::good(print(&listed, show)))
}

/// What a device lists.
pub(super) fn listed<T>(
    devices: &Devices<'_>,
    name: &str,
    f: impl FnOnce(&NetDev) -> Vec<T>,
) -> Result<Vec<T>, Answer> {
    devices.with(name, f).ok_or_else(|| Answer::no_device(name, &devices.names()))
}

fn print(qdiscs: &[QdiscInfo], show: &Show) -> String {
    if show.json {
        return json(&show_json(qdiscs, show.stats), show);
    }
    if !show.raw {
        return show_text(qdiscs, show.stats);
    }
    let raw = |info: &QdiscInfo| {
        let name = format!("qdisc {} {:x}:", info.kind, info.handle.major());
        let text = show_text(std::slice::from_ref(info), show.stats);
        text.replacen(&name, &format!("{name}[{:08x}]", info.handle.0), 1)
    };
    qdiscs.iter().map(raw).collect()
}

pub(super) fn json(value: &Value, show: &Show) -> String {
    match show.pretty {
        true => format!("{}\n", pretty(value)),
        false => format!("{value}\n"),
    }
}
