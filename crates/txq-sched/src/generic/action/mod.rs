//! Actions: what happens to a packet that a filter's rule matches, besides the choice of its class.
//!
//! A rule has a list of actions. Each decides how it goes on: `pipe` to the next action of the list, `ok` to the rule's class,
//! `continue` to the next filter, `reclassify` back to the first filter; `drop` ends the packet, and `stolen` says that
//! another device has it. The kinds are tc's: [`gact`], [`police`], [`skbedit`] and [`mirred`]. Words, errors and output are those of tc.
//!
//! Actions run with the filters of a qdisc or of a hook, whose owner has them alone. So their counters and buckets are
//! plain cells. The kernel's counterpart is `tcf_action_exec` with `struct tc_action`. Differences: an action belongs to one
//! rule (`index` does not share it), and there are no `trap`, `goto`, `jump`, `random`, cookies and hardware.

mod gact;
mod handles;
mod index;
mod mirred;
mod police;
mod show;
mod skbedit;

use std::cell::Cell;

use txq_core::arch::Nanos;

use crate::tc::{Options, ParseError, Style, Words};

pub(crate) use gact::Control;
pub(crate) use handles::Handles;
pub use index::Indexes;
use index::Number;
use mirred::Mirred;
use police::Police;
pub use show::ActionInfo;
use skbedit::Skbedit;

/// The most copies that the actions of one packet send to other devices.
const MIRRORS: usize = 4;

/// What actions see of a packet, and what they do to it.
pub(crate) trait Target {
    /// Returns the time.
    fn now(&self) -> Nanos;
    /// Returns the packet's length in bytes, and its segments.
    fn len(&self) -> (u64, u64);
    /// Returns the DS field without its two low bits.
    fn dscp(&self) -> u8;
    /// Changes the effects.
    fn effect(&self, f: impl FnOnce(&mut Effects));
}

/// What the actions of a packet have changed so far. The caller of the filters applies it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// The new priority.
    pub priority: Option<u32>,
    /// The bits of the mark to change, and their values.
    pub mark: Option<(u32, u32)>,
    /// The txq to send through.
    pub queue: Option<u16>,
    /// The port that takes the packet: the index of its device.
    pub redirect: Option<u16>,
    mirrors: [u16; MIRRORS],
    mirrored: u8,
}

impl Effects {
    /// Returns the ports that get a copy.
    pub fn mirrors(&self) -> &[u16] {
        &self.mirrors[..usize::from(self.mirrored)]
    }

    /// Adds a port that gets a copy; returns whether there was room for it.
    fn mirror(&mut self, port: u16) -> bool {
        let at = usize::from(self.mirrored);
        let has_room = at < MIRRORS;
        if has_room {
            self.mirrors[at] = port;
            self.mirrored += 1;
        }
        has_room
    }

    /// Returns a mark as the actions have changed it.
    pub fn marked(&self, mark: u32) -> u32 {
        self.mark.map_or(mark, |(mask, value)| mark & !mask | value & mask)
    }
}

/// A kind, with its parameters.
#[derive(Debug, Clone)]
enum Kind {
    Gact(Control),
    Police(Box<Police>),
    Skbedit(Skbedit),
    Mirred(Mirred),
}

/// Counters of an action (`tcf_bstats`, `tcf_qstats`, `tcf_tm`).
#[derive(Debug, Clone, Default)]
struct Counters {
    bytes: Cell<u64>,
    packets: Cell<u64>,
    drops: Cell<u64>,
    overlimits: Cell<u64>,
    installed: Cell<Nanos>,
    /// When a packet first and last met it.
    first: Cell<Option<Nanos>>,
    last: Cell<Nanos>,
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get().wrapping_add(n));
}

/// An action of a rule.
#[derive(Debug, Clone)]
struct Action {
    kind: Kind,
    /// The number that the text asks for.
    asked: Option<u32>,
    number: Option<Number>,
    counters: Counters,
}

