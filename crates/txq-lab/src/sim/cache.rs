//! Cache lines, and what coherence makes an access cost.
//!
//! A line is modified by one core, or shared by several, or in memory. An access that needs another state asks for a
//! *transfer*. A line serves its transfers one after the other, in the order of the requests: that is the throughput of a
//! contended line. A transfer takes the time of the distance to the line's owner.
//!
//! A request and the snoop that it causes need a part of that time until they reach the owner
//! ([`Line::snoop`](crate::sim::machine::Line::snoop)). Until then the owner uses the line as before, so a CPU that visits a line
//! costs its owner less than two transfers. A request that was made before the owner had the line reaches it only
//! [`Line::hold`](crate::sim::machine::Line::hold) after its arrival. Otherwise a failed compare-and-swap would find its line gone
//! at every retry; real cores finish the second try first. Transfers to readers overlap: the next one begins
//! [`Line::read_gap`](crate::sim::machine::Line::read_gap) later.
//!
//! A store need not wait for its line (`stores.rs`), so a CPU may have requested lines that it does not have yet. It can
//! read and write again what it has stored there.
//!
//! A crowd makes each transfer a bit slower ([`Line::crowd`](crate::sim::machine::Line::crowd)). A load need not be waited for,
//! either (`loads.rs`). The lines of an array may be requested ahead (`sequence.rs`).
//!
//! Simplifications: caches have no size limit, nothing but arrays is prefetched, sharers lose a line when its next writer
//! requests it, and transfers of different lines do not delay each other.

use crate::sim::machine::{Access, Machine, Picos, picos};
use crate::sim::topology::{Distance, Topology};

mod place;
mod table;

use table::Table;

/// No CPU, no task, or no line.
pub(crate) const NONE: u32 = u32::MAX;

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    /// A store that does not wait for its line. Its effect is immediate, so the line's owner loses the line at once.
    Store,
    /// A store that waits for its line, or a load that fetches the line for writing.
    Write,
    /// A read-modify-write.
    Rmw,
}

/// The cost of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It takes this long, and concerns no other CPU.
    Hit(Picos),
    /// It completes at this time.
    Miss(Picos),
}

/// Two of them fit in a line of the host.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Line {
    /// When the last transfer to a writer arrives; after transfers to readers, when the next transfer may begin.
    free_at: Picos,
    /// The CPU that owns the line if it is exclusive, now or when all transfers are done.
    owner: u32,
    exclusive: bool,
    /// Number of transfers in that queue.
    queued: u16,
    /// The queue of transfers that have not begun and will end an exclusive ownership.
    first: u32,
    last: u32,
    /// The task that has waited longest for a write to the line.
    waits_first: u32,
    /// Number in the order of first accesses.
    number: u32,
}

const FRESH_LINE: Line = Line {
    free_at: 0,
    owner: NONE,
    exclusive: false,
    queued: 0,
    first: NONE,
    last: NONE,
    waits_first: NONE,
    number: NONE,
};

const _: () = assert!(size_of::<Line>() == 32);

/// A transfer that will end another CPU's ownership, until it begins.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    /// The line's owner until then.
    from: u32,
    start: Picos,
    /// The next transfer of the line; for an unused entry, the next unused one.
    next: u32,
}

/// A waiting task's neighbours on its line's list.
#[derive(Debug, Clone, Copy)]
struct Wait {
    line: u32,
    /// The first entry's `prev` is the last one.
    prev: u32,
    next: u32,
}

#[derive(Debug)]
struct Costs {
    hit: Picos,
    rmw: Picos,
    /// By [`Distance`].
    transfer: [Picos; 6],
    memory: Picos,
    /// Parts of a transfer, in 1024ths: machines with other floating-point units get the same times.
    snoop: Picos,
    hold: Picos,
    crowd: Picos,
    read_gap: Picos,
}

/// The number of waiting requests beyond which further ones do not slow a transfer.
///
/// The source of this and of [`Line::crowd`](crate::sim::machine::Line::crowd) is github.com/travisdowns/concurrency-hierarchy-bench
/// (2020), "atomic add", the time of a thread's addition divided by the number of threads. On the mesh of a Graviton 2 that is
/// 8.5, 8.7, 9.4, 9.4 and 9.4 ns with 2, 4, 6, 8 and 16 threads. On the ring of a Skylake it is 22.0, 23.3 and 24.1 with 2, 3
/// and 4, on that of an Ice Lake 16.4, 16.4 and 17.4.
const CROWD_REQUESTS: u16 = 4;

/// Returns a part of a transfer's time, given in 1024ths.
fn part(time: Picos, part: Picos) -> Picos {
    (time * part) >> 10
}

/// All lines that were touched, at the places given by the table.
pub(crate) struct Lines {
    table: Table,
    lines: Vec<Line>,
    /// How many lines were touched.
    touched: u32,
    /// For each line, the set of cores that share it, in `words` words.
    sharers: Vec<u64>,
    words: usize,
    transfers: Vec<Transfer>,
    /// The first unused transfer.
    unused: u32,
    waits: Vec<Wait>,
    topology: Topology,
    costs: Costs,
}

