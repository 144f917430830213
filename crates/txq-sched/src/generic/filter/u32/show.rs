//! Tables and rules as tc shows them.

use std::fmt::Write;

use crate::json::{Value, json};

use txq_core::arch::Nanos;

use super::{Entry, HashTable, Id, KeyMatch, Mark, Offset, Tables};
use crate::generic::filter::reading::Reading;
use crate::generic::filter::{FilterInfo, Shown};
use crate::tc::{Options, Style};

impl Tables {
    /// Reads the tables of a pref, the latest first, each followed by its rules.
    pub(in crate::generic::filter) fn rules(
        &self,
        head: &FilterInfo,
        style: Style,
        now: Nanos,
        reading: &mut Reading,
    ) {
        let mut tables: Vec<_> = self.all().filter(|(_, table)| table.pref == head.pref).collect();
        tables.sort_by_key(|(_, table)| std::cmp::Reverse(table.made));
        for (_, table) in tables {
            if !style.input {
                let id = Id::of(table.number, 0, 0);
                reading.put(head, id.0, || Shown::plain(table_head(table, style)));
            }
            for (number, bucket) in (0..).zip(&table.buckets) {
                for (node, rule) in &bucket.rules {
                    let id = Id::of(table.number, number, *node);
                    reading.put(head, id.0, || {
                        let options = self.rule(table, id, rule, style);
                        let mut shown = Shown::new(options, &rule.actions, now);
                        shown.separate(if rule.actions.is_old() { "\n" } else { "" });
                        shown
                    });
                }
            }
        }
    }

    /// Returns what restores the tables besides the roots, with the prefs that made them, in the order in which they were
    /// made.
    pub(in crate::generic::filter) fn divisors(&self, style: Style) -> Vec<(u16, Shown)> {
        let mut tables: Vec<_> = self.all().filter(|(_, table)| !table.is_root).collect();
        tables.sort_by_key(|(_, table)| table.made);
        let show = |table: &HashTable| {
            let mut options = Options::new(style);
            options.text_only(format_args!("handle {:x}: divisor {}", table.number, table.divisor()));
            (table.pref, Shown::plain(options))
        };
        tables.into_iter().map(|(_, table)| show(table)).collect()
    }

    fn rule(&self, table: &HashTable, id: Id, rule: &Entry, style: Style) -> Options {
        let link = rule.link.and_then(|at| self.tables[at].as_ref());
        if style.input {
            return input(table, id, rule, link, style);
        }
        let mut options = Options::new(style);
        let handle = name(id, style);
        options.put("fh", handle.as_str(), format_args!("fh {handle}")).number("order", id.node().into());
        let (table, bucket) = (format!("{:x}", table.number), format!("{:x}", id.bucket()));
        options.put("key_ht", table.as_str(), format_args!("key ht {table}"));
        options.put("bkt", bucket.as_str(), format_args!("bkt {bucket}"));
        if let Some(class) = rule.class {
            options.put("flowid", class.to_string(), format_args!("*flowid {class}"));
        } else if rule.is_terminal() {
            options.text_only("terminal flowid");
        }
        if let Some(link) = link {
            let link = name(Id::of(link.number, 0, 0), style);
            options.put("link", link.as_str(), format_args!("link {link}"));
        }
        if rule.skip_hw {
            options.flag("skip_hw");
        }
        options.flag("not_in_hw").end_blank();
        if let Some(Mark { value, mask, success }) = &rule.mark {
            let success = success.get();
            options.text_only(format_args!("\n  mark {value:#06x} {mask:#06x} (success {success})"));
            options.json_only("fwmark_value", format!("{value:#x}"));
            options.json_only("fwmark_mask", format!("{mask:#x}"));
            options.json_only("fwmark_success", success);
        }
        keys(&rule.keys, &mut options);
        moves(rule, &mut options);
        options
    }
}

/// Returns the line of a table.
fn table_head(table: &HashTable, style: Style) -> Options {
    let mut head = Options::new(style);
    let handle = name(Id::of(table.number, 0, 0), style);
    head.put("fh", handle.as_str(), format_args!("fh {handle}"));
    head.put("ht_divisor", table.divisor(), format_args!("ht divisor {}", table.divisor())).end_blank();
    head
}