/// The actions of a rule, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Actions {
    list: Vec<Action>,
    /// Whether the text has `police` in place of `action`, which tc shows in its old form.
    old: bool,
}

impl Actions {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Parses what follows `action`, up to `classid` or `flowid`. A later list replaces the one before.
    pub(crate) fn parse(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        if words.peek().is_none() {
            return Err(ParseError::incomplete("action"));
        }
        let mut list = Vec::new();
        while let Some(word) = words.peek() {
            if matches!(word, "classid" | "flowid") || ends_list(word) {
                break;
            }
            words.next_word();
            let (kind, asked) = match word {
                "action" if words.peek().is_some() => continue,
                "action" => return Err(ParseError::incomplete("action")),
                "help" => return Err(ParseError::new("Illegal \"action\"").with_remedy(KINDS_HINT)),
                "police" => wrapped(word, words, |words| {
                    if words.peek().is_none() {
                        return Err(ParseError::incomplete("police"));
                    }
                    Police::parse(words).map(|(police, index)| (Kind::Police(Box::new(police)), index))
                })?,
                "skbedit" => wrapped(word, words, |words| {
                    Skbedit::parse(words).map(|(edit, index)| (Kind::Skbedit(edit), index))
                })?,
                "mirred" => wrapped(word, words, |words| {
                    Mirred::parse(words).map(|(mirred, index)| (Kind::Mirred(mirred), index))
                })?,
                "gact" => {
                    let word = words.value(word)?;
                    gact::parse(word, words).map(|(control, index)| (Kind::Gact(control), index))?
                }
                word => gact::parse(word, words).map(|(control, index)| (Kind::Gact(control), index))?,
            };
            list.push(Action { kind, asked, number: None, counters: Counters::default() });
            if list.len() > MAX_ACTIONS {
                return Err(ParseError::new("RTNETLINK answers: Invalid argument")
                    .with_remedy(format!("a rule has {MAX_ACTIONS} actions at most")));
            }
        }
        // As in the kernel, a rule with the old `police` has no other actions, wherever they stand (`tcf_exts_validate`).
        if !self.old {
            self.list = list;
        }
        Ok(())
    }

    /// Parses what follows `police` where a filter's option was expected.
    pub(crate) fn parse_police(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        if words.peek().is_none() {
            return Err(ParseError::incomplete("police"));
        }
        let (police, asked) = Police::parse(words).map_err(|error| {
            let remedy = error.message().to_owned();
            ParseError::new("Illegal \"police\"").with_remedy(remedy)
        })?;
        let kind = Kind::Police(Box::new(police));
        *self = Self {
            list: vec![Action { kind, asked, number: None, counters: Counters::default() }],
            old: true,
        };
        Ok(())
    }

    /// Installs the actions: gives each its number.
    ///
    /// # Errors
    /// A number that another action has.
    pub(crate) fn install(&mut self, indexes: &Indexes, now: Nanos) -> Result<(), ParseError> {
        for action in &mut self.list {
            action.number = Some(indexes.take(action.kind.name(), action.asked)?);
            action.counters.installed.set(now);
            action.counters.last.set(now);
        }
        Ok(())
    }

    /// Calls `f` with the device of each mirred, for its port.
    pub(crate) fn bind(
        &mut self,
        mut f: impl FnMut(&str) -> Result<u16, ParseError>,
    ) -> Result<(), ParseError> {
        for action in &mut self.list {
            if let Kind::Mirred(mirred) = &mut action.kind {
                mirred.port = f(&mirred.dev)?;
            }
        }
        Ok(())
    }

    /// Returns whether each action only measures or drops: a filter of a qdisc may have these, whose packets belong to the
    /// qdisc already.
    pub(crate) fn are_verdicts(&self) -> bool {
        self.list.iter().all(|action| matches!(action.kind, Kind::Gact(_) | Kind::Police(_)))
    }

