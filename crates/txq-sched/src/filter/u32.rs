//! u32: matches words at offsets from the packet's network header, each under a mask.
//!
//! The rules of a pref are compared one by one, in the order of their handles; a rule without a class is skipped. The
//! kernel's counterpart is `cls_u32`. Differences: there are no further hash tables and no links between them (`ht`, `link`,
//! `hashkey`, `offset`, `divisor`), so `nexthdr+` counts from the network header, too, as in the kernel without a link. A
//! rule with a word beyond the packet's end does not match, and the next rule is tried. Bytes in front of the packet read as
//! 0.

mod sample;

use std::collections::BTreeMap;

use super::frame::Frame;
use super::handles::Handles;
use super::header::{classid, unknown_word};
use super::{Choice, Deleted, Mode, Shown};
use crate::action::Actions;
use crate::tc::{Handle, Options, ParseError, Style, Words, radix_number};
use serde_json::{Value, json};
use txq_core::arch::{Arch, Nanos};

use sample::Selector;

const WORDS: [&str; 6] = ["match", "classid", "flowid", "action", "police", "skip_hw"];
const USAGE: &str = "Usage: ... u32 [ match SELECTOR ... ] [ classid CLASSID ] [ skip_hw ]

Where: SELECTOR := SAMPLE SAMPLE ...
       SAMPLE := { ip | ip6 | u{32|16|8} } SAMPLE_ARGS
       FILTERID := X:Y:Z

NOTE: CLASSID is parsed at hexadecimal input.";

/// The last number of a hash table; the next one is 1. The printed number is higher by [`FIRST_NODE`].
pub(super) const LAST_TABLE: u16 = 0x7fe;
/// The first printed number of tables, and of rules without a given handle.
const FIRST_NODE: u32 = 0x800;
const LAST_NODE: u32 = 0xfff;

/// A handle `TABLE:BUCKET:NODE`; parts not given are 0.
#[derive(Debug, Clone, Copy, Default)]
struct Id {
    table: u32,
    bucket: u32,
    node: u32,
}

/// A rule as its text describes it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    id: Option<Id>,
    options: bool,
    keys: Option<Vec<KeyMatch>>,
    classid: Option<Handle>,
    skip_hw: bool,
    pub(super) actions: Actions,
}

/// A word to match, its mask, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyMatch {
    value: u32,
    mask: u32,
    offset: i32,
    nexthdr: bool,
}

