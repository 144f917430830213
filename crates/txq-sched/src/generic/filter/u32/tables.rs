//! The hash tables of a qdisc, and the commands that change them.

use std::collections::BTreeMap;
use std::iter;

use super::{Bucket, Entry, FIRST_NODE, HashTable, Id, ROOT, Rule};
use crate::generic::filter::{Deleted, Mode};
use crate::tc::{Handle, ParseError};

/// The last number of a table that no command names; the next one is the second.
const LAST_TABLE: u32 = 0xffe;

/// The place of a pref's root among the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::filter) struct Root(pub(super) usize);

/// All hash tables of a qdisc (`tc_u_common`). Rules name tables by their places, which do not change.
#[derive(Default)]
pub(in crate::generic::filter) struct Tables {
    pub(super) tables: Vec<Option<HashTable>>,
    /// The place of each table, by its number.
    places: BTreeMap<u32, usize>,
    /// The number of the next table that no command names; 0 before the first.
    next: u32,
    made: u64,
}

impl Tables {
    /// Adds the root of a pref.
    ///
    /// # Errors
    /// All numbers of tables are taken.
    pub(in crate::generic::filter) fn add_root(&mut self, pref: u16) -> Result<Root, ParseError> {
        let number = self.free_number()?;
        Ok(Root(self.insert(number, pref, true, 1)))
    }

