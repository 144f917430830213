//! fw: chooses by the packet's mark ([`Packet::set_mark`](txq_core::packet::Packet::set_mark)).
//!
//! A rule's handle is the mark to match, under the mask that all rules of a pref share. A pref that never had rules takes
//! the mark itself as the class, if its major number is this qdisc's or 0. The kernel's counterpart is `cls_fw`; `indev` is
//! missing, because packets here come from senders.

use std::collections::BTreeMap;

use super::frame::Frame;
use super::header::{classid, invalid, unknown_word};
use super::reading::Reading;
use super::{Choice, Deleted, FilterInfo, Mode, Shown};
use crate::generic::action::Actions;
use crate::json::json;
use crate::tc::{Handle, Options, ParseError, Style, Words, c_number, full};
use txq_core::arch::{Arch, Nanos};

const WORDS: [&str; 4] = ["classid", "flowid", "action", "police"];
const USAGE: &str = "Usage: ... fw [ classid CLASSID ] [ indev DEV ] [ action ACTION_SPEC ]
\tCLASSID := Push matching packets to the class identified by CLASSID with format X:Y
\t\tCLASSID is parsed as hexadecimal input.
\tDEV := specify device for incoming device classification.
\tACTION_SPEC := Apply an action on matching packets.
\tNOTE: handle is represented as HANDLE[/FWMASK].
\t\tFWMASK is 0xffffffff by default.";

/// A rule as its text describes it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) handle: u32,
    mask: Option<u32>,
    options: bool,
    classid: Option<Handle>,
    pub(super) actions: Actions,
}

pub(super) fn parse(handle: Option<&str>, words: &mut Words<'_>) -> Result<Rule, ParseError> {
    let number = |word: &str, problem: &str| {
        let remedy = format!("\"{word}\" is no number: use MARK or MARK/MASK");
        c_number(word).ok_or_else(|| ParseError::new(problem).with_remedy(remedy))
    };
    let (mut mark, mut mask) = (0, None);
    if let Some(word) = handle {
        let (first, second) =
            word.split_once('/').map_or((word, None), |(first, second)| (first, Some(second)));
        mark = number(first, "Illegal \"handle\"")?;
        mask = second.map(|word| number(word, "Illegal \"handle\" mask")).transpose()?;
    }
    let mut rule = Rule {
        handle: mark,
        mask,
        options: words.peek().is_some(),
        classid: None,
        actions: Actions::default(),
    };
    while let Some(word) = words.next_word() {
        match full(word, &["classid", "flowid", "police", "action"]) {
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "action" => rule.actions.parse(words)?,
            "police" => rule.actions.parse_police(words)?,
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    Ok(rule)
}

#[derive(Default)]
struct Entry {
    class: Option<Handle>,
    actions: Actions,
}

/// The rules of a pref.
pub(super) struct Fw {
    parent: Handle,
    mask: u32,
    classes: BTreeMap<u32, Entry>,
    /// Whether there has ever been a rule: then marks are no longer classes.
    ruled: bool,
}

impl Fw {
    pub(super) fn new(parent: Handle) -> Self {
        Self { parent, mask: u32::MAX, classes: BTreeMap::new(), ruled: false }
    }

    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let mark = frame.mark();
        if self.ruled {
            let rule = self.classes.get(&(mark & self.mask))?;
            return frame.choose(rule.class, &rule.actions);
        }
        let class = Handle(mark);
        (mark != 0 && [0, self.parent.major()].contains(&class.major())).then_some(Choice::Class(class))
    }

    /// Iterates over the classes that rules choose.
    pub(super) fn classids(&self) -> impl Iterator<Item = Handle> {
        self.classes.values().filter_map(|rule| rule.class)
    }

    pub(super) fn set(&mut self, rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let exists = rule.handle != 0 && self.classes.contains_key(&rule.handle);
        mode.admit(exists)?;
        if !rule.options {
            return match rule.handle {
                0 => Ok(()),
                _ => Err(invalid("a mark wants a classid")),
            };
        }
        if rule.handle == 0 {
            return Err(invalid("a classid wants a mark: handle MARK"));
        }
        let mask = rule.mask.unwrap_or(u32::MAX);
        if self.ruled && mask != self.mask {
            return Err(invalid(format!("all rules of this pref have the mask {:#x}", self.mask)));
        }
        (self.mask, self.ruled) = (mask, true);
        let entry = self.classes.entry(rule.handle).or_default();
        entry.class = rule.classid.or(entry.class);
        if !rule.actions.is_empty() {
            entry.actions = rule.actions;
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        if rule.handle == 0 {
            return Deleted::Table;
        }
        match self.classes.remove(&rule.handle) {
            None => Deleted::NotThere,
            Some(_) => Deleted::Done { last: self.classes.is_empty() },
        }
    }

    /// Reads the rules, in the order of their marks. A rule without a class and actions has no parameters: tc prints it empty.
    pub(super) fn rules(&self, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        let show = |mark: u32, rule: &Entry| {
            let mut options = Options::new(style);
            let class = rule.class.filter(|&class| class != Handle::UNSPEC);
            if class.is_none() && rule.actions.is_empty() {
                return Shown::plain(options);
            }
            let handle = match self.mask {
                u32::MAX => format!("{mark:#x}"),
                mask => format!("{mark:#x}/{mask:#x}"),
            };
            let own = json!({ "mark": format!("{mark:#x}"), "mask": format!("{:#x}", self.mask) });
            options.put("fw", own, format_args!("handle {handle}"));
            if let Some(class) = class {
                options.put("classid", class.to_string(), format_args!("classid {class}"));
            }
            let mut shown = Shown::new(options.end_blank().clone(), &rule.actions, now);
            // tc breaks the line before the list, and not before the old police.
            shown.separate(if rule.actions.is_old() { "" } else { "\n" });
            shown
        };
        self.classes.iter().for_each(|(&mark, rule)| reading.put(head, mark, || show(mark, rule)));
    }
}
