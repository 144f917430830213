//! Filters: the choice of a packet's class.
//!
//! A qdisc with classes looks a packet up in its [`Filters`]. They are tables in the order of their `pref`, the lowest
//! first. Each table has one kind and one protocol; the first table that matches the packet chooses the class. The kinds are
//! tc's: [`flower`](mod@flower) for header fields, [`fw`] for marks, [`u32`](mod@u32) for words at offsets and for hash tables,
//! [`basic`] for expressions, [`flow`] for classes computed from fields, and [`matchall`]. [`closure`] is a function of the
//! program. Texts, errors and output are those of `tc filter`.
//!
//! The owner of the qdisc owns its filters, so a lookup takes no lock and no atomic operation. The kernel's counterpart is
//! `tcf_classify` with `struct tcf_proto`. A rule may also have actions (`crate::generic::action`): those of a hook of a device
//! ([`Filters::for_hook`]) change packets and send them to other devices, those of a qdisc only measure and drop.
//! Differences: chain 0 is the only one, and there are no hardware and no shared blocks. Only matchall counts its hits, as in kernels without `CONFIG_CLS_U32_PERF`.

#![forbid(unsafe_code)]

pub mod basic;
pub mod closure;
mod ematch;
pub mod flow;
pub mod flower;
mod frame;
pub mod fw;
mod handles;
mod header;
pub mod matchall;
mod proto;
mod reading;
mod show;
mod table;
pub mod u32;
mod untagged;

use std::fmt;

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::clock::Clock;
use txq_core::packet::Packet;

use crate::tc::{Handle, ParseError, Style, Verb, Words};

use basic::Basic;
use closure::Closure;
use flow::Flow;
use flower::Flower;
use frame::Frame;
use fw::Fw;
use matchall::Matchall;

use header::wrong_kind;
use reading::Reading;

pub use crate::generic::action::{ActionInfo, Effects, Indexes};
pub use header::Header;
use show::Shown;
#[cfg(feature = "json")]
pub use show::filters_json;
pub use show::{FilterInfo, filters_text};
pub(crate) use table::Rule;
use table::{Deleted, Proto, Table, no_handle};

/// The protocol that matches every packet (`ETH_P_ALL`).
const ALL: u16 = 3;
/// The pref of the first filter added without one. Later ones get one less than the lowest pref from [`AUTO_FROM`] up.
const AUTO: u16 = 0xc000;
const AUTO_FROM: u16 = 0x8000;

/// What filters choose for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A class. It need not exist, nor belong to the qdisc.
    Class(Handle),
    /// The packet is dropped (`TC_ACT_SHOT`).
    Drop,
    /// Another device takes the packet (`TC_ACT_STOLEN`).
    Stolen,
    /// The packet begins anew at the first filter (`TC_ACT_RECLASSIFY`).
    Again,
}

/// How often a packet begins anew at the first filter before it is dropped (`max_reclassify_loop`).
const MAX_RECLASSIFY: usize = 16;

/// Which rules a command may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only rules that do not exist (`tc filter add`).
    Add,
    /// Only rules that exist (`tc filter change`).
    Change,
    /// Both (`tc filter replace`).
    Replace,
}

impl Mode {
    /// Returns the mode of a verb that writes rules.
    pub fn of(verb: Verb) -> Self {
        match verb {
            Verb::Change => Self::Change,
            Verb::Replace => Self::Replace,
            Verb::Add | Verb::Delete => Self::Add,
        }
    }

    /// Returns an error if the command may not write a rule that `exists`, or does not.
    fn admit(self, exists: bool) -> Result<(), ParseError> {
        match self {
            Self::Add if exists => Err(ParseError::new("Error: Filter already exists.")
                .with_remedy("change or replace it, or give another handle")),
            Self::Change if !exists => {
                let error = "Error: Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter.";
                Err(ParseError::new(error).with_remedy("there is none to change: add it"))
            }
            _ => Ok(()),
        }
    }
}

/// The kinds that texts can name.
const KINDS: [&str; 6] = ["basic", "flow", "flower", "fw", "matchall", "u32"];

/// A parsed command: header and rule.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The header.
    pub header: Header<'a>,
    rule: Option<Rule>,
    indexes: Indexes,
}

