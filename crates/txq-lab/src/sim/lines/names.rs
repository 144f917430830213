//! What lies at which address: the names that the data plane gives while it is built.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

use crate::sim::keys::{self, Of};
use crate::sim::ledger::Phase;

/// How many names that begin before an address are checked for whether they cover it: more than parts are nested.
const MAX_NESTED: usize = 64;
/// Bytes of a line, as a power of two.
const LINE_LOG2: u32 = 6;
/// Names of simulated memory that has no address here.
const FLOW_NAME: &str = "qdisc: a flow";
const SENDER_NAME: &str = "sender: its socket";

/// The kind of object on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(u16);

impl Kind {
    pub(super) const NONE: Self = Self(u16::MAX);
    /// A task's stack.
    pub(super) const STACK: Self = Self(Phase::ALL.len() as u16);
    const FIRST_NAME: u16 = Self::STACK.0 + 1;

    /// Returns the kind of unnamed lines that `phase` used first.
    pub(super) fn unnamed(phase: Phase) -> Self {
        Self(phase as u16)
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// The names given so far.
#[derive(Default)]
pub(super) struct Names {
    texts: Vec<String>,
    known: HashMap<String, Kind>,
    /// Ordered by start address; spans of the same start are ordered longest first, hence the inverted end.
    spans: BTreeMap<(u64, u64), Kind>,
}

impl Names {
    pub(super) fn kind(&mut self, text: String) -> Kind {
        let new = Kind(Kind::FIRST_NAME + self.texts.len() as u16);
        *self.known.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            new
        })
    }

    pub(super) fn put(&mut self, at: usize, bytes: usize, kind: Kind) {
        let (from, to) = (at as u64, (at + bytes) as u64);
        // An empty guarded value occupies no memory.
        if to > from {
            self.spans.insert((from, !to), kind);
        }
    }

    /// Returns the smallest named span that contains an address: its length and its kind.
    fn at(&self, address: u64) -> Option<(u64, Kind)> {
        let before = self.spans.range(..=(address, u64::MAX)).rev().take(MAX_NESTED);
        let mut around = before.map(|((from, end), kind)| (*from, !end, *kind));
        around.find(|(_, end, _)| *end > address).map(|(from, end, kind)| (end - from, kind))
    }

    /// Returns the kind of the line of `key`, which `phase` uses.
    pub(super) fn of(&self, key: u64, phase: Phase) -> Kind {
        let found = match keys::of(key) {
            Of::Object(at) => self.at(at).map(|(_, kind)| kind),
            Of::Flow => self.known.get(FLOW_NAME).copied(),
            Of::Sender => self.known.get(SENDER_NAME).copied(),
            Of::Line => {
                let (from, to) = (key << LINE_LOG2, (key + 1) << LINE_LOG2);
                // If a lock word and its guarded value share a line, the line is contended for the lock word.
                let within =
                    self.spans.range((from, 0)..(to, 0)).map(|((from, end), kind)| (!end - from, *kind));
                self.at(from).into_iter().chain(within).min_by_key(|(bytes, _)| *bytes).map(|(_, kind)| kind)
            }
        };
        found.unwrap_or(Kind::unnamed(phase))
    }

    /// Returns the number of kinds.
    pub(super) fn kinds(&self) -> usize {
        usize::from(Kind::FIRST_NAME) + self.texts.len()
    }

    /// Returns a kind's name for reports, or the phase that replaces one.
    pub(super) fn told(&self, kind: usize) -> (Option<String>, Option<Phase>) {
        match kind.checked_sub(usize::from(Kind::FIRST_NAME)) {
            Some(name) => (self.texts.get(name).cloned(), None),
            None if kind == Kind::STACK.index() => (Some("stacks of tasks".into()), None),
            None => (None, Phase::ALL.get(kind).copied()),
        }
    }
}

thread_local! {
    /// Names for the world that this thread builds; `None` unless requested.
    static NAMES: RefCell<Option<Names>> = const { RefCell::new(None) };
}

/// Starts collecting names.
pub(crate) fn ask() {
    NAMES.set(Some(Names::default()));
}

/// Stops collecting names, and drops them.
pub(crate) fn forget() {
    NAMES.set(None);
}

/// Returns the names collected so far, and stops collecting.
pub(super) fn take() -> Names {
    let mut names = NAMES.take().unwrap_or_default();
    for text in [FLOW_NAME, SENDER_NAME] {
        names.kind(text.to_owned());
    }
    names
}

/// Names the object at `at`.
pub(crate) fn name<T: ?Sized>(at: &T, what: impl Display) {
    NAMES.with_borrow_mut(|names| {
        if let Some(names) = names {
            let kind = names.kind(what.to_string());
            names.put(std::ptr::from_ref(at).addr(), size_of_val(at), kind);
        }
    });
}

/// Names a task's stack.
pub(crate) fn name_stack(from: usize, to: usize) {
    NAMES.with_borrow_mut(|names| {
        if let Some(names) = names {
            names.put(from, to.saturating_sub(from), Kind::STACK);
        }
    });
}
