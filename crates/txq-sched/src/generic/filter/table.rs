//! The rules of a pref, whose kind is one of those that texts can name, or a closure.

use txq_core::arch::Arch;

use super::basic::Basic;
use super::closure::Closure;
use super::flow::Flow;
use super::flower::Flower;
use super::frame::Frame;
use super::fw::Fw;
use super::header::{wrong_kind, wrong_protocol};
use super::matchall::Matchall;
use super::show::FilterInfo;
use super::{Choice, Mode, basic, flow, flower, fw, matchall, u32};
use crate::generic::action::Actions;
use crate::tc::{Handle, ParseError};

/// A rule as a text describes it, with its handle.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    Fw(fw::Rule),
    Matchall(matchall::Rule),
    Flower(Box<flower::Rule>),
    U32(Box<u32::Rule>),
    Basic(Box<basic::Rule>),
    Flow(Box<flow::Rule>),
}

impl Rule {
    pub(super) fn actions(&self) -> &Actions {
        match self {
            Self::Fw(rule) => &rule.actions,
            Self::Matchall(rule) => &rule.actions,
            Self::Flower(rule) => &rule.actions,
            Self::U32(rule) => &rule.actions,
            Self::Basic(rule) => &rule.actions,
            Self::Flow(rule) => &rule.actions,
        }
    }

    /// Returns the handle as a number; 0 for none.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Fw(rule) => rule.handle,
            Self::Matchall(rule) => rule.handle,
            Self::Flower(rule) => rule.handle,
            Self::U32(rule) => rule.id.0,
            Self::Basic(rule) => rule.handle,
            Self::Flow(rule) => rule.handle,
        }
    }

    pub(super) fn actions_mut(&mut self) -> &mut Actions {
        match self {
            Self::Fw(rule) => &mut rule.actions,
            Self::Matchall(rule) => &mut rule.actions,
            Self::Flower(rule) => &mut rule.actions,
            Self::U32(rule) => &mut rule.actions,
            Self::Basic(rule) => &mut rule.actions,
            Self::Flow(rule) => &mut rule.actions,
        }
    }
}

/// The rules of a pref.
pub(super) enum Table<A: Arch> {
    Fw(Fw),
    Matchall(Matchall),
    Flower(Flower),
    /// The rules are in [`Filters`](super::Filters).
    U32(u32::Root),
    Basic(Basic),
    Flow(Flow),
    Closure(Closure<A>),
}

impl<A: Arch> Table<A> {
    /// Returns the name of the kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Fw(_) => "fw",
            Self::Matchall(_) => "matchall",
            Self::Flower(_) => "flower",
            Self::U32(_) => "u32",
            Self::Basic(_) => "basic",
            Self::Flow(_) => "flow",
            Self::Closure(_) => "closure",
        }
    }

    /// Returns what the first matching rule chooses, or `None` if no rule matches. A rule without a class chooses
    /// [`Handle::UNSPEC`], except in u32, which skips it if it has no actions either.
    #[inline]
    pub(super) fn classify(&self, u32: &u32::Tables, frame: &Frame<'_, A>) -> Option<Choice> {
        match self {
            Self::Fw(table) => table.classify(frame),
            Self::Matchall(table) => table.classify(frame),
            Self::Flower(table) => table.classify(frame),
            Self::U32(root) => u32.classify(*root, frame),
            Self::Basic(table) => table.classify(frame),
            Self::Flow(table) => table.classify(frame),
            Self::Closure(closure) => closure(frame.packet).map(Choice::Class),
        }
    }

    /// Adds, changes or replaces a rule of the table's kind.
    pub(super) fn set(
        &mut self,
        u32: &mut u32::Tables,
        pref: u16,
        rule: Rule,
        mode: Mode,
    ) -> Result<(), ParseError> {
        match (self, rule) {
            (Self::Fw(table), Rule::Fw(rule)) => table.set(rule, mode),
            (Self::Matchall(table), Rule::Matchall(rule)) => table.set(rule, mode),
            (Self::Flower(table), Rule::Flower(rule)) => table.set(*rule, mode),
            (Self::U32(root), Rule::U32(rule)) => u32.set(*root, pref, *rule, mode),
            (Self::Basic(table), Rule::Basic(rule)) => table.set(*rule, mode),
            (Self::Flow(table), Rule::Flow(rule)) => table.set(*rule, mode),
            (table, _) => Err(wrong_kind(table.kind())),
        }
    }

    /// Deletes the rule with the handle of `rule`; returns whether it existed and whether it was the last. `alone` says
    /// whether no other pref has this kind.
    pub(super) fn delete(
        &mut self,
        u32: &mut u32::Tables,
        rule: &Rule,
        alone: bool,
    ) -> Result<Deleted, ParseError> {
        Ok(match (self, rule) {
            (Self::Fw(table), Rule::Fw(rule)) => table.delete(rule),
            (Self::Matchall(table), Rule::Matchall(rule)) => table.delete(rule),
            (Self::Flower(table), Rule::Flower(rule)) => table.delete(rule),
            (Self::U32(root), Rule::U32(rule)) => u32.delete(*root, rule, alone)?,
            (Self::Basic(table), Rule::Basic(rule)) => table.delete(rule),
            (Self::Flow(table), Rule::Flow(rule)) => table.delete(rule),
            _ => Deleted::NotThere,
        })
    }
}

/// The result of deleting a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deleted {
    /// Nothing deleted yet: the text names no rule, so it means the whole table.
    Table,
    NotThere,
    Done {
        last: bool,
    },
}

/// A pref: its protocol and its rules (the kernel's `tcf_proto`).
pub(super) struct Proto<A: Arch> {
    pub(super) pref: u16,
    pub(super) protocol: u16,
    pub(super) table: Table<A>,
}

impl<A: Arch> Proto<A> {
    /// Returns an error if a command means another protocol or kind.
    pub(super) fn admit(
        &self,
        pref: u16,
        protocol: Option<u16>,
        kind: Option<&str>,
    ) -> Result<(), ParseError> {
        if protocol.is_some_and(|protocol| protocol != self.protocol) {
            return Err(wrong_protocol(pref, self.protocol));
        }
        match kind.is_some_and(|kind| kind != self.table.kind()) {
            true => Err(wrong_kind(self.table.kind())),
            false => Ok(()),
        }
    }

    /// Returns the line of the pref.
    pub(super) fn info(&self, parent: Option<Handle>) -> FilterInfo {
        let (kind, pref, protocol) = (self.table.kind(), self.pref, self.protocol);
        FilterInfo { kind, parent, protocol, pref, options: None, hits: None, actions: Vec::new() }
    }
}

pub(super) fn no_handle() -> ParseError {
    let error = ParseError::new("Error: Specified filter handle not found.");
    error.with_remedy("`filter show` lists the handles")
}
