//! Which lines the calls of a qdisc move, from its [`State`]: the state of `qdiscs.toml`, in the form that the simulation reads.
//!
//! A line that the CPU has costs nothing here: the measured time of the qdisc's code contains its hits.

use std::sync::OnceLock;

use txq_core::arch::Memory;

use crate::sim::state::{Each, PLAIN, RECENT_CALLS, State, States, Times};

/// A line of several, and whether it is written.
type Line = (u8, bool);

/// The lines of a qdisc.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moves {
    fixed: Each<Vec<Line>>,
    flow: Each<Vec<Line>>,
    /// How many further lines a packet's call accesses, in 1024ths: those of the call before, those of recent calls, and any of
    /// [`among`](Self::among).
    others: [Each<u64>; 3],
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
        let parts = |of: &Each<f64>| Each::of(of.all().map(part));
        let [all, again, recent] = [&state.others, &state.again, &state.recent].map(parts);
        let rest = |kind: usize| all.all()[kind].saturating_sub(again.all()[kind] + recent.all()[kind]);
        let any = Each::of([rest(0), rest(1), rest(2)]);
        Self {
            fixed: Each::of(state.fixed.all().map(lines)),
            flow: Each::of(state.flow.all().map(lines)),
            others: [again, recent, any],
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

    /// Returns how many further lines a packet's call accesses, by a random number: those of the call before, those of recent calls,
    /// and any.
    pub(crate) fn others(&self, what: Memory, random: u64) -> [u64; 3] {
        let mut random = random;
        [0, 1, 2].map(|age| {
            let all = pick(&self.others[age], what).copied().unwrap_or(0);
            let part = random & 1023;
            random >>= 10;
            (all >> 10) + u64::from(part < all & 1023)
        })
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

/// The lines that the last calls of a qdisc accessed, but for the qdisc's own: those of the packets' flows, and the further ones.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// A ring of calls.
    calls: [Vec<u64>; 1 + 1 + RECENT_CALLS],
    now: usize,
}

impl Recent {
    /// Begins a call.
    pub(crate) fn begin(&mut self) {
        self.now = (self.now + 1) % self.calls.len();
        self.calls[self.now].clear();
    }

    /// Notes a line of the call.
    pub(crate) fn note(&mut self, key: u64) {
        self.calls[self.now].push(key);
    }

    /// Returns a line of the call before, by a random number; `None` if it had none.
    pub(crate) fn again(&self, random: u64) -> Option<u64> {
        self.of(1, random)
    }

    /// Returns a line of a recent call, by a random number; `None` if that call had none.
    pub(crate) fn recent(&self, random: u64) -> Option<u64> {
        self.of(2 + random as usize % RECENT_CALLS, random >> 32)
    }

    /// Returns a line of the call that is `back` calls ago.
    fn of(&self, back: usize, random: u64) -> Option<u64> {
        let of = &self.calls[(self.now + self.calls.len() - back) % self.calls.len()];
        of.get(random.checked_rem(of.len() as u64)? as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_lines_are_of_the_last_calls() {
        let mut recent = Recent::default();
        assert_eq!((recent.again(7), recent.recent(7)), (None, None));
        for call in 0..40 {
            recent.begin();
            recent.note(2 * call);
            recent.note(2 * call + 1);
        }
        recent.begin();
        recent.note(99);
        let seen = |of: &dyn Fn(u64) -> Option<u64>| {
            let all = (0..10_000_u64).filter_map(|n| of(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            all.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(seen(&|random| recent.again(random)), [78, 79].into());
        assert_eq!(seen(&|random| recent.recent(random)), (78 - 2 * RECENT_CALLS as u64..78).collect());
    }

    #[test]
    fn the_parts_of_further_lines_are_all_of_them() {
        for state in &States::known().qdisc {
            let moves = Moves::new(state);
            for (what, all) in
                [Memory::Enqueue, Memory::Dequeue, Memory::Drop(1)].into_iter().zip(state.others.all())
            {
                const RUNS: u64 = 1 << 14;
                let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n >> 3;
                let sum: u64 = (0..RUNS).map(|n| moves.others(what, random(n)).iter().sum::<u64>()).sum();
                assert!((sum as f64 / RUNS as f64 - all).abs() < 0.1, "{}: {what:?}", state.name);
            }
        }
    }

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
