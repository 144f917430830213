//! matchall: matches every packet of the protocol.
//!
//! A pref has one rule, which can be deleted but not changed. The kernel's counterpart is `cls_matchall`, with the same
//! limits.

use std::cell::Cell;

use super::frame::Frame;
use super::header::{classid, file_exists, invalid, number_of, unknown_word};
use super::reading::Reading;
use super::{Choice, Deleted, FilterInfo, Mode, Shown};
use crate::generic::action::Actions;
use crate::tc::{Handle, Options, ParseError, Style, Words, full};
use txq_core::arch::{Arch, Nanos};

const WORDS: [&str; 4] = ["classid", "flowid", "action", "skip_hw"];
const USAGE: &str = "Usage: ... matchall [skip_sw | skip_hw]
                 [ action ACTION_SPEC ] [ classid CLASSID ]

Where: SELECTOR := SAMPLE SAMPLE ...
       FILTERID := X:Y:Z
       ACTION_SPEC := ... look at individual actions

NOTE: CLASSID is parsed as hexadecimal input.";

/// A rule as its text describes it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) handle: u32,
    /// Whether the text has options.
    options: bool,
    classid: Option<Handle>,
    skip_hw: bool,
    pub(super) actions: Actions,
}

pub(super) fn parse(handle: Option<&str>, words: &mut Words<'_>) -> Result<Rule, ParseError> {
    let handle = number_of(handle)?;
    let (options, actions) = (words.peek().is_some(), Actions::default());
    let mut rule = Rule { handle, options, classid: None, skip_hw: false, actions };
    while let Some(word) = words.next_word() {
        match full(word, &["classid", "action"]) {
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "skip_hw" => rule.skip_hw = true,
            "action" => rule.actions.parse(words)?,
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    Ok(rule)
}

/// The rule of a pref, with its hits.
pub(super) struct Matchall {
    rule: Option<Rule>,
    hits: Cell<u64>,
}

impl Matchall {
    pub(super) fn new() -> Self {
        Self { rule: None, hits: Cell::new(0) }
    }

    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let rule = self.rule.as_ref()?;
        frame.count(&self.hits, frame.packet.segs());
        frame.choose(rule.classid, &rule.actions)
    }

    /// Iterates over the classes that rules choose.
    pub(super) fn classids(&self) -> impl Iterator<Item = Handle> {
        self.rule.iter().filter_map(|rule| rule.classid)
    }

    pub(super) fn set(&mut self, rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let exists = self.rule.as_ref().is_some_and(|old| old.handle == rule.handle);
        if !rule.options {
            return Err(invalid("matchall wants a classid"));
        }
        mode.admit(exists)?;
        if self.rule.is_some() {
            return Err(file_exists("a pref has one rule of matchall: delete it, or give another pref"));
        }
        self.rule = Some(Rule { handle: rule.handle.max(1), ..rule });
        Ok(())
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        match &self.rule {
            _ if rule.handle == 0 => Deleted::Table,
            Some(old) if old.handle == rule.handle => Deleted::Done { last: true },
            _ => Deleted::NotThere,
        }
    }

    /// Reads the rule, if there is one.
    pub(super) fn rules(&self, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        let show = |rule: &Rule| {
            let mut options = Options::new(style);
            options.put("handle", rule.handle, format_args!("handle {:#x}", rule.handle));
            if let Some(class) = rule.classid.filter(|&class| class != Handle::UNSPEC) {
                options.put("flowid", class.to_string(), format_args!("flowid {class}"));
            }
            if style.input {
                if rule.skip_hw {
                    options.flag("skip_hw");
                }
                return Shown::new(options, &rule.actions, now);
            }
            options.end_blank();
            if rule.skip_hw {
                options.put("skip_hw", true, "\n  skip_hw");
            }
            options.put("not_in_hw", true, "\n  not_in_hw");
            Shown::new(options, &rule.actions, now).with_hits(self.hits.get())
        };
        self.rule.iter().for_each(|rule| reading.put(head, rule.handle, || show(rule)));
    }
}
