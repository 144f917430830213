//! flow: computes the class from the packet's fields, by a hash of several (`hash`) or from one (`map`).
//!
//! The class is `baseclass` plus the result, modulo `divisor`. A rule may match an expression (ematch)
//! first. The kernel's counterpart is `cls_flow`. Differences: the hash is another one, and `perturb` changes it at
//! multiples of its period. `nfct-src` and the like are the packet's own fields, as in the kernel without a translation.
//! Keys that need a socket, a route or an interface that received the packet are refused.

mod keys;

use std::hash::{DefaultHasher, Hasher};

use super::ematch::Expr;
use super::frame::Frame;
use super::header::{invalid, number_of, unknown_word};
use super::reading::Reading;
use super::{Choice, Deleted, FilterInfo, Mode, Shown};
use crate::generic::action::Actions;
use crate::tc::{Handle, Options, ParseError, Style, Words, c_number, full};
use txq_core::arch::{Arch, Nanos};

use keys::{Key, addend};

const WORDS: [&str; 16] = [
    "map",
    "hash",
    "key",
    "keys",
    "and",
    "or",
    "xor",
    "rshift",
    "addend",
    "divisor",
    "baseclass",
    "perturb",
    "match",
    "action",
    "police",
    "help",
];
/// The words that may be abbreviated, in tc's order.
const SHORT: [&str; 14] = [
    "map",
    "hash",
    "keys",
    "and",
    "or",
    "xor",
    "rshift",
    "addend",
    "divisor",
    "baseclass",
    "perturb",
    "match",
    "action",
    "police",
];
const USAGE: &str = "Usage: ... flow ...

 [mapping mode]: map key KEY [ OPS ] ...
 [hashing mode]: hash keys KEY-LIST ... [ perturb SECS ]

                 [ divisor NUM ] [ baseclass ID ] [ match EMATCH_TREE ]
                 [ action ACTION_SPEC ]

KEY-LIST := [ KEY-LIST , ] KEY
KEY      := [ src | dst | proto | proto-src | proto-dst | priority |
              mark | nfct-src | nfct-dst | nfct-proto-src |
              nfct-proto-dst | vlan-tag | rxhash ]
OPS      := [ or NUM | and NUM | xor NUM | rshift NUM | addend NUM ]
ID       := X:Y";

/// A rule as its text describes it: `None` is kept by a change.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) handle: u32,
    hash: Option<bool>,
    keys: Option<Vec<Key>>,
    bits: Option<Bits>,
    rshift: Option<u32>,
    addend: Option<u32>,
    divisor: Option<u32>,
    baseclass: Option<Handle>,
    perturb: Option<u32>,
    expr: Option<Expr>,
    pub(super) actions: Actions,
}

/// What `and`, `or` and `xor` do to a key: `key & mask ^ xor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bits {
    mask: u32,
    xor: u32,
}

impl Bits {
    const NONE: Self = Self { mask: u32::MAX, xor: 0 };

    fn and(self, number: u32) -> Self {
        Self { mask: self.mask & number, xor: self.xor & number }
    }

    fn or(self, number: u32) -> Self {
        Self { mask: self.mask & !number, xor: self.xor | number }
    }

    fn xor(self, number: u32) -> Self {
        Self { xor: self.xor ^ number, ..self }
    }
}

fn illegal(name: &str, word: &str) -> ParseError {
    let error = ParseError::new(format!("Illegal \"{name}\""));
    error.with_remedy(format!("\"{word}\" is no value that {name} takes")).with_usage(USAGE)
}