impl<'a> Request<'a> {
    /// Parses a whole text, such as `parent 1: protocol ip pref 1 flower dst_port 53 classid 1:1`.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        let mut words = Words::split(text);
        let header = Header::parse(&mut words)?;
        let handle = header.handle;
        let rule = match header.kind {
            None if handle.is_some() => {
                let error = ParseError::new("Must specify filter type when using \"handle\"");
                return Err(error.with_remedy(format!("add one of {}", KINDS.join(", "))));
            }
            None => None,
            Some("fw") => Some(Rule::Fw(fw::parse(handle, &mut words)?)),
            Some("matchall") => Some(Rule::Matchall(matchall::parse(handle, &mut words)?)),
            Some("flower") => {
                let protocol = header.protocol.unwrap_or(ALL);
                Some(Rule::Flower(Box::new(flower::parse(handle, protocol, &mut words)?)))
            }
            Some("basic") => Some(Rule::Basic(Box::new(basic::parse(handle, &mut words)?))),
            Some("flow") => Some(Rule::Flow(Box::new(flow::parse(handle, &mut words)?))),
            Some("u32") => Some(Rule::U32(Box::new(u32::parse(handle, &mut words)?))),
            // A program's closure is deleted by this name.
            Some("closure") => None,
            Some(kind) => return Err(header::unknown_kind(kind, words.peek(), &KINDS)),
        };
        Ok(Self { header, rule, indexes: Indexes::default() })
    }

    /// Takes the numbers of the rule's actions from those of a device.
    #[must_use]
    pub fn numbered(self, indexes: &Indexes) -> Self {
        Self { indexes: indexes.clone(), ..self }
    }

    /// Calls `f` with the name of each device that the rule's actions send to. `f` returns the number by which
    /// [`Effects`] name it.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn bind(&mut self, f: impl FnMut(&str) -> Result<u16, ParseError>) -> Result<(), ParseError> {
        self.rule.as_mut().map_or(Ok(()), |rule| rule.actions_mut().bind(f))
    }
}

/// The filters of a qdisc or of a class.
pub struct Filters<A: Arch = Native> {
    /// Sorted by pref; no two have the same.
    protos: Vec<Proto<A>>,
    /// The hash tables of all prefs of u32.
    u32: u32::Tables,
    /// Whether these are the filters of a hook, whose rules may have all actions.
    hook: bool,
}

impl<A: Arch> fmt::Debug for Filters<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filters").finish_non_exhaustive()
    }
}

impl<A: Arch> Default for Filters<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> Filters<A> {
    /// Returns an empty set of filters.
    #[inline(never)]
    pub fn new() -> Self {
        Self { protos: Vec::new(), u32: u32::Tables::default(), hook: false }
    }

    /// Returns an empty set of filters whose caller applies the [`Effects`] of all actions.
    #[inline(never)]
    pub fn for_hook() -> Self {
        Self { hook: true, ..Self::new() }
    }

