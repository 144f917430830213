//! u32: matches words at offsets from the packet's network header, each under a mask, and finds rules by hash tables.
//!
//! Each pref has a table of one bucket, its root. Commands add tables of up to 256 buckets, and rules to their buckets
//! (`ht`). A rule that matches may send the search into a bucket of another table (`link`), which bits of the packet choose
//! (`hashkey`), and may move the offsets by a field of the packet (`offset`): so thousands of rules cost a packet a few
//! comparisons. The rules of a bucket are compared in the order of their nodes. A rule without a class is passed over.
//!
//! The kernel's counterpart is `cls_u32`. The tables belong to the qdisc and not to the pref that made them, as there: they
//! stay until the last pref of u32 goes. Differences: a rule with a word beyond the packet's end does not match, and the
//! next rule is tried. Bytes in front of the packet read as 0. There is no `indev`, because packets here come from senders.

mod lookup;
mod parse;
mod sample;
mod show;
mod tables;

use std::cell::Cell;

use super::handles::Handles;
use crate::generic::action::Actions;
use crate::tc::Handle;

pub(super) use parse::parse;
pub(super) use sample::signed;
pub(super) use tables::{Root, Tables};

/// The first number of tables that commands do not name, and of rules without a given handle.
const FIRST_NODE: u32 = 0x800;
const LAST_NODE: u32 = 0xfff;
/// The most buckets of a table.
const MOST_BUCKETS: u32 = 256;
/// The number that stands for a pref's own root (`TC_U32_ROOT`).
const ROOT: u32 = 0xfff;

/// A handle `TABLE:BUCKET:NODE`, in 12, 8 and 12 bits; parts not given are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

impl Id {
    const fn of(table: u32, bucket: u32, node: u32) -> Self {
        Self(table << 20 | bucket << 12 | node)
    }

    const fn table(self) -> u32 {
        self.0 >> 20
    }

    const fn bucket(self) -> u32 {
        self.0 >> 12 & 0xff
    }

    const fn node(self) -> u32 {
        self.0 & 0xfff
    }

    /// Whether it names a table and no rule.
    const fn is_table(self) -> bool {
        self.0 & 0xf_ffff == 0
    }
}

/// A rule, or a table, as its text describes it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) id: Id,
    options: bool,
    /// The number of buckets of a new table; then there is no rule.
    divisor: Option<u32>,
    /// The table and bucket of the rule; 0 for the root.
    ht: Id,
    link: Option<Id>,
    keys: Option<Vec<KeyMatch>>,
    mark: Option<Mark>,
    hash: Option<HashKey>,
    offset: Offset,
    classid: Option<Handle>,
    skip_hw: bool,
    pub(super) actions: Actions,
}

/// A word to match, its mask, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyMatch {
    pub(super) value: u32,
    pub(super) mask: u32,
    pub(super) offset: i32,
    pub(super) nexthdr: bool,
}

impl KeyMatch {
    /// Returns the key for a number of 1, 2 or 4 bytes; `None` if four bytes lie in two words.
    pub(super) fn of(bytes: usize, value: u32, mask: u32, offset: i32, nexthdr: bool) -> Option<Self> {
        let within = offset & 3;
        let shift = match bytes {
            4 if within != 0 => return None,
            4 => 0,
            2 if within == 0 => 16,
            2 => 0,
            _ => 24 - 8 * within,
        };
        Some(Self { value: (value & mask) << shift, mask: mask << shift, offset: offset & !3, nexthdr })
    }
}

/// A packet's mark to match, under a mask (`match mark`).
#[derive(Debug, Clone)]
struct Mark {
    value: u32,
    mask: u32,
    /// Packets that had the mark.
    success: Cell<u64>,
}

/// Which bits of a packet choose the bucket of the linked table (`hashkey`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HashKey {
    mask: u32,
    offset: i32,
}

impl HashKey {
    /// Returns the bucket, of so many, for the word at the offset.
    fn bucket(self, word: u32, buckets: u32) -> u32 {
        // Without a mask there is nothing to shift.
        (word & self.mask).checked_shr(self.mask.trailing_zeros()).unwrap_or(0) & (buckets - 1)
    }
}

/// How a rule moves the offsets of the table that it links to (`offset`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Offset {
    /// Whether the move is read from the packet: 16 bits at `at`, under `mask`, shifted right by `shift`.
    variable: bool,
    at: i32,
    mask: u16,
    shift: u8,
    /// Whether the move has a constant part, `plus`.
    fixed: bool,
    plus: u16,
    /// Whether all offsets move; else those after `nexthdr+`.
    eat: bool,
}

/// A rule in its bucket.
struct Entry {
    keys: Vec<KeyMatch>,
    mark: Option<Mark>,
    hash: Option<HashKey>,
    offset: Offset,
    /// The linked table's place.
    link: Option<usize>,
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

/// The rules of a bucket.
#[derive(Default)]
struct Bucket {
    /// Sorted by node, which is the order of comparison.
    rules: Vec<(u32, Entry)>,
    /// The nodes in use.
    nodes: Handles,
}

impl Bucket {
    fn place(&self, node: u32) -> Result<usize, usize> {
        self.rules.binary_search_by_key(&node, |(node, _)| *node)
    }

    fn free_node(&self) -> Option<u32> {
        let within = |first, last| self.nodes.lowest_free(first).filter(|&node| node <= last);
        within(FIRST_NODE, LAST_NODE).or_else(|| within(1, FIRST_NODE - 1))
    }
}

/// A hash table (`tc_u_hnode`).
struct HashTable {
    number: u32,
    /// The pref that made it, which lists it.
    pref: u16,
    /// Counts the tables of the qdisc: later ones are listed first.
    made: u64,
    is_root: bool,
    /// The rules that link to it.
    links: usize,
    /// A power of 2.
    buckets: Vec<Bucket>,
}

impl HashTable {
    fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.rules.is_empty())
    }

    /// Returns the number of buckets.
    fn divisor(&self) -> u32 {
        self.buckets.len() as u32
    }
}

#[cfg(test)]
mod tests;
