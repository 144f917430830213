//! What each cache line costs, by what lies on it.
//!
//! The data plane names its parts where they have come to stay ([`txq::arch::Arch::name`]), and what lies on as many lines as
//! packets do is named as a whole. Counted is from when it is asked for; until then an access pays a look at a pointer.
//! A line without a name is told by the phase in which it is used first.
//!
//! Who waits for a lock waits on a line of its own stack, and who is before it writes there. That belongs to the lock, and
//! so to the line that the task used before.

mod names;

use serde::Serialize;

use crate::cache::Answer;
use crate::engine::Engine;
use crate::ledger::Phase;
use crate::machine::Picos;
use names::{Kind, Names};

pub(crate) use names::{ask, forget, name, name_stack};

/// What lines of a kind cost, all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineUse {
    /// What lies there; `None` for what has no name.
    pub name: Option<String>,
    /// Where most of the time goes; for lines without a name, where they are used first.
    pub phase: Phase,
    /// How many lines were used.
    pub lines: u64,
    /// How often.
    pub accesses: u64,
    /// How often one had to come from another core or from memory.
    pub transfers: u64,
    /// How long tasks waited for that, in picoseconds, all together. They do not wait for a line that they store to.
    pub time: Picos,
    /// How long tasks waited for one to be written.
    pub waits: Picos,
    /// The part of the time in which the busiest of the lines was on its way.
    pub busiest: f64,
}

/// What was counted of a kind in a phase.
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
struct Seen {
    kind: Kind,
    /// It was used since the counting began.
    counts: bool,
    /// When its last transfer ends, and how long there was one.
    until: Picos,
    busy: Picos,
}

const UNSEEN: Seen = Seen { kind: Kind::NONE, counts: false, until: 0, busy: 0 };

/// What is counted.
pub(crate) struct Watch {
    names: Names,
    from: Picos,
    uses: Vec<Uses>,
    /// By the lines' numbers.
    lines: Vec<Seen>,
    /// What each task used last, stacks apart.
    last: Vec<Kind>,
}

impl Watch {
    /// Counts from a time on.
    fn new(names: Names, tasks: usize, from: Picos) -> Self {
        let uses = vec![Uses::default(); names.kinds()];
        Self { names, from, uses, lines: Vec::new(), last: vec![Kind::NONE; tasks] }
    }

    fn seen(&mut self, key: u64, line: u32, phase: Phase) -> &mut Seen {
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

    /// Whose the costs of a line are, which a task uses now.
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
                    // A transfer may end after the time.
                    busiest: (busy as f64 / time).min(1.0),
                }
            })
            .collect();
        report.sort_by(|a, b| (b.time + b.waits, &a.name).cmp(&(a.time + a.waits, &b.name)));
        report
    }
}

impl Engine {
    /// Counts lines from a time on, by the names that were given until now.
    pub(crate) fn watch_lines(&mut self, from: Picos) {
        self.watch = Some(Box::new(Watch::new(names::take(), self.tasks.len(), from)));
    }

    /// What was counted until `now`.
    pub(crate) fn line_uses(&self, now: Picos) -> Vec<LineUse> {
        self.watch.as_ref().map(|watch| watch.report(now)).unwrap_or_default()
    }

    /// The task that runs uses a line, and `waits` for it to come, or does not.
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

    /// The task that runs has waited for a line to be written.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_wait(&mut self, line: u32, time: Picos) {
        let (now, task) = (self.now, self.current);
        let phase = self.tasks[task as usize].phase;
        let Some(watch) = self.watch.as_mut().filter(|watch| now >= watch.from) else { return };
        // The task has just looked at it.
        let kind = watch.lines.get(line as usize).map_or(Kind::unnamed(phase), |seen| seen.kind);
        let kind = watch.whose(kind, task);
        watch.uses[kind.index()][phase as usize].waits += time;
    }
}

#[cfg(test)]
mod tests;
