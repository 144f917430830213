//! Changes of qdiscs, classes and filters, for the connections that watch them (`tc monitor`).
//!
//! While a connection watches, a command is compared: the objects of its kind before and after it. The texts of the
//! differences are those of the kernel's notifications, as tc prints them. A watcher has a bounded list of changes that
//! wait; a change that finds it full is counted as lost. So a reader that stalls delays no command.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use txq::filter::{FilterInfo, filters_text};
use txq::tc::{ClassInfo, Handle, QdiscInfo, Style, class_text, show_text};

use crate::target::Target;

/// The most changes that wait for a watcher.
const MAX_WAITING_CHANGES: usize = 1000;

/// A change of a qdisc, a class or a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// When it happened, in nanoseconds since 1970.
    pub time_ns: u64,
    /// What `tc monitor` prints, with a line break at the end.
    pub text: String,
}

/// Changes that wait for a connection.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    waiting: Mutex<(VecDeque<Change>, u64)>,
}

impl Watcher {
    fn waiting(&self) -> MutexGuard<'_, (VecDeque<Change>, u64)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all changes that wait.
    pub(crate) fn take(&self) -> VecDeque<Change> {
        std::mem::take(&mut self.waiting().0)
    }

    /// Returns how many changes were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.waiting().1
    }
}

/// The connections that watch.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// Held by a command that is compared: another one would change what it compares.
    comparing: Mutex<()>,
}

impl Changes {
    fn watchers(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watcher, which watches until the caller drops it.
    pub(crate) fn watch(&self) -> Arc<Watcher> {
        let watcher = Arc::new(Watcher::default());
        self.watchers().push(watcher.clone());
        watcher
    }

    /// Whether a connection watches. Forgets those that are gone.
    pub(crate) fn is_watched(&self) -> bool {
        let mut watchers = self.watchers();
        watchers.retain(|watcher| Arc::strong_count(watcher) > 1);
        !watchers.is_empty()
    }

    /// Waits for the other command that is compared.
    pub(crate) fn compare(&self) -> MutexGuard<'_, ()> {
        self.comparing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives changes to all watchers.
    pub(crate) fn publish(&self, texts: &[String]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        for watcher in &*self.watchers() {
            let (waiting, lost) = &mut *watcher.waiting();
            for text in texts {
                match waiting.len() < MAX_WAITING_CHANGES {
                    true => waiting.push_back(Change { time_ns, text: text.clone() }),
                    false => *lost += 1,
                }
            }
        }
    }
}

/// What a command may change on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    Qdiscs,
    /// The classes; a change of parameters is one of this class alone.
    Classes(Option<Handle>),
    Filters {
        parent: Option<Handle>,
        /// Whether the command names one filter.
        one: bool,
    },
}

/// The objects of a device.
#[derive(Debug)]
pub(crate) enum Snapshot {
    Qdiscs(Vec<QdiscInfo>),
    Classes(Vec<ClassInfo>, Option<Handle>),
    Filters { list: Vec<FilterInfo>, one: bool },
}

impl Snapshot {
    /// Takes a snapshot; `None` if a scheduler's owner does not answer.
    pub(crate) fn take(target: &Target, scope: Scope) -> Option<Self> {
        let style = Style::default();
        Some(match scope {
            Scope::Qdiscs => Self::Qdiscs(target.qdiscs(style).ok()?),
            Scope::Classes(named) => Self::Classes(target.classes(style).ok()?, named),
            Scope::Filters { parent, one } => {
                let parent = parent.filter(|&parent| parent != Handle::ROOT);
                let mut list = target.filters(parent, style).ok()?;
                list.iter_mut().for_each(|info| info.parent = info.parent.or(parent));
                Self::Filters { list, one }
            }
        })
    }

    /// Returns the texts of the changes from this snapshot to a later one of the device `dev`.
    pub(crate) fn changes(&self, later: &Self, dev: &str) -> Vec<String> {
        match (self, later) {
            (Self::Qdiscs(before), Self::Qdiscs(after)) => qdiscs(before, after),
            (Self::Classes(before, named), Self::Classes(after, _)) => classes(before, after, *named, dev),
            (Self::Filters { list: before, one }, Self::Filters { list: after, .. }) => {
                filters(before, after, *one, dev)
            }
            _ => Vec::new(),
        }
    }
}