impl Lines {
    pub(crate) fn new(machine: &Machine) -> Self {
        let Access { hit, rmw, same_core, same_complex, same_die, same_socket, other_socket, memory, .. } =
            machine.access;
        let topology = Topology::new(&machine.topology);
        let parts = |part: f64| (part * 1024.0).round() as Picos;
        Self {
            table: Table::new(),
            lines: Vec::new(),
            touched: 0,
            sharers: Vec::new(),
            words: topology.cores().div_ceil(64) as usize,
            transfers: Vec::new(),
            unused: NONE,
            waits: Vec::new(),
            topology,
            costs: Costs {
                hit: picos(hit),
                rmw: picos(rmw),
                transfer: [hit, same_core, same_complex, same_die, same_socket, other_socket].map(picos),
                memory: picos(memory),
                snoop: parts(machine.line.snoop),
                hold: parts(machine.line.hold),
                crowd: parts(machine.line.crowd),
                read_gap: picos(machine.line.read_gap),
            },
        }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Adds a task.
    pub(crate) fn add_task(&mut self) {
        self.waits.push(Wait { line: NONE, prev: NONE, next: NONE });
    }

    /// Returns whether `cpu` owns the line exclusively and no other CPU has requested it: then its accesses concern no other
    /// CPU.
    #[inline]
    pub(crate) fn is_private(&self, line: u32, cpu: u32) -> bool {
        let line = &self.lines[line as usize];
        line.exclusive && line.owner == cpu && line.first == NONE
    }

    /// Returns the cost of a hit.
    #[inline]
    pub(crate) fn hit(&self, kind: Kind) -> Picos {
        if kind == Kind::Rmw { self.costs.rmw } else { self.costs.hit }
    }

    /// Removes transfers that have begun.
    #[inline]
    pub(crate) fn settle(&mut self, line: u32, now: Picos) {
        let line = &mut self.lines[line as usize];
        while line.first != NONE && self.transfers[line.first as usize].start <= now {
            let begun = &mut self.transfers[line.first as usize];
            let next = std::mem::replace(&mut begun.next, self.unused);
            self.unused = std::mem::replace(&mut line.first, next);
            line.queued -= 1;
        }
    }

    /// Notes that the line's last write completes at `until`: no other CPU gets the line before.
    #[inline]
    pub(crate) fn keep(&mut self, line: u32, until: Picos) {
        let line = &mut self.lines[line as usize];
        line.free_at = line.free_at.max(until);
    }

    /// Performs an access by a CPU; returns its cost.
    pub(crate) fn access(&mut self, index: u32, cpu: u32, now: Picos, kind: Kind) -> Answer {
        self.settle(index, now);
        let line = self.lines[index as usize];
        // The CPU that owns the line exclusively now.
        let holder = match line.first {
            NONE if line.exclusive => line.owner,
            NONE => NONE,
            first => self.transfers[first as usize].from,
        };
        let extra = if kind == Kind::Rmw { self.costs.rmw } else { 0 };
        // It knows the values that it stored before the line arrived.
        let asked = line.exclusive && line.owner == cpu && kind != Kind::Rmw;
        if holder == cpu || asked {
            return Answer::Hit(self.hit(kind));
        }
        if holder != NONE && self.topology.distance(holder, cpu) == Distance::Core {
            if line.first == NONE {
                self.lines[index as usize].owner = cpu;
            }
            return Answer::Hit(self.costs.transfer[Distance::Core as usize] + extra);
        }
        let shares = !line.exclusive && self.shares(index, cpu);
        if kind == Kind::Load && shares {
            return Answer::Hit(self.costs.hit);
        }
        let way = if line.exclusive {
            self.costs.transfer[self.topology.distance(line.owner, cpu) as usize]
        } else if line.owner == NONE {
            self.costs.memory
        } else if kind == Kind::Load {
            self.costs.transfer[self.nearest(index, cpu) as usize]
        } else {
            match self.farthest(index, cpu) {
                // Only this core shared it.
                Distance::Same => {
                    self.own(index, cpu);
                    return Answer::Hit(self.hit(kind));
                }
                distance => self.costs.transfer[distance as usize],
            }
        };
        let (start, cost) = match line.exclusive {
            true => {
                let Costs { snoop, hold, crowd, .. } = self.costs;
                let before = part(way, snoop);
                // The first one in the queue is served; the others wait.
                let waiting = line.queued.saturating_sub(1).min(CROWD_REQUESTS);
                let way = way + part(way, crowd * Picos::from(waiting));
                let start = (now + before).max(line.free_at + part(way, hold));
                if kind != Kind::Store || line.free_at > now {
                    self.queue(index, Transfer { from: line.owner, start, next: NONE });
                }
                (start, way - before)
            }
            false => (now.max(line.free_at), way),
        };
        let complete = start + cost + extra;
        if kind == Kind::Load && line.owner != NONE {
            if line.exclusive {
                self.clear(index);
                self.share(index, line.owner);
                self.lines[index as usize].exclusive = false;
            }
            self.share(index, cpu);
            self.lines[index as usize].free_at = start + self.costs.read_gap;
        } else {
            self.own(index, cpu);
            self.lines[index as usize].free_at = complete;
        }
        Answer::Miss(complete)
    }

    fn own(&mut self, line: u32, cpu: u32) {
        let line = &mut self.lines[line as usize];
        line.owner = cpu;
        line.exclusive = true;
    }

    fn queue(&mut self, line: u32, transfer: Transfer) {
        let at = match self.unused {
            NONE => {
                self.transfers.push(transfer);
                self.transfers.len() as u32 - 1
            }
            unused => {
                self.unused = self.transfers[unused as usize].next;
                self.transfers[unused as usize] = transfer;
                unused
            }
        };
        let line = &mut self.lines[line as usize];
        match line.first {
            NONE => line.first = at,
            _ => self.transfers[line.last as usize].next = at,
        }
        line.last = at;
        line.queued += 1;
    }

    fn set(&self, line: u32) -> &[u64] {
        let from = line as usize * self.words;
        &self.sharers[from..from + self.words]
    }

    fn clear(&mut self, line: u32) {
        let from = line as usize * self.words;
        self.sharers[from..from + self.words].fill(0);
    }

    fn share(&mut self, line: u32, cpu: u32) {
        let core = self.topology.core(cpu);
        self.sharers[line as usize * self.words + core as usize / 64] |= 1 << (core % 64);
    }

    fn shares(&self, line: u32, cpu: u32) -> bool {
        let core = self.topology.core(cpu);
        self.set(line)[core as usize / 64] >> (core % 64) & 1 != 0
    }

    /// Returns whether a core of a range shares the line.
    fn any(&self, line: u32, cores: std::ops::Range<u32>) -> bool {
        let set = self.set(line);
        (cores.start / 64..cores.end.div_ceil(64)).any(|word| {
            let (from, to) = (cores.start.max(word * 64), cores.end.min(word * 64 + 64));
            let mask = (u64::MAX >> (64 - (to - from))) << (from % 64);
            set[word as usize] & mask != 0
        })
    }

    /// Returns the distance of the nearest core that shares the line.
    fn nearest(&self, line: u32, cpu: u32) -> Distance {
        let shares = |distance: &Distance| self.any(line, self.topology.within(cpu, *distance));
        use Distance::{Complex, Die, Socket};
        [Complex, Die, Socket].into_iter().find(shares).unwrap_or(Distance::Far)
    }

    /// Returns the distance of the farthest core that shares the line; [`Distance::Same`] if no other core does.
    fn farthest(&self, line: u32, cpu: u32) -> Distance {
        let set = self.set(line);
        let Some(low) = set.iter().position(|word| *word != 0) else { return Distance::Same };
        let high = set.iter().rposition(|word| *word != 0).unwrap_or(low);
        let least = low as u32 * 64 + set[low].trailing_zeros();
        let most = high as u32 * 64 + 63 - set[high].leading_zeros();
        // The cores within a distance are adjacent.
        let shares = |distance: Distance| {
            let cores = self.topology.within(cpu, distance);
            cores.contains(&least) && cores.contains(&most)
        };
        if shares(Distance::Core) {
            Distance::Same
        } else if shares(Distance::Complex) {
            Distance::Complex
        } else if shares(Distance::Die) {
            Distance::Die
        } else if shares(Distance::Socket) {
            Distance::Socket
        } else {
            Distance::Far
        }
    }
}

/// Tasks that wait for writes.
impl Lines {
    /// Appends the task to the line's waiters.
    pub(crate) fn wait(&mut self, line: u32, task: u32) {
        let at = &mut self.lines[line as usize];
        let prev = match at.waits_first {
            NONE => {
                at.waits_first = task;
                task
            }
            first => {
                let last = std::mem::replace(&mut self.waits[first as usize].prev, task);
                self.waits[last as usize].next = task;
                last
            }
        };
        self.waits[task as usize] = Wait { line, prev, next: NONE };
    }

    /// Removes the task from the waiters of its line.
    pub(crate) fn unwait(&mut self, task: u32) {
        let Wait { line, prev, next } = self.waits[task as usize];
        if line == NONE {
            return;
        }
        let first = &mut self.lines[line as usize].waits_first;
        if *first == task {
            *first = next;
        } else {
            self.waits[prev as usize].next = next;
        }
        let (first, after) = (*first, if next == NONE { *first } else { next });
        if first != NONE {
            self.waits[after as usize].prev = prev;
        }
        self.waits[task as usize].line = NONE;
    }

    /// Returns the task that has waited longest, or [`NONE`].
    #[inline]
    pub(crate) fn first_waiter(&self, line: u32) -> u32 {
        self.lines[line as usize].waits_first
    }
}

#[cfg(test)]
mod tests;