    /// Whether there are no filters.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.protos.is_empty()
    }

    /// Returns what the first matching filter chooses, or `None` if no filter matches. The clock is read only for actions.
    #[inline]
    pub fn classify(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<Choice> {
        if self.is_empty() {
            return None;
        }
        self.choose(&Frame::new(packet, clock))
    }

    /// Returns what [`classify`](Filters::classify) would choose for a packet that is not here yet: counts nothing, and runs no action.
    pub(crate) fn foresee(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<Choice> {
        if self.is_empty() {
            return None;
        }
        self.choose(&Frame::foreseen(packet, clock))
    }

    /// As [`class_of`](Filters::class_of), for a packet that is not here yet.
    pub(crate) fn foresee_class(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<Handle> {
        match self.foresee(packet, clock)? {
            Choice::Class(class) => Some(class),
            _ => None,
        }
    }

    /// As [`classify`](Filters::classify), for a qdisc that drops packets without a class.
    pub(crate) fn class_of(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<Handle> {
        match self.classify(packet, clock)? {
            Choice::Class(class) => Some(class),
            _ => None,
        }
    }

    /// As [`classify`](Filters::classify); also returns what the actions have changed, which the caller applies.
    #[inline(never)]
    pub fn classify_and_act(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> (Option<Choice>, Effects) {
        let frame = Frame::new(packet, clock);
        (self.choose(&frame), frame.effects.get())
    }

    #[inline]
    fn choose(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let protocol = frame.protocol();
        let mine = |proto: &&Proto<A>| proto.protocol == protocol || proto.protocol == ALL;
        let choose =
            || self.protos.iter().filter(mine).find_map(|proto| proto.table.classify(&self.u32, frame));
        match choose() {
            Some(Choice::Again) => {
                let last =
                    (0..MAX_RECLASSIFY).map(|_| choose()).find(|choice| *choice != Some(Choice::Again));
                last.unwrap_or(Some(Choice::Drop))
            }
            choice => choice,
        }
    }

    /// Whether a rule chooses this class (`tcf_bind_filter`). Closures do not count: their choices are unknown.
    pub(crate) fn names(&self, class: Handle) -> bool {
        let is_it = |named: Handle| named == class;
        self.protos.iter().any(|proto| match &proto.table {
            Table::Fw(table) => table.classids().any(is_it),
            Table::Matchall(table) => table.classids().any(is_it),
            Table::Flower(table) => table.classids().any(is_it),
            Table::Basic(table) => table.classids().any(is_it),
            // A flow computes its classes.
            Table::U32(_) | Table::Flow(_) | Table::Closure(_) => false,
        }) || self.u32.classids().any(is_it)
    }

    /// Adds, changes or replaces a rule; the filters belong to `parent`.
    #[inline(never)]
    pub fn set(&mut self, request: &Request<'_>, parent: Handle, mode: Mode) -> Result<(), ParseError> {
        let Header { pref, protocol, kind, .. } = request.header;
        // Without a protocol, tc takes that of the existing filter.
        let protocol = protocol.or((mode != Mode::Change).then_some(ALL));
        let pref = match pref.filter(|&pref| pref != 0) {
            Some(pref) => pref,
            None if mode == Mode::Change => {
                let error = ParseError::new("Error: Invalid filter command with priority of zero.");
                return Err(error.with_remedy("give the pref of the filter to change"));
            }
            None => self.free_pref()?,
        };
        let place = self.protos.binary_search_by_key(&pref, |proto| proto.pref);
        let mut rule = request.rule.clone();
        if let Some(rule) = &rule
            && !self.hook
            && !rule.actions().are_verdicts()
        {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(error.with_remedy(
                "a filter of a qdisc takes police and decisions: add skbedit and mirred to ingress or egress (clsact)",
            ));
        }
        if let Some(rule) = &mut rule {
            rule.actions_mut().install(&request.indexes, A::now())?;
        }
        let (Some(kind), true) = (kind, protocol.is_some() || place.is_ok()) else {
            let error = ParseError::new("Error: Filter kind and protocol must be specified.");
            return Err(error.with_remedy(format!("protocol ip|ipv6|all and one of {}", KINDS.join(", "))));
        };
        match place {
            Ok(at) => {
                let proto = &mut self.protos[at];
                proto.admit(pref, protocol, None)?;
                match rule.filter(|_| proto.table.kind() == kind) {
                    Some(rule) => proto.table.set(&mut self.u32, pref, rule, mode),
                    None => Err(wrong_kind(proto.table.kind())),
                }
            }
            Err(at) => {
                Mode::admit(mode, false)?;
                let mut table: Table<A> = match rule {
                    Some(Rule::Fw(_)) => Table::Fw(Fw::new(parent)),
                    Some(Rule::Matchall(_)) => Table::Matchall(Matchall::new()),
                    Some(Rule::Flower(_)) => Table::Flower(Flower::new()),
                    Some(Rule::U32(_)) => Table::U32(self.u32.add_root(pref)?),
                    Some(Rule::Basic(_)) => Table::Basic(Basic::default()),
                    Some(Rule::Flow(_)) => Table::Flow(Flow::new(parent)),
                    None => {
                        let error = ParseError::new("Error: TC classifier not found.");
                        return Err(error.with_remedy("a closure is added by NetDev::add_classifier"));
                    }
                };
                if let Some(rule) = rule
                    && let Err(error) = table.set(&mut self.u32, pref, rule, mode)
                {
                    self.end(&table);
                    return Err(error);
                }
                self.protos.insert(at, Proto { pref, protocol: protocol.unwrap_or(ALL), table });
                Ok(())
            }
        }
    }

    /// Adds a closure, for all protocols. A `pref` of 0 means a free one.
    #[inline(never)]
    pub fn add_closure(&mut self, pref: u16, closure: Closure<A>) -> Result<(), ParseError> {
        if self.hook {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(error.with_remedy("add it to the root qdisc: a hook calls no closures"));
        }
        let pref = if pref == 0 { self.free_pref()? } else { pref };
        match self.protos.binary_search_by_key(&pref, |proto| proto.pref) {
            Ok(_) => Mode::Add.admit(true),
            Err(at) => {
                let table = Table::Closure(closure);
                self.protos.insert(at, Proto { pref, protocol: ALL, table });
                Ok(())
            }
        }
    }

    /// Deletes one rule, all rules of a pref, or all filters.
    #[inline(never)]
    pub fn delete(&mut self, request: &Request<'_>) -> Result<(), ParseError> {
        let Header { pref, protocol, kind, handle, .. } = request.header;
        let Some(pref) = pref.filter(|&pref| pref != 0) else {
            if protocol.is_some() || kind.is_some() || handle.is_some() {
                let error = "Error: Cannot flush filters with protocol, handle or kind set.";
                return Err(ParseError::new(error).with_remedy("give the pref, or the parent alone for all"));
            }
            self.protos.clear();
            self.u32 = u32::Tables::default();
            return Ok(());
        };
        let at = self.place_of(pref)?;
        let alone = self.protos.iter().filter(|proto| matches!(proto.table, Table::U32(_))).count() == 1;
        self.protos[at].admit(pref, protocol, kind)?;
        let table = &mut self.protos[at].table;
        let done = match &request.rule {
            Some(rule) => table.delete(&mut self.u32, rule, alone)?,
            None => Deleted::Table,
        };
        match done {
            Deleted::NotThere => return Err(no_handle()),
            Deleted::Table | Deleted::Done { last: true } => {
                let proto = self.protos.remove(at);
                self.end(&proto.table);
            }
            Deleted::Done { last: false } => {}
        }
        Ok(())
    }

    /// Ends what a table has outside of itself.
    fn end(&mut self, table: &Table<A>) {
        if let Table::U32(root) = table {
            self.u32.remove_root(*root);
        }
    }

    /// Returns all filters, as `tc filter show` presents them. In the style of commands the hash tables of u32 come first.
    #[inline(never)]
    pub fn info(&self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        self.portion(0, usize::MAX, parent, style)
    }

    /// Returns the lines of [`info`](Filters::info) behind the first `skip`, `most` at most. Only these are written down, so a long list
    /// can be read in portions, between which packets are classified. It is whole if no command changes the filters meanwhile.
    #[inline(never)]
    pub fn portion(&self, skip: usize, most: usize, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        let (mut reading, now) = (Reading::lines(skip, most), A::now());
        if style.input {
            for (pref, shown) in self.u32.divisors(style) {
                let made_by = self.protos.iter().find(|proto| proto.pref == pref);
                // A table outlives its pref, and then another pref of u32 restores it.
                let any = || self.protos.iter().find(|proto| matches!(proto.table, Table::U32(_)));
                if let Some(proto) = made_by.or_else(any) {
                    reading.put(&proto.info(parent), 0, || shown);
                }
            }
        }
        for proto in &self.protos {
            if reading.is_over() {
                break;
            }
            let head = proto.info(parent);
            reading.head(head.clone());
            self.rules(proto, &head, style, now, &mut reading);
        }
        reading.list
    }

    /// Reads the rules of a pref, whose line is `head`.
    fn rules(&self, proto: &Proto<A>, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        match &proto.table {
            Table::Fw(table) => table.rules(head, style, now, reading),
            Table::Matchall(table) => table.rules(head, style, now, reading),
            Table::Flower(table) => table.rules(head, style, now, reading),
            Table::U32(_) => self.u32.rules(head, style, now, reading),
            Table::Basic(table) => table.rules(head, style, now, reading),
            Table::Flow(table) => table.rules(head, style, now, reading),
            Table::Closure(_) => {}
        }
    }

    /// Returns one rule, by its pref, protocol, kind and handle, as `tc filter get` presents it.
    ///
    /// # Errors
    /// tc's errors, with a remedy, if there is no such rule.
    #[inline(never)]
    pub fn get(&self, request: &Request<'_>, parent: Handle, style: Style) -> Result<FilterInfo, ParseError> {
        let Header { pref, protocol, kind, .. } = request.header;
        let proto = &self.protos[self.place_of(pref.unwrap_or_default())?];
        proto.admit(pref.unwrap_or_default(), protocol, kind)?;
        let id = request.rule.as_ref().map_or(0, Rule::id);
        let mut reading = Reading::rule(id);
        self.rules(proto, &proto.info(Some(parent)), style, A::now(), &mut reading);
        reading.list.pop().ok_or_else(no_handle)
    }

    /// Returns the place of the filters of a pref.
    fn place_of(&self, pref: u16) -> Result<usize, ParseError> {
        if self.is_empty() {
            let error = ParseError::new("Error: Cannot find specified filter chain.");
            return Err(error.with_remedy("there are no filters here"));
        }
        self.protos.iter().position(|proto| proto.pref == pref).ok_or_else(|| {
            let error = ParseError::new("Error: Filter with specified priority/protocol not found.");
            let prefs: Vec<_> = self.protos.iter().map(|proto| proto.pref.to_string()).collect();
            error.with_remedy(format!("there are prefs {}", prefs.join(", ")))
        })
    }

    /// Returns the pref for a filter added without one: one less than the lowest pref from [`AUTO_FROM`] up, or [`AUTO`] if
    /// there is none.
    fn free_pref(&self) -> Result<u16, ParseError> {
        match self.protos.iter().map(|proto| proto.pref).find(|&pref| pref >= AUTO_FROM) {
            None => Ok(AUTO),
            Some(AUTO_FROM) => Err(ParseError::new("RTNETLINK answers: No space left on device")
                .with_remedy(format!("pref {AUTO_FROM} is in use: name a pref"))),
            Some(pref) => Ok(pref - 1),
        }
    }
}

#[cfg(test)]
mod actions_tests;
#[cfg(test)]
mod short_tests;
#[cfg(test)]
mod tests;