/// Returns a handle's name; with [`Style::raw`] also its number. Bucket 0 has no digit.
fn name(id: Id, style: Style) -> String {
    let mut name = format!("{:x}:", id.table());
    if !id.is_table() {
        let bucket = if id.bucket() == 0 { String::new() } else { format!("{:x}", id.bucket()) };
        let _ = write!(name, "{bucket}:{:x}", id.node());
    }
    if style.raw {
        let _ = write!(name, "[{:08x}]", id.0);
    }
    name
}

fn keys(keys: &[KeyMatch], options: &mut Options) {
    let mut matches: Vec<Value> = Vec::new();
    for KeyMatch { value, mask, offset, nexthdr } in keys {
        let from = if *nexthdr { "nexthdr+" } else { "" };
        options.text_only(format_args!("\n  match {value:08x}/{mask:08x} at {from}{offset}"));
        let (value, mask) = (format!("{value:x}"), format!("{mask:x}"));
        matches.push(json!({"value": value, "mask": mask, "offmask": from, "off": offset}));
    }
    match matches.len() {
        0 => {}
        1 => drop(options.json_only("match", matches.remove(0))),
        _ => drop(options.json_only("match", matches)),
    }
}

/// Adds `offset` and `hashkey`.
fn moves(rule: &Entry, options: &mut Options) {
    let Offset { variable, at, mask, shift, fixed, plus, eat } = rule.offset;
    if variable || fixed {
        options.text_only("\n    offset ");
    }
    let mut rest = String::new();
    if variable {
        let _ = write!(rest, "{mask:04x}>>{shift} at {at} ");
        options.json_only("offset_mask", format!("{mask:x}"));
        options.json_only("offset_shift", shift).json_only("offset_off", at);
    }
    if plus != 0 {
        let _ = write!(rest, "plus {plus} ");
        options.json_only("plus", plus);
    }
    if eat {
        rest += " eat ";
        options.json_only("eat", true);
    }
    options.append(&rest);
    if let Some(hash) = rule.hash.filter(|hash| hash.mask != 0) {
        options.text_only(format_args!("\n    hash mask {:08x} at {} ", hash.mask, hash.offset));
        options.json_only("hash_mask", format!("{:x}", hash.mask)).json_only("hash_off", hash.offset);
    }
}

/// Returns the words that restore a rule. The number of a root depends on the order of the prefs, so it is left out.
fn input(table: &HashTable, id: Id, rule: &Entry, link: Option<&HashTable>, style: Style) -> Options {
    let mut options = Options::new(style);
    if table.is_root {
        options.text_only(format_args!("handle ::{:x}", id.node()));
    } else {
        let place = name(Id::of(id.table(), id.bucket(), id.node()), style);
        options.text_only(format_args!("handle {place} ht {:x}:{:x}:", id.table(), id.bucket()));
    }
    if let Some(Mark { value, mask, .. }) = &rule.mark {
        options.text_only(format_args!("match mark {value:#x} {mask:#x}"));
    }
    for KeyMatch { value, mask, offset, nexthdr } in &rule.keys {
        let from = if *nexthdr { "nexthdr+" } else { "" };
        options.text_only(format_args!("match u32 {value:#x} {mask:#x} at {from}{offset}"));
    }
    if rule.keys.is_empty() && rule.mark.is_none() {
        // Nothing to compare, as `match ip6 src any`.
        options.text_only("match ip6 src any");
    }
    if let Some(hash) = rule.hash {
        options.text_only(format_args!("hashkey mask {:#x} at {}", hash.mask, hash.offset));
    }
    let Offset { variable, at, mask, shift, fixed, plus, eat } = rule.offset;
    if variable {
        options.text_only(format_args!("offset at {at} mask {mask:#x} shift {shift}"));
    }
    if fixed {
        options.text_only(format_args!("offset plus {plus}"));
    }
    if eat {
        options.text_only("offset eat");
    }
    if let Some(link) = link {
        options.text_only(format_args!("link {:x}:", link.number));
    }
    if let Some(class) = rule.class {
        options.text_only(format_args!("flowid {class}"));
    }
    if rule.skip_hw {
        options.flag("skip_hw");
    }
    options
}