fn qdiscs(before: &[QdiscInfo], after: &[QdiscInfo]) -> Vec<String> {
    let same =
        |a: &QdiscInfo, b: &QdiscInfo| a.handle == b.handle && a.parent == b.parent && a.kind == b.kind;
    // A notification is made while nothing else refers to the qdisc.
    let text = |info: &QdiscInfo| {
        let text = show_text(std::slice::from_ref(info), false);
        match info.handle {
            Handle::UNSPEC => text,
            _ => text.replacen("refcnt 2 ", "", 1),
        }
    };
    // A qdisc below a deleted one goes without a notification.
    let is_top = |info: &&QdiscInfo| {
        let above = Handle::new(info.parent.major(), 0);
        [Handle::ROOT, Handle::INGRESS].contains(&info.parent)
            || above != Handle::UNSPEC && after.iter().any(|other| other.handle == above)
    };
    let gone = before.iter().filter(|old| !after.iter().any(|new| same(old, new))).filter(is_top);
    let mut texts: Vec<_> = gone.map(|info| format!("deleted {}", text(info))).collect();
    // Default qdiscs come without one.
    for new in after.iter().filter(|new| new.handle != Handle::UNSPEC) {
        let old = before.iter().find(|old| same(old, new));
        if old.is_none_or(|old| old.options.text() != new.options.text()) {
            texts.push(text(new));
        }
    }
    texts
}

fn classes(before: &[ClassInfo], after: &[ClassInfo], named: Option<Handle>, dev: &str) -> Vec<String> {
    let text = |info: &ClassInfo| {
        let head = format!("class {} {} ", info.kind, info.handle);
        class_text(std::slice::from_ref(info), false).replacen(&head, &format!("{head}dev {dev} "), 1)
    };
    let find = |list: &[ClassInfo], handle: Handle| list.iter().position(|info| info.handle == handle);
    let gone = before.iter().filter(|old| find(after, old.handle).is_none());
    let mut texts: Vec<_> = gone.map(|info| format!("deleted {}", text(info))).collect();
    for new in after {
        let is_changed = match find(before, new.handle) {
            None => true,
            Some(at) => named == Some(new.handle) && before[at].options.text() != new.options.text(),
        };
        if is_changed {
            texts.push(text(new));
        }
    }
    texts
}

fn filters(before: &[FilterInfo], after: &[FilterInfo], one: bool, dev: &str) -> Vec<String> {
    let text = |info: &FilterInfo| {
        filters_text(std::slice::from_ref(info), false).replacen("filter ", &format!("filter dev {dev} "), 1)
    };
    // The words of its handle; none for the line of a pref.
    let name = |info: &FilterInfo| -> String {
        let words = info.options.as_ref().map_or("", |options| options.text()).split_whitespace();
        words.take(2).collect::<Vec<_>>().join(" ")
    };
    let is_same = |a: &FilterInfo, b: &FilterInfo| a.pref == b.pref && a.kind == b.kind && name(a) == name(b);
    let has_pref = |list: &[FilterInfo], pref| list.iter().any(|info| info.pref == pref);
    let is_head =
        |info: &FilterInfo| info.options.as_ref().is_some_and(|o| o.text().contains(" ht divisor "));
    let chain = |list: &[FilterInfo]| {
        let parent = list.first().and_then(|info| info.parent).unwrap_or_default();
        let parent = if parent.major() == 0xffff { Handle::HOOKS } else { parent };
        format!("chain dev {dev} parent {parent} chain 0 ")
    };
    let mut texts = Vec::new();
    if before.is_empty() && !after.is_empty() {
        texts.push(format!("added {}\n", chain(after)));
    }
    for old in before.iter().filter(|old| !after.iter().any(|new| is_same(old, new))) {
        let is_whole = !one && !has_pref(after, old.pref);
        let is_told = match &old.options {
            None => is_whole,
            Some(_) => !is_whole && (has_pref(after, old.pref) || !is_head(old)),
        };
        if is_told {
            texts.push(format!("deleted {}", text(old)));
        }
    }
    for (at, new) in after.iter().enumerate().filter(|(_, new)| new.options.is_some()) {
        match before.iter().find(|old| is_same(old, new)) {
            Some(old) if text(old) != text(new) => texts.push(text(new)),
            Some(_) => {}
            None => {
                // The table that every pref of u32 has comes without a notification: the last one.
                let last = !after[at + 1..].iter().any(|info| info.pref == new.pref && is_head(info));
                if has_pref(before, new.pref) || !is_head(new) || !last {
                    texts.push(format!("added {}", text(new)));
                }
            }
        }
    }
    if !before.is_empty() && after.is_empty() {
        texts.push(format!("deleted {}\n", chain(before)));
    }
    texts
}
