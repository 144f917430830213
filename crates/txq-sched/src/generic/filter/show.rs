//! `tc filter show`: filters as text and as JSON.
//!
//! The text is byte for byte what tc 6.1 prints. So is the JSON, except in two places where tc's is not valid JSON. tc 6.1
//! writes fw's options as text; here they are the JSON of later releases. tc repeats the name `match` for each of u32's keys;
//! here several keys are an array.

use std::fmt::{self, Write};

#[cfg(feature = "json")]
use crate::json::{Map, Value, json};

use txq_core::arch::Nanos;

use super::proto;
use crate::generic::action::{ActionInfo, Actions};
use crate::tc::{Handle, Options};

/// One line of `tc filter show`: a pref, or one of its rules if it has options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FilterInfo {
    /// The kind, such as `flower`.
    pub kind: &'static str,
    /// The qdisc or class that the filter belongs to; `None` if the reader asked for one.
    pub parent: Option<Handle>,
    /// The ethertype of the packets that it matches; 3 for all.
    pub protocol: u16,
    /// Its place among the filters: the lowest comes first.
    pub pref: u16,
    /// The rule's parameters; `None` for the line of the pref.
    pub options: Option<Options>,
    /// Packets that the rule matched, each GSO packet counted as its segments; `None` if they are not counted.
    pub hits: Option<u64>,
    /// The rule's actions.
    pub actions: Vec<ActionInfo>,
}

impl FilterInfo {
    /// Adds what the same filter has counted in another part of the qdisc.
    #[doc(hidden)]
    pub fn add_part(&mut self, part: &Self) {
        self.hits = self.hits.zip(part.hits).map(|(hits, more)| hits + more);
        self.actions.iter_mut().zip(&part.actions).for_each(|(action, part)| action.add_part(part));
    }

    /// Adds the list of another part of the qdisc, which has the same filters. Reads it only if one of them counts something.
    #[doc(hidden)]
    pub fn add_parts(sum: &mut [Self], part: &dyn Fn() -> Vec<Self>) {
        if sum.iter().any(|filter| filter.hits.is_some() || !filter.actions.is_empty()) {
            sum.iter_mut().zip(part()).for_each(|(filter, part)| filter.add_part(&part));
        }
    }
}

/// A rule as tc shows it.
pub(super) struct Shown {
    options: Options,
    hits: Option<u64>,
    actions: Vec<ActionInfo>,
}

impl Shown {
    pub(super) fn with_hits(self, hits: u64) -> Self {
        Self { hits: Some(hits), ..self }
    }

    pub(super) fn plain(options: Options) -> Self {
        Self { options, hits: None, actions: Vec::new() }
    }

    /// Returns a rule with its actions at the time `now`. In the style of commands the actions are words of its options.
    pub(super) fn new(mut options: Options, actions: &Actions, now: Nanos) -> Self {
        if options.style().input {
            actions.write_input(&mut options);
            return Self::plain(options);
        }
        let actions = actions.info(options.style(), now);
        Self { options, hits: None, actions }
    }

    /// Puts a text between the options and the actions, if there are actions.
    pub(super) fn separate(&mut self, text: &str) {
        if !self.actions.is_empty() && !text.is_empty() {
            self.options.text_only(text);
        }
    }

    pub(super) fn into_info(self, info: FilterInfo) -> FilterInfo {
        let Self { options, hits, actions, .. } = self;
        FilterInfo { options: Some(options), hits, actions, ..info }
    }
}

impl FilterInfo {
    /// Returns the protocol as tc names it: `ip`, `all`, or `[2000]` for a number without a name.
    pub fn protocol_name(&self) -> String {
        proto::name(self.protocol)
    }
}

/// Returns the filters as lines of text, with counters if `stats` (`tc -s filter show`).
pub fn filters_text(filters: &[FilterInfo], stats: bool) -> String {
    let mut text = String::new();
    for filter in filters {
        write_filter(&mut text, filter, stats).expect("writing to a String does not fail");
    }
    text
}

/// Returns the filters as an array of objects, with counters if `stats`.
/// Needs the feature `json`.
#[cfg(feature = "json")]
pub fn filters_json(filters: &[FilterInfo], stats: bool) -> Value {
    filters.iter().map(|filter| filter_json(filter, stats)).collect()
}

fn write_filter(text: &mut String, filter: &FilterInfo, stats: bool) -> fmt::Result {
    write!(text, "filter ")?;
    match filter.parent {
        Some(Handle::HOOK_INGRESS) => write!(text, "ingress ")?,
        Some(Handle::HOOK_EGRESS) => write!(text, "egress ")?,
        Some(parent) => write!(text, "parent {parent} ")?,
        None => {}
    }
    let (protocol, options) = (proto::name(filter.protocol), filter.options.as_ref());
    write!(text, "protocol {protocol} pref {} {} chain 0 ", filter.pref, filter.kind)?;
    write!(text, "{}", options.map_or("", Options::text))?;
    if let Some(hits) = filter.hits.filter(|_| stats) {
        write!(text, " (rule hit {hits})")?;
    }
    filter.actions.iter().for_each(|action| action.write(text, stats));
    writeln!(text)
}

#[cfg(feature = "json")]
fn filter_json(filter: &FilterInfo, stats: bool) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    if let Some(parent) = filter.parent {
        put("parent", json!(parent.to_string()));
    }
    put("protocol", json!(proto::name(filter.protocol)));
    put("pref", json!(filter.pref));
    put("kind", json!(filter.kind));
    put("chain", json!(0));
    if let Some(options) = &filter.options {
        let mut options = options.json();
        if let (Some(hits), Some(options)) = (filter.hits.filter(|_| stats), options.as_object_mut()) {
            options.insert("rule_hit".to_owned(), json!(hits));
        }
        if let (Some(fields), [first, ..]) = (options.as_object_mut(), &*filter.actions) {
            let all: Vec<_> = filter.actions.iter().map(|action| action.json(stats)).collect();
            match first.is_old() {
                // As tc does: the fields of the old police are the rule's own.
                true => {
                    fields.extend(all.into_iter().filter_map(|police| police.as_object().cloned()).flatten())
                }
                false => drop(fields.insert("actions".to_owned(), json!(all))),
            }
        }
        put("options", options);
    }
    Value::Object(object)
}
