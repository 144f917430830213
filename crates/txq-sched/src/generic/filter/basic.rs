//! basic: matches an expression (ematch), or every packet without one.
//!
//! The latest rule of a pref is tried first. A change replaces all of a rule but its handle. The kernel's counterpart is
//! `cls_basic`, with the same order.

use super::ematch::Expr;
use super::frame::Frame;
use super::handles::Handles;
use super::header::{classid, invalid, number_of, unknown_word};
use super::reading::Reading;
use super::{Choice, Deleted, FilterInfo, Mode, Shown};
use crate::generic::action::Actions;
use crate::tc::{Handle, Options, ParseError, Style, Words, full};
use txq_core::arch::{Arch, Nanos};

const WORDS: [&str; 5] = ["match", "classid", "flowid", "action", "police"];
const USAGE: &str = "Usage: ... basic [ match EMATCH_TREE ]
                 [ action ACTION_SPEC ] [ classid CLASSID ]

Where:\tSELECTOR := SAMPLE SAMPLE ...
\tFILTERID := X:Y:Z
\tACTION_SPEC := ... look at individual actions

NOTE: CLASSID is parsed as hexadecimal input.";

/// A rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) handle: u32,
    options: bool,
    expr: Option<Expr>,
    classid: Option<Handle>,
    pub(super) actions: Actions,
}

pub(super) fn parse(handle: Option<&str>, words: &mut Words<'_>) -> Result<Rule, ParseError> {
    let (handle, options) = (number_of(handle)?, words.peek().is_some());
    let mut rule = Rule { handle, options, expr: None, classid: None, actions: Actions::default() };
    while let Some(word) = words.next_word() {
        match full(word, &["match", "classid", "action", "police"]) {
            "match" => rule.expr = Some(Expr::parse(words)?),
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "action" => rule.actions.parse(words)?,
            "police" => rule.actions.parse_police(words)?,
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    Ok(rule)
}

/// The rules of a pref.
#[derive(Default)]
pub(super) struct Basic {
    /// The latest first.
    rules: Vec<Rule>,
    handles: Handles,
}

impl Basic {
    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let matching = |rule: &&Rule| rule.expr.as_ref().is_none_or(|expr| expr.matches(frame));
        self.rules.iter().filter(matching).find_map(|rule| frame.choose(rule.classid, &rule.actions))
    }

    /// Iterates over the classes that rules choose.
    pub(super) fn classids(&self) -> impl Iterator<Item = Handle> {
        self.rules.iter().filter_map(|rule| rule.classid)
    }

    fn place(&self, handle: u32) -> Option<usize> {
        self.rules.iter().position(|rule| rule.handle == handle)
    }

    pub(super) fn set(&mut self, rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let found = self.place(rule.handle);
        mode.admit(found.is_some())?;
        if !rule.options {
            return Err(invalid("basic wants a match or a classid"));
        }
        if let Some(at) = found {
            self.rules[at] = rule;
            return Ok(());
        }
        let handle = match rule.handle {
            0 => self.handles.lowest_free(1).ok_or_else(|| invalid("all handles are in use"))?,
            handle => handle,
        };
        self.handles.insert(handle);
        self.rules.insert(0, Rule { handle, ..rule });
        Ok(())
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        if rule.handle == 0 {
            return Deleted::Table;
        }
        match self.place(rule.handle) {
            None => Deleted::NotThere,
            Some(at) => {
                self.handles.remove(rule.handle);
                self.rules.remove(at);
                Deleted::Done { last: self.rules.is_empty() }
            }
        }
    }

    /// Reads the rules, in tc's order.
    pub(super) fn rules(&self, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        // Commands restore the oldest rule first.
        let mut rules: Vec<_> = self.rules.iter().collect();
        if style.input {
            rules.reverse();
        }
        let show = |rule: &Rule| {
            let mut options = Options::new(style);
            let handle = format!("{:x}", rule.handle);
            options.put("handle", handle.as_str(), format_args!("handle 0x{handle}"));
            if let Some(class) = rule.classid.filter(|&class| class != Handle::UNSPEC) {
                options.put("flowid", class.to_string(), format_args!("flowid {class}"));
            }
            if style.input {
                if let Some(expr) = &rule.expr {
                    options.text_only(format_args!("match {expr}"));
                } else if rule.classid.is_none() && rule.actions.is_empty() {
                    options.text_only("flowid none");
                }
                return Shown::new(options, &rule.actions, now);
            }
            options.end_blank();
            if let Some(expr) = &rule.expr {
                let mut text = String::new();
                expr.show(&mut text);
                options.append(&text).json_only("match", expr.to_string());
            }
            let mut shown = Shown::new(options, &rule.actions, now);
            shown.separate(if rule.actions.is_old() && rule.expr.is_some() { "\n" } else { "" });
            shown
        };
        rules.into_iter().for_each(|rule| reading.put(head, rule.handle, || show(rule)));
    }
}
