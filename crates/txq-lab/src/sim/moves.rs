//! Which lines the calls of a qdisc move, from its [`State`]: the state of `qdiscs.toml`, in the form that the simulation reads.
//!
//! A line that the CPU has costs nothing here: the measured time of the qdisc's code contains its hits.

use std::sync::OnceLock;

use txq_core::arch::Memory;

use crate::sim::state::{Each, PLAIN, State, States, Times};

/// A line of several, and whether it is written.
type Line = (u8, bool);

/// The lines of a qdisc.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moves {
    fixed: Each<Vec<Line>>,
    flow: Each<Vec<Line>>,
    /// How many lines of [`among`](Self::among) a packet's call accesses, in 1024ths.
    others: Each<u64>,
    pub(crate) among: u32,
    /// The lines of a packet's data that enqueue reads.
    pub(crate) data: u32,
}

/// A qdisc whose state is known, on a machine that runs its code `scale` times as long as the one that measured it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Known {
    pub(crate) moves: &'static Moves,
    pub(crate) times: &'static Times,
    pub(crate) plain: &'static Times,
    pub(crate) scale: f64,
}

impl Known {
    /// Returns the state of a qdisc in tc's words, or of a tree: that of the tree, of its root and its leaves, or of the root.
    /// `None` if none is known, or the qdisc is a plain FIFO.
    pub(crate) fn of(text: &str) -> Option<Self> {
        static MOVES: OnceLock<Vec<Moves>> = OnceLock::new();
        let states = States::known();
        let all = MOVES.get_or_init(|| states.qdisc.iter().map(Moves::new).collect());
        let (root, leaf) = kinds(text);
        let names = [text.trim().to_owned(), format!("{root}-{leaf}"), root.to_owned()];
        let at = names.iter().find_map(|name| states.qdisc.iter().position(|state| state.name == *name))?;
        let plain = &states.get(PLAIN)?.ns;
        let known = Self { moves: &all[at], times: &states.qdisc[at].ns, plain, scale: 1.0 };
        (states.qdisc[at].name != PLAIN).then_some(known)
    }
}

/// Returns the kinds of a tree's root and of its first leaf qdisc.
fn kinds(text: &str) -> (&str, &str) {
    let mut commands = text.split(';');
    let mut root = commands.next().unwrap_or("").split_whitespace().peekable();
    while let Some(word) = root.next_if(|word| ["root", "handle"].contains(word)) {
        if word == "handle" {
            root.next();
        }
    }
    let leaf = commands.find_map(|command| {
        let words: Vec<&str> = command.split_whitespace().collect();
        let adds = words.starts_with(&["qdisc"]);
        let at = words.iter().position(|word| *word == "parent").filter(|_| adds)?;
        let rest = words.get(at + 2..)?;
        rest.get(if rest.first() == Some(&"handle") { 2 } else { 0 }).copied()
    });
    (root.next().unwrap_or(""), leaf.unwrap_or(""))
}

impl Moves {
    fn new(state: &State) -> Self {
        let lines = |letters: &String| {
            let letters = letters.bytes().enumerate().filter(|&(_, letter)| letter != b'.');
            letters.map(|(at, letter)| (at as u8, letter == b'w')).collect()
        };
        let part = |lines: &f64| (lines * 1024.0) as u64;
        Self {
            fixed: Each::of(state.fixed.all().map(lines)),
            flow: Each::of(state.flow.all().map(lines)),
            others: Each::of(state.others.all().map(part)),
            among: state.among.max(1),
            data: state.data,
        }
    }

    /// Returns the qdisc's own lines that a call accesses; none for memory that is no qdisc's.
    pub(crate) fn fixed(&self, what: Memory) -> &[Line] {
        pick(&self.fixed, what).map_or(&[], |lines| lines)
    }

    /// Returns the lines of a packet's flow.
    pub(crate) fn flow(&self, what: Memory) -> &[Line] {
        pick(&self.flow, what).map_or(&[], |lines| lines)
    }

    /// Returns how many other lines a packet's call accesses, by a random number.
    pub(crate) fn others(&self, what: Memory, random: u64) -> u64 {
        let all = pick(&self.others, what).copied().unwrap_or(0);
        (all >> 10) + u64::from(random & 1023 < all & 1023)
    }
}

fn pick<T>(each: &Each<T>, what: Memory) -> Option<&T> {
    match what {
        Memory::Enqueue => Some(&each.enqueue),
        Memory::Dequeue => Some(&each.dequeue),
        Memory::Drop(_) => Some(&each.drop),
        Memory::Queue | Memory::Driver => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_known_by_its_root_and_its_leaves() {
        assert_eq!(kinds("fq limit 10"), ("fq", ""));
        assert_eq!(
            kinds("root handle 1: htb default 3; class add parent 1: classid 1:3 htb rate 1mbit"),
            ("htb", "")
        );
        assert_eq!(kinds("handle 1: prio; qdisc add parent 1:1 handle 2: fq_codel"), ("prio", "fq_codel"));
        assert_eq!(kinds("handle 1: htb;qdisc add parent 1:3 fq_codel flows 8"), ("htb", "fq_codel"));
    }
}
