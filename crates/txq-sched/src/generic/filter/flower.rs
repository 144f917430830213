//! flower: matches header fields, exactly or under a mask.
//!
//! Rules with the same masks form a group with one hash table, so a lookup costs the same for one rule as for thousands. The
//! groups of a pref are searched one after the other, in the order of their creation. Within a group, no two rules match the
//! same packets, except by overlapping port ranges. Rules with port ranges are compared one by one, in the order of their
//! creation.
//!
//! The kernel's counterpart is `cls_flower`. Differences: the fields are those of [`WORDS`], without tunnels, MPLS, PPPoE,
//! connection tracking and `indev`. Ports are read only from a whole header of an unfragmented packet, so a fragment has
//! none.

mod group;
mod key;
mod mask;
mod parse;
mod show;

use std::collections::BTreeMap;

use super::frame::Frame;
use super::handles::Handles;
use super::header::{file_exists, invalid};
use super::reading::Reading;
use super::{Choice, Deleted, FilterInfo, Mode, Shown};
use crate::generic::action::Actions;
use crate::tc::{Handle, ParseError, Style};
use txq_core::arch::{Arch, Nanos};

use group::Group;
pub(super) use key::Key;
use key::{Field, Match};
pub(super) use mask::{octets as mac_octets, prefix as mask_prefix};
pub(super) use parse::parse;

/// The words that flower understands.
pub const WORDS: [&str; 30] = [
    "dst_mac",
    "src_mac",
    "vlan_id",
    "vlan_prio",
    "vlan_ethtype",
    "cvlan_id",
    "cvlan_prio",
    "cvlan_ethtype",
    "ip_proto",
    "ip_tos",
    "ip_ttl",
    "ip_flags",
    "src_ip",
    "dst_ip",
    "src_port",
    "dst_port",
    "tcp_flags",
    "type",
    "code",
    "arp_sip",
    "arp_tip",
    "arp_op",
    "arp_sha",
    "arp_tha",
    "classid",
    "flowid",
    "action",
    "skip_hw",
    "verbose",
    "help",
];

/// A rule as its text describes it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The handle; 0 asks for a free one.
    pub(super) handle: u32,
    what: Match,
    classid: Option<Handle>,
    skip_hw: bool,
    pub(super) actions: Actions,
}

/// The rules of a pref.
pub(super) struct Flower {
    rules: BTreeMap<u32, Rule>,
    /// The handles of all rules.
    handles: Handles,
    groups: Vec<Group>,
    /// The number of rules that have actions. While it is 0, a lookup does not touch the rules.
    acting: usize,
}

impl Flower {
    pub(super) fn new() -> Self {
        Self { rules: BTreeMap::new(), handles: Handles::default(), groups: Vec::new(), acting: 0 }
    }

    /// Returns the handle of the first rule that matches, and the class that it chooses.
    #[inline]
    fn find(&self, key: &Key) -> Option<(u32, Handle)> {
        self.groups.iter().find_map(|group| group.find(key))
    }

    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let (handle, class) = self.find(frame.key())?;
        if self.acting == 0 {
            return Some(Choice::Class(class));
        }
        frame.choose(Some(class), &self.rules.get(&handle)?.actions)
    }

    /// Iterates over the classes that rules choose.
    pub(super) fn classids(&self) -> impl Iterator<Item = Handle> {
        self.rules.values().filter_map(|rule| rule.classid)
    }

    pub(super) fn set(&mut self, rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let old = self.rules.get(&rule.handle);
        mode.admit(old.is_some())?;
        if old.is_some_and(|old| !old.what.same_masks(&rule.what)) {
            return Err(invalid("a changed rule keeps its masks: delete it and add another"));
        }
        let group = self.groups.iter().position(|group| group.is_of(&rule.what));
        let twin = group.and_then(|at| self.groups[at].handle_of(&rule.what));
        if twin.is_some_and(|twin| twin != rule.handle) {
            return Err(file_exists("another rule of this pref matches the same packets"));
        }
        let handle = match rule.handle {
            0 => self.handles.lowest_free(1).ok_or_else(|| invalid("all handles are in use"))?,
            handle => handle,
        };
        let class = rule.classid.unwrap_or(Handle::UNSPEC);
        match (group, old) {
            (Some(at), Some(old)) => self.groups[at].change(&old.what, &rule.what, class),
            (Some(at), None) => self.groups[at].insert(&rule.what, handle, class),
            (None, _) => {
                let mut group = Group::new(&rule.what);
                group.insert(&rule.what, handle, class);
                self.groups.push(group);
            }
        }
        self.handles.insert(handle);
        self.acting += usize::from(!rule.actions.is_empty());
        let old = self.rules.insert(handle, Rule { handle, ..rule });
        self.acting -= usize::from(old.is_some_and(|old| !old.actions.is_empty()));
        Ok(())
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        if rule.handle == 0 {
            return Deleted::Table;
        }
        let Some(old) = self.rules.remove(&rule.handle) else { return Deleted::NotThere };
        self.handles.remove(old.handle);
        self.acting -= usize::from(!old.actions.is_empty());
        if let Some(at) = self.groups.iter().position(|group| group.is_of(&old.what)) {
            self.groups[at].remove(&old.what);
            if self.groups[at].is_empty() {
                self.groups.remove(at);
            }
        }
        Deleted::Done { last: self.rules.is_empty() }
    }

    /// Reads the rules, in the order of their handles.
    pub(super) fn rules(&self, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        let show = |rule: &Rule| Shown::new(show::rule(rule, style), &rule.actions, now);
        self.rules.values().for_each(|rule| reading.put(head, rule.handle, || show(rule)));
    }
}

#[cfg(test)]
mod tests;
