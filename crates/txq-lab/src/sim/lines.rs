//! The cost of each cache line, by the object on it.
//!
//! The data plane names its parts once their addresses are final ([`txq_core::arch::Arch::name`]); objects as numerous as packets
//! share one name. Counting is off by default; an access then costs one pointer check. A line without a name is reported by
//! the phase that uses it first.
//!
//! A task that waits for a lock waits on a line of its own stack, and its predecessor writes there. That cost belongs to the
//! lock, and so to the line that the task used before.

mod names;

use serde::Serialize;

use crate::sim::cache::Answer;
use crate::sim::engine::Engine;
use crate::sim::ledger::Phase;
use crate::sim::machine::Picos;
use names::{Kind, Names};

pub(crate) use names::{ask, forget, name, name_stack};

/// The cost of all lines of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineUse {
    /// Name of the object there; `None` for lines without a name.
    pub name: Option<String>,
    /// The phase with most of the time; for lines without a name, the phase that used them first.
    pub phase: Phase,
    /// Number of lines used.
    pub lines: u64,
    /// Number of accesses.
    pub accesses: u64,
    /// Number of accesses for which the line came from another core or from memory.
    pub transfers: u64,
    /// Time that tasks waited for those transfers, in picoseconds, summed over all. A task does not wait for a line that it
    /// stores to. With overlap, a line that it loads counts in full although the task continues meanwhile.
    pub time: Picos,
    /// Time that tasks waited for another task to write a line.
    pub waits: Picos,
    /// Fraction of the time during which the busiest line was in transfer.
    pub busiest: f64,
}

/// Counts of one kind in one phase.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    accesses: u64,
    transfers: u64,
    time: Picos,
    waits: Picos,
}

type Uses = [Use; Phase::ALL.len()];

/// A line that was used.
#[derive(Debug, Clone, Copy)]
struct LineState {
    kind: Kind,
    /// Whether it was used since counting began.
    counts: bool,
    /// When its last transfer ends, and the sum of its transfer times.
    until: Picos,
    busy: Picos,
}

const UNSEEN: LineState = LineState { kind: Kind::NONE, counts: false, until: 0, busy: 0 };

/// The state of counting.
pub(crate) struct Watch {
    names: Names,
    from: Picos,
    uses: Vec<Uses>,
    /// By line number.
    lines: Vec<LineState>,
    /// The kind that each task used last, stacks excluded.
    last: Vec<Kind>,
}

impl Watch {
    /// Starts counting at `from`.
    fn new(names: Names, tasks: usize, from: Picos) -> Self {
        let uses = vec![Uses::default(); names.kinds()];
        Self { names, from, uses, lines: Vec::new(), last: vec![Kind::NONE; tasks] }
    }

    fn seen(&mut self, key: u64, line: u32, phase: Phase) -> &mut LineState {
        let line = line as usize;
        if line >= self.lines.len() {
            self.lines.resize(line + 1, UNSEEN);
        }
        let seen = &mut self.lines[line];
        if seen.kind == Kind::NONE {
            seen.kind = self.names.of(key, phase);
        }
        seen
    }

    /// Returns the kind that is charged for a task's use of a line: for its stack, the kind that it used before.
    fn whose(&mut self, kind: Kind, task: u32) -> Kind {
        let last = &mut self.last[task as usize];
        if kind != Kind::STACK {
            *last = kind;
        }
        if *last == Kind::NONE { kind } else { *last }
    }

    fn report(&self, now: Picos) -> Vec<LineUse> {
        let time = now.saturating_sub(self.from).max(1) as f64;
        let mut lines = vec![(0_u64, 0); self.uses.len()];
        for seen in self.lines.iter().filter(|seen| seen.counts) {
            let (count, busy) = &mut lines[seen.kind.index()];
            (*count, *busy) = (*count + 1, seen.busy.max(*busy));
        }
        let kinds = self.uses.iter().zip(lines).enumerate();
        let used = kinds.filter(|(_, (uses, _))| uses.iter().any(|part| part.accesses > 0));
        let mut report: Vec<_> = used
            .map(|(kind, (uses, (lines, busy)))| {
                let all = uses.iter().fold(Use::default(), |sum, part| Use {
                    accesses: sum.accesses + part.accesses,
                    transfers: sum.transfers + part.transfers,
                    time: sum.time + part.time,
                    waits: sum.waits + part.waits,
                });
                let most = Phase::ALL.into_iter().max_by_key(|&phase| {
                    let part = &uses[phase as usize];
                    (part.time + part.waits, part.accesses)
                });
                let (name, phase) = self.names.told(kind);
                LineUse {
                    name,
                    phase: phase.or(most).unwrap_or(Phase::Private),
                    lines,
                    accesses: all.accesses,
                    transfers: all.transfers,
                    time: all.time,
                    waits: all.waits,
                    // A transfer may end after the counted time.
                    busiest: (busy as f64 / time).min(1.0),
                }
            })
            .collect();
        report.sort_by(|a, b| (b.time + b.waits, &a.name).cmp(&(a.time + a.waits, &b.name)));
        report
    }
}

impl Engine {
    /// Counts lines from `from` on, by the names given until now.
    pub(crate) fn watch_lines(&mut self, from: Picos) {
        self.watch = Some(Box::new(Watch::new(names::take(), self.tasks.len(), from)));
    }

    /// Returns the counts until `now`.
    pub(crate) fn line_uses(&self, now: Picos) -> Vec<LineUse> {
        self.watch.as_ref().map(|watch| watch.report(now)).unwrap_or_default()
    }

    /// Counts an access by the running task. `waits` is whether it waits for the line to arrive.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_access(&mut self, key: u64, line: u32, answer: Answer, waits: bool) {
        let (now, task) = (self.now, self.current);
        let phase = self.tasks[task as usize].phase;
        let Some(watch) = &mut self.watch else { return };
        let counts = now >= watch.from;
        let seen = watch.seen(key, line, phase);
        let kind = seen.kind;
        if !counts {
            watch.whose(kind, task);
            return;
        }
        seen.counts = true;
        let mut way = None;
        if let Answer::Miss(at) = answer {
            way = Some(at.saturating_sub(now));
            seen.busy += at.saturating_sub(now.max(seen.until));
            seen.until = seen.until.max(at);
        }
        let kind = watch.whose(kind, task);
        let part = &mut watch.uses[kind.index()][phase as usize];
        part.accesses += 1;
        part.transfers += u64::from(way.is_some());
        part.time += way.filter(|_| waits).unwrap_or_default();
    }

    /// Counts the running task's wait for a write to a line.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_wait(&mut self, line: u32, time: Picos) {
        let (now, task) = (self.now, self.current);
        let phase = self.tasks[task as usize].phase;
        let Some(watch) = self.watch.as_mut().filter(|watch| now >= watch.from) else { return };
        // The task has just read it.
        let kind = watch.lines.get(line as usize).map_or(Kind::unnamed(phase), |seen| seen.kind);
        let kind = watch.whose(kind, task);
        watch.uses[kind.index()][phase as usize].waits += time;
    }
}

#[cfg(test)]
mod tests;