    /// Runs the actions; returns how the packet goes on.
    pub(crate) fn run(&self, packet: &impl Target) -> Control {
        let now = packet.now();
        let (bytes, segs) = packet.len();
        let mut control = Control::Continue;
        for action in &self.list {
            let Action { kind, counters, .. } = action;
            add(&counters.bytes, bytes);
            add(&counters.packets, segs);
            counters.last.set(now);
            if counters.first.get().is_none() {
                counters.first.set(Some(now));
            }
            control = match kind {
                Kind::Gact(control) => *control,
                Kind::Police(police) => {
                    let (control, conforms) = police.meter(bytes, now);
                    add(&counters.overlimits, u64::from(!conforms));
                    control
                }
                Kind::Skbedit(edit) => {
                    edit.apply(packet);
                    edit.control
                }
                Kind::Mirred(mirred) => {
                    let mut done = true;
                    packet.effect(|effects| done = mirred.apply(effects));
                    add(&counters.overlimits, u64::from(!done));
                    mirred.control
                }
            };
            add(&counters.drops, u64::from(control == Control::Drop));
            if control != Control::Pipe {
                break;
            }
        }
        control
    }

    /// Returns how a packet would go on if it were here now: [`run`](Actions::run) without an effect.
    pub(crate) fn foresee(&self, packet: &impl Target) -> Control {
        let decides = |action: &Action| match &action.kind {
            Kind::Gact(control) => *control,
            Kind::Police(police) => police.foresee(packet.len().0, packet.now()),
            Kind::Skbedit(edit) => edit.control,
            Kind::Mirred(mirred) => mirred.control,
        };
        let control = self.list.iter().map(decides).find(|&control| control != Control::Pipe);
        control.unwrap_or(if self.list.is_empty() { Control::Continue } else { Control::Pipe })
    }

    /// Returns whether they are the old `police` of a filter.
    pub(crate) fn is_old(&self) -> bool {
        self.old
    }

    /// Writes the actions as a command has them.
    pub(crate) fn write_input(&self, options: &mut Options) {
        for action in &self.list {
            if self.old {
                options.text_only(action.kind.words());
            } else {
                options.text_only(format_args!("action {}", action.kind.words()));
            }
        }
    }

    /// Returns the actions as `tc filter show` presents them.
    pub(crate) fn info(&self, style: Style, now: Nanos) -> Vec<ActionInfo> {
        let list = self.list.iter().enumerate();
        list.map(|(at, action)| ActionInfo::new(action, at + 1, self.old, style, now)).collect()
    }
}

/// Returns whether a word ends a list of actions: tc takes any beginning of its own commands for one, and leaves the word to the filter.
fn ends_list(word: &str) -> bool {
    const COMMANDS: [&str; 6] = ["change", "replace", "delete", "add", "list", "lst"];
    COMMANDS.iter().any(|command| command.starts_with(word))
}

/// The most actions of a rule (`TCA_ACT_MAX_PRIO`).
const MAX_ACTIONS: usize = 32;
const KINDS_HINT: &str = "actions are drop, ok, pipe, continue, reclassify, police, skbedit and mirred";

/// Parses an action whose errors tc wraps in `Illegal "action"`.
fn wrapped<'a, T>(
    name: &str,
    words: &mut Words<'a>,
    parse: impl FnOnce(&mut Words<'a>) -> Result<T, ParseError>,
) -> Result<T, ParseError> {
    if words.peek().is_none() {
        return Err(ParseError::incomplete(name));
    }
    parse(words)
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Gact(_) => "gact",
            Self::Police(_) => "police",
            Self::Skbedit(_) => "skbedit",
            Self::Mirred(_) => "mirred",
        }
    }

    /// Returns the words that restore it.
    fn words(&self) -> String {
        match self {
            Self::Gact(control) => control.name().to_owned(),
            Self::Police(police) => police.words(),
            Self::Skbedit(edit) => edit.words(),
            Self::Mirred(mirred) => mirred.words(),
        }
    }
}