pub(super) fn parse(handle: Option<&str>, words: &mut Words<'_>) -> Result<Rule, ParseError> {
    let mut rule = Rule {
        handle: number_of(handle)?,
        hash: None,
        keys: None,
        bits: None,
        rshift: None,
        addend: None,
        divisor: None,
        baseclass: None,
        perturb: None,
        expr: None,
        actions: Actions::default(),
    };
    while let Some(word) = words.next_word() {
        let number = |words: &mut Words<'_>, name: &str| {
            let value = words.value(word)?;
            c_number(value).ok_or_else(|| illegal(name, value))
        };
        let bits = rule.bits.unwrap_or(Bits::NONE);
        match full(word, &SHORT) {
            "map" => rule.hash = Some(false),
            "hash" => rule.hash = Some(true),
            "key" | "keys" => rule.keys = Some(Key::list(words.value(word)?)?),
            "and" => rule.bits = Some(bits.and(number(words, "mask")?)),
            "or" => rule.bits = Some(bits.or(number(words, "mask")?)),
            "xor" => rule.bits = Some(bits.xor(number(words, "xor")?)),
            "rshift" => rule.rshift = Some(number(words, "rshift")?),
            "divisor" => rule.divisor = Some(number(words, "divisor")?),
            "perturb" => rule.perturb = Some(number(words, "perturb")?),
            "addend" => {
                rule.addend = Some(addend(words.value(word)?, rule.keys.as_deref().unwrap_or_default())?)
            }
            "baseclass" => {
                let value = words.value(word)?;
                let class = Handle::parse_parent(value).ok().filter(|class| class.minor() != 0);
                rule.baseclass = Some(class.ok_or_else(|| illegal("baseclass", value))?);
            }
            "match" => rule.expr = Some(Expr::parse(words)?),
            "action" => rule.actions.parse(words)?,
            "police" => rule.actions.parse_police(words)?,
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    if rule.hash == Some(false) && rule.keys.as_ref().is_some_and(|keys| keys.len() > 1) {
        let error = ParseError::new("Invalid mode \"map\" for multiple keys");
        return Err(error.with_remedy("name one key, or use hash"));
    }
    Ok(rule)
}

/// A rule of a pref.
#[derive(Debug)]
struct Entry {
    handle: u32,
    hash: bool,
    keys: Vec<Key>,
    bits: Bits,
    rshift: u32,
    addend: u32,
    /// 0 for none.
    divisor: u32,
    baseclass: Handle,
    /// Seconds; 0 for never.
    perturb: u32,
    expr: Option<Expr>,
    actions: Actions,
}

impl Entry {
    fn class<A: Arch>(&self, frame: &Frame<'_, A>) -> Handle {
        let mut values = self.keys.iter().map(|key| key.value(frame));
        let value = match self.hash {
            true => {
                let mut hasher = DefaultHasher::new();
                if self.perturb != 0 {
                    hasher.write_u64(frame.time() / (u64::from(self.perturb) * 1_000_000_000));
                }
                values.for_each(|value| hasher.write_u32(value));
                hasher.finish() as u32
            }
            false => {
                let key = values.next().unwrap_or(0) & self.bits.mask ^ self.bits.xor;
                (key >> self.rshift).wrapping_add(self.addend)
            }
        };
        let value = if self.divisor == 0 { value } else { value % self.divisor };
        Handle::new(self.baseclass.major(), self.baseclass.0.wrapping_add(value) as u16)
    }

    /// Takes what a command gives.
    fn take(&mut self, rule: Rule) {
        let Rule { hash, keys, bits, rshift, addend, divisor, baseclass, perturb, expr, actions, .. } = rule;
        self.hash = hash.unwrap_or(self.hash);
        self.keys = keys.unwrap_or(std::mem::take(&mut self.keys));
        self.bits = bits.unwrap_or(self.bits);
        self.rshift = rshift.unwrap_or(self.rshift);
        self.addend = addend.unwrap_or(self.addend);
        self.divisor = divisor.unwrap_or(self.divisor);
        self.baseclass = baseclass.unwrap_or(self.baseclass);
        self.perturb = if self.hash { perturb.unwrap_or(self.perturb) } else { 0 };
        (self.expr, self.actions) = (expr, actions);
    }
}

/// The rules of a pref.
pub(super) struct Flow {
    parent: Handle,
    /// In the order of their addition, which is that of the search.
    rules: Vec<Entry>,
}

impl Flow {
    pub(super) fn new(parent: Handle) -> Self {
        Self { parent, rules: Vec::new() }
    }

    #[inline]
    pub(super) fn classify<A: Arch>(&self, frame: &Frame<'_, A>) -> Option<Choice> {
        let matching = |rule: &&Entry| rule.expr.as_ref().is_none_or(|expr| expr.matches(frame));
        let choose = |rule: &Entry| frame.choose(Some(rule.class(frame)), &rule.actions);
        self.rules.iter().filter(matching).find_map(choose)
    }

    pub(super) fn set(&mut self, mut rule: Rule, mode: Mode) -> Result<(), ParseError> {
        let found = self.rules.iter().position(|entry| entry.handle == rule.handle);
        mode.admit(found.is_some())?;
        if rule.rshift.is_some_and(|rshift| rshift > 31) {
            let error = ParseError::new("RTNETLINK answers: Numerical result out of range");
            return Err(error.with_remedy("rshift is 31 at most"));
        }
        let is_hash = rule.hash.unwrap_or(found.is_some_and(|at| self.rules[at].hash));
        if rule.perturb.is_some() && !is_hash {
            return Err(invalid("perturb belongs to hash"));
        }
        if let Some(class) = rule.baseclass.filter(|class| class.major() == 0) {
            rule.baseclass = Some(Handle::new(self.parent.major(), class.minor()));
        }
        if let Some(at) = found {
            self.rules[at].take(rule);
            return Ok(());
        }
        if rule.handle == 0 || rule.keys.is_none() {
            return Err(invalid("flow wants a handle and its keys: handle 1 flow hash keys src,dst"));
        }
        let mut entry = Entry {
            handle: rule.handle,
            hash: false,
            keys: Vec::new(),
            bits: Bits::NONE,
            rshift: 0,
            addend: 0,
            divisor: 0,
            baseclass: Handle::new(self.parent.major(), 1),
            perturb: 0,
            expr: None,
            actions: Actions::default(),
        };
        if !is_hash && rule.keys.as_ref().is_some_and(|keys| keys.len() > 1) {
            return Err(invalid("map takes one key: use hash"));
        }
        entry.take(rule);
        self.rules.push(entry);
        Ok(())
    }

    pub(super) fn delete(&mut self, rule: &Rule) -> Deleted {
        if rule.handle == 0 {
            return Deleted::Table;
        }
        match self.rules.iter().position(|entry| entry.handle == rule.handle) {
            None => Deleted::NotThere,
            Some(at) => {
                self.rules.remove(at);
                Deleted::Done { last: self.rules.is_empty() }
            }
        }
    }

    /// Reads the rules.
    pub(super) fn rules(&self, head: &FilterInfo, style: Style, now: Nanos, reading: &mut Reading) {
        let show = |rule: &Entry| {
            let mut shown = Shown::new(show(rule, style), &rule.actions, now);
            // As fw's.
            shown.separate(if rule.actions.is_old() { "" } else { "\n" });
            shown
        };
        self.rules.iter().for_each(|rule| reading.put(head, rule.handle, || show(rule)));
    }
}

fn show(rule: &Entry, style: Style) -> Options {
    let mut options = Options::new(style);
    let handle = format!("{:#x}", rule.handle);
    options.put("handle", handle.as_str(), format_args!("handle {handle}"));
    let mode = if rule.hash { "hash" } else { "map" };
    options.put("mode", mode, mode);
    let names: Vec<_> = rule.keys.iter().map(|key| key.name()).collect();
    options.put("keys", names.as_slice(), format_args!("keys {}", names.join(",")));
    let Bits { mask, xor } = rule.bits;
    if mask != u32::MAX {
        options.put("and", mask, format_args!("and {mask:#010x}"));
    }
    if xor & mask != 0 {
        options.put("xor", xor & mask, format_args!("xor {:#010x}", xor & mask));
    }
    if xor & !mask != 0 {
        options.put("or", xor & !mask, format_args!("or {:#010x}", xor & !mask));
    }
    if rule.rshift != 0 {
        options.number("rshift", rule.rshift.into());
    }
    if rule.addend != 0 {
        options.put("addend", rule.addend, format_args!("addend {:#x}", rule.addend));
    }
    if rule.divisor != 0 {
        options.number("divisor", rule.divisor.into());
    }
    let class = if rule.baseclass == Handle::ROOT { "root".to_owned() } else { rule.baseclass.to_string() };
    options.put("baseclass", class.as_str(), format_args!("baseclass {class}"));
    if rule.perturb != 0 {
        let unit = if style.input { "" } else { "sec" };
        options.put("perturb", rule.perturb, format_args!("perturb {}{unit}", rule.perturb));
    }
    match &rule.expr {
        Some(expr) if style.input => drop(options.text_only(format_args!("match {expr}"))),
        Some(expr) => {
            let mut text = String::from(" ");
            expr.show(&mut text);
            options.append(&text).json_only("match", expr.to_string());
        }
        None if style.input => {}
        None => drop(options.end_blank()),
    }
    options
}

#[cfg(test)]
mod tests;