pub(super) fn parse(handle: Option<&str>, words: &mut Words<'_>) -> Result<Rule, ParseError> {
    let id = handle.map(parse_id).transpose()?;
    let (options, actions) = (words.peek().is_some(), Actions::default());
    let mut rule = Rule { id, options, keys: None, classid: None, skip_hw: false, actions };
    let mut selector = Selector::default();
    while let Some(word) = words.next_word() {
        match word {
            "match" => {
                selector.parse(words)?;
                rule.keys = Some(Vec::new());
            }
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "skip_hw" => rule.skip_hw = true,
            "action" => rule.actions.parse(words)?,
            "police" => rule.actions.parse_police(words)?,
            "ht" | "link" | "hashkey" | "offset" | "divisor" | "order" | "sample" => {
                let error = ParseError::new(format!("What is \"{word}\"?")).with_usage(USAGE);
                return Err(
                    error.with_remedy("there is one hash table a pref: flower scales to thousands of rules")
                );
            }
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    if let Some(keys) = &mut rule.keys {
        *keys = selector.keys;
    }
    Ok(rule)
}

fn parse_id(word: &str) -> Result<Id, ParseError> {
    let wrong = || {
        let error = ParseError::new("Illegal filter ID");
        error.with_remedy(format!("\"{word}\" is no handle such as 800::801 or ::801"))
    };
    let mut parts =
        word.split(':').map(|part| if part.is_empty() { Some(0) } else { radix_number(part, 16) });
    let mut next = |most| match parts.next() {
        None => Ok(0),
        Some(part) => part.filter(|&part| part <= most).ok_or_else(wrong),
    };
    let id = Id { table: next(0xfff)?, bucket: next(0xff)?, node: next(LAST_NODE)? };
    if !word.contains(':') || parts.next().is_some() { Err(wrong()) } else { Ok(id) }
}

struct Entry {
    keys: Vec<KeyMatch>,
    class: Option<Handle>,
    skip_hw: bool,
    actions: Actions,
}

impl Entry {
    /// Whether a match ends the search (`TC_U32_TERMINAL`).
    fn is_terminal(&self) -> bool {
        self.class.is_some() || !self.actions.is_empty()
    }
}

/// The rules of a pref.
pub(super) struct U32 {
    table: u16,
    /// The rules by node, which is the order of comparison.
    rules: BTreeMap<u32, Entry>,
    /// The nodes of all rules.
    nodes: Handles,
}

impl U32 {
    pub(super) fn new(table: u16) -> Self {
        Self { table, rules: BTreeMap::new(), nodes: Handles::default() }
    }

    /// Returns the number of the hash table, from 0.
    pub(super) fn table(&self) -> u16 {
        self.table
    }

    fn printed_table(&self) -> u32 {
        FIRST_NODE + u32::from(self.table)
    }

    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let (data, network) = (frame.packet.data(), frame.network_offset());
        let matches = |key: &KeyMatch| {
            word_at(data, network, key.offset).is_some_and(|word| word & key.mask == key.value)
        };
        let matching = |rule: &&Entry| rule.is_terminal() && rule.keys.iter().all(matches);
        self.rules.values().filter(matching).find_map(|rule| frame.choose(rule.class, &rule.actions))
    }

    /// Iterates over the classes that rules choose.
    pub(super) fn classids(&self) -> impl Iterator<Item = Handle> {
        self.rules.values().filter_map(|rule| rule.class)
    }

    pub(super) fn set(&mut self, rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let Id { table, bucket, node } = rule.id.unwrap_or_default();
        let own = table == 0 || table == self.printed_table();
        // Only a full handle names an existing rule.
        let exists = table == self.printed_table() && bucket == 0 && self.rules.contains_key(&node);
        if exists {
            mode.admit(true)?;
            if let Some(entry) = self.rules.get_mut(&node) {
                // As in the kernel, a change sets the class and keeps the keys.
                entry.class = rule.classid.filter(|&class| class != Handle::UNSPEC).or(entry.class);
                entry.actions = rule.actions;
            }
            return Ok(());
        }
        mode.admit(false)?;
        if !rule.options && rule.id.is_none() {
            return Ok(());
        }
        if !own {
            let error = ParseError::new("Error: cls_u32: Handle specified hash table address mismatch.");
            return Err(error.with_remedy(format!("this pref's is {:x}:", self.printed_table())));
        }
        let Some(keys) = rule.keys else {
            let error = ParseError::new("Error: cls_u32: Selector not specified.");
            return Err(error.with_remedy("say what to match: match u32 0 0 is everything"));
        };
        let full = |remedy| ParseError::new("RTNETLINK answers: No space left on device").with_remedy(remedy);
        if bucket != 0 {
            return Err(full("its hash table has bucket 0 only"));
        }
        let node = match node {
            0 => self.free_node().ok_or_else(|| full("a pref has 4095 rules: use another, or flower"))?,
            node if self.rules.contains_key(&node) => {
                return Err(full("there is such a rule: to change it, give its whole handle"));
            }
            node => node,
        };
        let class = rule.classid.filter(|&class| class != Handle::UNSPEC);
        self.nodes.insert(node);
        self.rules.insert(node, Entry { keys, class, skip_hw: rule.skip_hw, actions: rule.actions });
        Ok(())
    }

    fn free_node(&self) -> Option<u32> {
        let within = |first, last| self.nodes.lowest_free(first).filter(|&node| node <= last);
        within(FIRST_NODE, LAST_NODE).or_else(|| within(1, FIRST_NODE - 1))
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        let Some(id) = rule.id else { return Deleted::Table };
        let own = id.bucket == 0 && id.table == self.printed_table();
        match own.then(|| self.rules.remove(&id.node)).flatten() {
            None => Deleted::NotThere,
            Some(_) => {
                self.nodes.remove(id.node);
                Deleted::Done { last: self.rules.is_empty() }
            }
        }
    }

    pub(super) fn rules(&self, style: Style, now: Nanos) -> Vec<Shown> {
        let table = self.printed_table();
        let mut head = Options::new(style);
        let show = |(&node, rule): (&u32, &Entry)| {
            let mut shown = Shown::new(show(table, node, rule, style), &rule.actions, now);
            shown.separate(if rule.actions.is_old() { "\n" } else { "" });
            shown
        };
        if style.input {
            return self.rules.iter().map(show).collect();
        }
        let handle = format!("{table:x}:{}", raw(table, 0, style));
        head.put("fh", handle.as_str(), format_args!("fh {handle}"));
        head.put("ht_divisor", 1, "ht divisor 1").end_blank();
        std::iter::once(Shown::plain(head)).chain(self.rules.iter().map(show)).collect()
    }
}

/// Reads the four bytes at an offset from the network header; bytes in front of the packet are 0. Returns `None` beyond the
/// packet's end.
fn word_at(data: &[u8], network: usize, offset: i32) -> Option<u32> {
    let start = i64::try_from(network).ok()? + i64::from(offset);
    let mut word = [0; 4];
    for (at, byte) in (start..).zip(&mut word) {
        if let Ok(at) = usize::try_from(at) {
            *byte = *data.get(at)?;
        }
    }
    Some(u32::from_be_bytes(word))
}

/// Returns the handle as one number, for [`Style::raw`].
fn raw(table: u32, node: u32, style: Style) -> String {
    if style.raw { format!("[{:08x}]", table << 20 | node) } else { String::new() }
}

fn show(table: u32, node: u32, rule: &Entry, style: Style) -> Options {
    let mut options = Options::new(style);
    if style.input {
        options.text_only(format_args!("handle {table:x}::{node:x}"));
        for KeyMatch { value, mask, offset, nexthdr } in &rule.keys {
            let from = if *nexthdr { "nexthdr+" } else { "" };
            options.text_only(format_args!("match u32 {value:#x} {mask:#x} at {from}{offset}"));
        }
        if let Some(class) = rule.class {
            options.text_only(format_args!("flowid {class}"));
        }
        if rule.skip_hw {
            options.flag("skip_hw");
        }
        return options;
    }
    let handle = format!("{table:x}::{node:x}{}", raw(table, node, style));
    options.put("fh", handle.as_str(), format_args!("fh {handle}")).number("order", node.into());
    options.put("key_ht", format!("{table:x}"), format_args!("key ht {table:x}")).put("bkt", "0", "bkt 0");
    if let Some(class) = rule.class {
        options.put("flowid", class.to_string(), format_args!("*flowid {class}"));
    } else if rule.is_terminal() {
        options.text_only("terminal flowid");
    }
    if rule.skip_hw {
        options.flag("skip_hw");
    }
    options.flag("not_in_hw").end_blank();
    let mut matches: Vec<Value> = Vec::new();
    for KeyMatch { value, mask, offset, nexthdr } in &rule.keys {
        let from = if *nexthdr { "nexthdr+" } else { "" };
        options.text_only(format_args!("\n  match {value:08x}/{mask:08x} at {from}{offset}"));
        let (value, mask) = (format!("{value:x}"), format!("{mask:x}"));
        matches.push(json!({"value": value, "mask": mask, "offmask": from, "off": offset}));
    }
    match matches.len() {
        0 => {}
        1 => drop(options.json_only("match", matches.remove(0))),
        _ => drop(options.json_only("match", matches)),
    }
    options
}

#[cfg(test)]
mod tests;