    /// Removes the root of a pref and its rules. All other tables go with the last root.
    pub(in crate::generic::filter) fn remove_root(&mut self, root: Root) {
        self.remove(root.0);
        if !self.all().any(|(_, table)| table.is_root) {
            *self = Self::default();
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &HashTable)> {
        self.tables.iter().enumerate().filter_map(|(at, table)| Some((at, table.as_ref()?)))
    }

    fn insert(&mut self, number: u32, pref: u16, is_root: bool, buckets: u32) -> usize {
        let buckets = iter::repeat_with(Bucket::default).take(buckets as usize).collect();
        let table = HashTable { number, pref, made: self.made, is_root, links: 0, buckets };
        self.made += 1;
        let free = self.tables.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[at] = Some(table);
        self.places.insert(number, at);
        at
    }

    /// Removes a table and its rules.
    fn remove(&mut self, at: usize) {
        let Some(table) = self.tables[at].take() else { return };
        self.places.remove(&table.number);
        for (_, rule) in table.buckets.iter().flat_map(|bucket| &bucket.rules) {
            self.unlink(rule.link);
        }
    }

    fn unlink(&mut self, link: Option<usize>) {
        if let Some(table) = link.and_then(|at| self.tables[at].as_mut()) {
            table.links -= 1;
        }
    }

    fn place_of(&self, number: u32) -> Option<usize> {
        self.places.get(&number).copied()
    }

    /// Returns the place of a table, which may be called by the number of all roots.
    fn table(&self, root: Root, number: u32) -> Option<usize> {
        if number == ROOT { Some(root.0) } else { self.place_of(number) }
    }

    /// Returns the number of the next table that no command names: [`FIRST_NODE`] for the first of the qdisc, then the next
    /// free one.
    ///
    /// # Errors
    /// All are taken.
    fn free_number(&mut self) -> Result<u32, ParseError> {
        let second = FIRST_NODE + 1;
        let number = match self.next {
            0 => FIRST_NODE,
            next => {
                let mut numbers = (next..=LAST_TABLE).chain(second..next);
                numbers.find(|&number| self.place_of(number).is_none()).ok_or_else(|| {
                    ParseError::new("RTNETLINK answers: Cannot allocate memory")
                        .with_remedy("a qdisc has 2047 prefs and tables of u32 without a handle at most: give a pref more rules")
                })?
            }
        };
        self.next = if number == LAST_TABLE { second } else { number + 1 };
        Ok(number)
    }

    /// Returns the place of the table, and of the bucket and rule in it, that a whole handle names.
    pub(super) fn find(&self, root: Root, id: Id) -> Option<(usize, Option<(usize, usize)>)> {
        let at = self.table(root, id.table())?;
        if id.is_table() {
            return Some((at, None));
        }
        let bucket = self.tables[at].as_ref()?.buckets.get(id.bucket() as usize)?;
        Some((at, Some((id.bucket() as usize, bucket.place(id.node()).ok()?))))
    }

    /// Adds a table or a rule, or changes a rule.
    pub(in crate::generic::filter) fn set(
        &mut self,
        root: Root,
        pref: u16,
        rule: Rule,
        mode: Mode,
    ) -> Result<(), ParseError> {
        let found = self.find(root, rule.id);
        mode.admit(found.is_some())?;
        if !rule.options {
            return match rule.id {
                Id(0) => Ok(()),
                _ => Err(refused(
                    "Filter handle requires options.",
                    "say what to match, or leave out the handle",
                )),
            };
        }
        match found {
            Some((_, None)) => Err(refused(
                "Key node id cannot be zero.",
                "a table does not change: name a rule, as 2:7b:800",
            )),
            Some((table, Some((bucket, at)))) => self.change(root, (table, bucket, at), rule),
            None if rule.divisor.is_some() => self.add_table(pref, &rule),
            None => self.add_rule(root, rule),
        }
    }

    fn add_table(&mut self, pref: u16, rule: &Rule) -> Result<(), ParseError> {
        let number = match rule.id {
            Id(0) => self.free_number()?,
            id if id.is_table() => id.table(),
            _ => {
                let error = "Divisor can only be used on a hash table.";
                return Err(refused(error, "a table's handle has no bucket and node: handle 2:"));
            }
        };
        self.insert(number, pref, false, rule.divisor.unwrap_or(1));
        Ok(())
    }

    fn add_rule(&mut self, root: Root, rule: Rule) -> Result<(), ParseError> {
        let place = match rule.ht {
            Id(0) => root.0,
            ht => self.table(root, ht.table()).ok_or_else(|| {
                refused("Specified hash table not found.", "add it first: handle 2: u32 divisor 256")
            })?,
        };
        let full = |remedy| ParseError::new("RTNETLINK answers: No space left on device").with_remedy(remedy);
        let Some(table) = self.tables[place].as_ref() else {
            return Err(full("the table is gone"));
        };
        let Some(bucket) = table.buckets.get(rule.ht.bucket() as usize) else {
            let error = "Specified hash table buckets exceed configured value.";
            return Err(refused(
                error,
                format!("the table has {} buckets: give that divisor", table.divisor()),
            ));
        };
        let is_own = match rule.id.table() {
            ROOT => table.is_root,
            number => [0, table.number].contains(&number),
        };
        if !is_own {
            let remedy = format!("the rule goes to table {:x}: name another by ht", table.number);
            return Err(refused("Handle specified hash table address mismatch.", remedy));
        }
        let node = match rule.id.node() {
            0 => bucket.free_node().ok_or_else(|| {
                full("a bucket has 4095 rules at most: use a hash table, another pref, or flower")
            })?,
            node if bucket.place(node).is_ok() => {
                return Err(full("there is such a rule: to change it, give its whole handle"));
            }
            node => node,
        };
        let Some(keys) = rule.keys else {
            return Err(refused("Selector not specified.", "say what to match: match u32 0 0 is everything"));
        };
        let link = self.linked(root, rule.link)?;
        let entry = Entry {
            keys,
            mark: rule.mark,
            hash: rule.hash,
            offset: rule.offset,
            link,
            class: class(rule.classid),
            skip_hw: rule.skip_hw,
            actions: rule.actions,
        };
        if let Some(table) = self.tables[place].as_mut() {
            let bucket = &mut table.buckets[rule.ht.bucket() as usize];
            let at = bucket.place(node).unwrap_or_else(|at| at);
            bucket.nodes.insert(node);
            bucket.rules.insert(at, (node, entry));
        }
        if let Some(table) = link.and_then(|at| self.tables[at].as_mut()) {
            table.links += 1;
        }
        Ok(())
    }

    /// Returns the place of the table that `link` names; `None` for none and for table 0.
    fn linked(&self, root: Root, link: Option<Id>) -> Result<Option<usize>, ParseError> {
        let Some(link) = link.filter(|&link| link != Id(0)) else { return Ok(None) };
        if !link.is_table() {
            return Err(refused("u32 Link handle must be a hash table.", "leave out the bucket: link 2:"));
        }
        let Some(at) = self.table(root, link.table()) else {
            return Err(refused("Link hash table not found.", "add it first: handle 2: u32 divisor 256"));
        };
        if self.tables[at].as_ref().is_some_and(|table| table.is_root) {
            return Err(refused("Not linking to root node.", "link to a table that a command added"));
        }
        Ok(Some(at))
    }

    /// Changes class, link and actions of a rule. The keys stay, as in the kernel.
    fn change(
        &mut self,
        root: Root,
        (table, bucket, at): (usize, usize, usize),
        rule: Rule,
    ) -> Result<(), ParseError> {
        // Table 0 ends a link.
        let link = match rule.link {
            None => None,
            Some(link) => Some(self.linked(root, Some(link))?),
        };
        let Some((_, entry)) =
            self.tables[table].as_mut().and_then(|table| table.buckets[bucket].rules.get_mut(at))
        else {
            return Ok(());
        };
        if entry.skip_hw != rule.skip_hw {
            let error = "Key change flags do not match.";
            return Err(refused(error, "skip_hw does not change: delete the rule first"));
        }
        entry.class = class(rule.classid).or(entry.class);
        entry.actions = rule.actions;
        if let Some(link) = link {
            let old = std::mem::replace(&mut entry.link, link);
            self.unlink(old);
            if let Some(table) = link.and_then(|at| self.tables[at].as_mut()) {
                table.links += 1;
            }
        }
        Ok(())
    }

    /// Deletes the rule or the table with the handle of `rule`. `alone` says whether there is no other pref of u32: the last
    /// rule of the qdisc takes its pref along.
    pub(in crate::generic::filter) fn delete(
        &mut self,
        root: Root,
        rule: &Rule,
        alone: bool,
    ) -> Result<Deleted, ParseError> {
        if rule.id == Id(0) {
            return Ok(Deleted::Table);
        }
        match self.find(root, rule.id) {
            None => return Ok(Deleted::NotThere),
            Some((at, None)) => {
                let Some(table) = &self.tables[at] else { return Ok(Deleted::NotThere) };
                if table.is_root {
                    let remedy = "a pref's own table goes with the pref: give no handle";
                    return Err(refused("Not allowed to delete root node.", remedy));
                }
                if table.links > 0 {
                    let remedy = format!("{} rules link to it: delete those first", table.links);
                    return Err(refused("Can not delete in-use filter.", remedy));
                }
                self.remove(at);
            }
            Some((table, Some((bucket, at)))) => {
                if let Some(table) = self.tables[table].as_mut() {
                    let bucket = &mut table.buckets[bucket];
                    let (node, entry) = bucket.rules.remove(at);
                    bucket.nodes.remove(node);
                    self.unlink(entry.link);
                }
            }
        }
        Ok(Deleted::Done { last: alone && self.all().all(|(_, table)| table.is_empty()) })
    }

    /// Iterates over the classes that rules choose.
    pub(in crate::generic::filter) fn classids(&self) -> impl Iterator<Item = Handle> {
        let buckets = self.all().flat_map(|(_, table)| &table.buckets);
        buckets.flat_map(|bucket| &bucket.rules).filter_map(|(_, rule)| rule.class)
    }
}

/// Returns the class that a rule chooses; `None` for `classid none`.
fn class(given: Option<Handle>) -> Option<Handle> {
    given.filter(|&class| class != Handle::UNSPEC)
}

fn refused(message: &str, remedy: impl Into<String>) -> ParseError {
    ParseError::new(format!("Error: cls_u32: {message}")).with_remedy(remedy)
}
