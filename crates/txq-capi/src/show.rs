//! Qdiscs, classes and filters as tc prints them, as text or JSON.

use txq_sched::filter::{FilterInfo, filters_json, filters_text};
use txq_sched::tc::{ClassInfo, Handle, QdiscInfo, Style, class_json, class_text, show_json, show_text};

use crate::error::{Error, Result};

/// Show the qdiscs (`tc qdisc show`).
pub const TXQ_SHOW_QDISCS: u32 = 0;
/// Show the classes (`tc class show`).
pub const TXQ_SHOW_CLASSES: u32 = 1;
/// Show the filters of a qdisc or class (`tc filter show`).
pub const TXQ_SHOW_FILTERS: u32 = 2;

/// A flag of `txq_sched_show` and `txq_dev_show`: JSON instead of text (`tc -j`).
pub const TXQ_SHOW_JSON: u32 = 1;
/// A flag of `txq_sched_show` and `txq_dev_show`: with counters (`tc -s`).
pub const TXQ_SHOW_STATS: u32 = 2;
/// A flag of `txq_sched_show` and `txq_dev_show`: with details (`tc -d`).
pub const TXQ_SHOW_DETAILS: u32 = 4;

/// A list that can be shown.
pub(crate) enum List {
    Qdiscs(Vec<QdiscInfo>),
    Classes(Vec<ClassInfo>),
    Filters(Vec<FilterInfo>),
}

/// What to show, and how.
pub(crate) struct Request {
    pub(crate) what: u32,
    pub(crate) parent: Option<Handle>,
    pub(crate) style: Style,
    flags: u32,
}

impl Request {
    pub(crate) fn new(what: u32, parent: Option<&str>, flags: u32) -> Result<Self> {
        if flags & !(TXQ_SHOW_JSON | TXQ_SHOW_STATS | TXQ_SHOW_DETAILS) != 0 {
            return Err(Error::invalid(format!("the flags {flags:#x} are unknown: use TXQ_SHOW_...")));
        }
        if parent.is_some() && what != TXQ_SHOW_FILTERS {
            return Err(Error::invalid("only filters are shown by their parent: use NULL"));
        }
        let parent = match parent {
            Some("root") => Some(Handle::ROOT),
            parent => parent.map(Handle::parse_parent).transpose()?,
        };
        let style = Style { details: flags & TXQ_SHOW_DETAILS != 0, ..Style::default() };
        Ok(Self { what, parent, style, flags })
    }

    pub(crate) fn is_json(&self) -> bool {
        self.flags & TXQ_SHOW_JSON != 0
    }

    /// Returns the error for a number that names nothing.
    pub(crate) fn unknown(&self) -> Error {
        Error::invalid(format!("there is nothing to show with the number {}: use TXQ_SHOW_...", self.what))
    }

    pub(crate) fn text(&self, list: &List) -> String {
        let stats = self.flags & TXQ_SHOW_STATS != 0;
        match (list, self.is_json()) {
            (List::Qdiscs(list), false) => show_text(list, stats),
            (List::Qdiscs(list), true) => show_json(list, stats).to_string(),
            (List::Classes(list), false) => class_text(list, stats),
            (List::Classes(list), true) => class_json(list, stats).to_string(),
            (List::Filters(list), false) => filters_text(list, stats),
            (List::Filters(list), true) => filters_json(list, stats).to_string(),
        }
    }
}
