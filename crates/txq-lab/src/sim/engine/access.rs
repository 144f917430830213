//! Loads, stores and read-modify-writes: what each costs the task, and when other tasks go first.

use std::ops::Range;

use super::{Engine, switch_until, sync};
use crate::sim::ahead::fetch_line;
use crate::sim::cache::{Answer, Kind, NONE};
use crate::sim::machine::Picos;
use crate::sim::os::State;

impl Engine {
    /// Advances the task's clock to `until`, as time spent waiting for lines.
    #[inline]
    fn spend_on_lines(&mut self, until: Picos) {
        if until > self.now {
            let time = until - self.now;
            self.me().spent.lines += time;
            self.now = until;
        }
    }

    /// Waits until the task's loads and stores are complete.
    #[inline]
    fn drain(&mut self) {
        let overlap = self.loads > 0;
        let me = self.me();
        let mut done = me.stores.done();
        if overlap {
            me.loads.clear();
            done = done.max(me.loads.done());
        }
        self.spend_on_lines(done);
    }

    /// Requests a line for a load; the task continues, if it has room for one more.
    #[inline]
    fn load_ahead(&mut self, key: u64, line: u32) {
        match self.ask(key, line, Kind::Load, true) {
            Answer::Hit(cost) => self.pass(cost),
            Answer::Miss(at) => {
                let room = self.me().loads.add(line, at);
                self.spend_on_lines(room);
            }
        }
        self.note(line);
    }

    /// Returns the cost of an access to a line now. `waits` is whether the task waits for the line to arrive.
    #[inline]
    fn ask(&mut self, key: u64, line: u32, kind: Kind, waits: bool) -> Answer {
        self.lines.touch(line);
        let answer = self.lines.access(line, self.cpu, self.now, kind);
        let answer = self.fetch_ahead(key, kind, answer);
        if self.watch.is_some() {
            self.watch_access(key, line, answer, waits);
        }
        answer
    }

    /// Requests the next lines of an array if the CPU accesses it in order. Returns the cost of the access to the line of `key`,
    /// which may be on its way since an earlier request.
    #[inline]
    fn fetch_ahead(&mut self, key: u64, kind: Kind, answer: Answer) -> Answer {
        let Some((way, next)) = self.sequences.follow(key, self.cpu) else { return answer };
        let arrival = way.arrival(key);
        let kind = if kind == Kind::Load { Kind::Load } else { Kind::Write };
        for key in next {
            let line = self.lines.find(key);
            if let Answer::Miss(at) = self.lines.access(line, self.cpu, self.now, kind) {
                way.requested(key, at);
            }
        }
        match (answer, arrival.filter(|at| *at > self.now)) {
            (Answer::Hit(_), Some(at)) => Answer::Miss(at),
            _ => answer,
        }
    }

    /// Uses a line that is private to the CPU, which concerns no other task; returns `None`. Returns the line, unused, if it
    /// is not private.
    #[inline]
    fn use_own(&mut self, key: u64) -> Option<u32> {
        let line = self.lines.find(key);
        // The next lines may be fetched ahead of a private one, too.
        if !self.lines.is_private(line, self.cpu) || self.sequences.covers(key) {
            return Some(line);
        }
        let cost = self.gap;
        if self.watch.is_some() {
            self.watch_access(key, line, Answer::Hit(cost), false);
        }
        self.spend(cost);
        self.note(line);
        None
    }

    /// Spends the time of a hit that nothing waits for.
    #[inline]
    fn pass(&mut self, cost: Picos) {
        self.spend((cost + self.gap).saturating_sub(self.lines.hit(Kind::Load)));
    }

    /// A full fence: waits for the task's loads and stores.
    pub(crate) fn fence(&mut self) {
        self.drain();
        self.spend(self.lines.hit(Kind::Rmw));
    }
}

/// Performs an access to the line of `key` up to its effect, which the caller performs next.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn access(e: *mut Engine, key: u64, kind: Kind) {
    fetch_line(key);
    // SAFETY: as the caller promises; the references end before `sync`.
    let line = unsafe {
        if kind == Kind::Rmw {
            (*e).drain();
        }
        let (line, task) = ((*e).lines.find(key), (*e).current as usize);
        (&mut (*e).ahead)[task].line = line;
        sync(e);
        line
    };
    // SAFETY: the reference ends before the switch.
    let eng = unsafe { &mut *e };
    let mut answer = eng.ask(key, line, kind, true);
    if eng.loads > 0
        && let (Answer::Hit(_), Some(at)) = (answer, eng.me().loads.arrival(line))
        && at > eng.now
    {
        answer = Answer::Miss(at);
    }
    match answer {
        Answer::Hit(cost) => eng.spend(cost),
        Answer::Miss(at) => {
            let time = at - eng.now;
            eng.me().spent.lines += time;
            if at >= eng.queue.first() {
                // SAFETY: as the caller promises.
                unsafe { switch_until(e, at, State::InFlight) };
            }
            // SAFETY: a new reference, after the switch.
            let eng = unsafe { &mut *e };
            eng.now = at;
            eng.me().state = State::Running;
            eng.lines.settle(line, at);
        }
    }
    // SAFETY: as above.
    let eng = unsafe { &mut *e };
    eng.note(line);
}

/// Loads from memory whose users take turns. The task continues before the line arrives, if its core has room for loads.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn load_cell(e: *mut Engine, key: u64) {
    fetch_line(key);
    // SAFETY: as the caller promises; the references end before the switches.
    unsafe {
        if let Some(line) = (*e).use_own(key) {
            if (*e).loads == 0 {
                return access(e, key, Kind::Load);
            }
            sync(e);
            (*e).load_ahead(key, line);
        }
    }
}

/// Loads a pointer from memory whose users take turns, and waits for it.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn load_link(e: *mut Engine, key: u64) {
    fetch_line(key);
    // SAFETY: as the caller promises; the references end before `access`.
    unsafe {
        if ((*e).loads > 0 && (*e).me().loads.any()) || (*e).use_own(key).is_some() {
            access(e, key, Kind::Load);
        }
    }
}

/// Loads from plain memory whose users take turns. The addresses are known at once. The task continues before the lines
/// arrive, if its core has room for loads.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn read(e: *mut Engine, keys: Range<u64>) {
    // SAFETY: as the caller promises; a new reference, after the switches.
    let eng = unsafe {
        if (*e).loads == 0 {
            return read_now(e, keys);
        }
        (*e).lines.fetch_range(&keys);
        sync(e);
        &mut *e
    };
    for key in keys {
        let line = eng.lines.find(key);
        eng.load_ahead(key, line);
    }
}

/// Loads from plain memory as [`read`] does, and waits for the lines, which arrive at the same time: the task needs their
/// contents to go on.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn read_now(e: *mut Engine, keys: Range<u64>) {
    // SAFETY: as the caller promises; a new reference, after the switches.
    let eng = unsafe {
        (*e).lines.fetch_range(&keys);
        sync(e);
        &mut *e
    };
    let mut until = eng.now;
    for key in keys {
        let line = eng.lines.find(key);
        match eng.ask(key, line, Kind::Load, true) {
            Answer::Hit(cost) => eng.spend(cost),
            Answer::Miss(at) => until = until.max(at),
        }
        eng.note(line);
    }
    eng.spend_on_lines(until);
}

/// Loads from plain memory as [`read`] does, and then stores to it.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn update(e: *mut Engine, keys: Range<u64>) {
    // SAFETY: as the caller promises.
    unsafe {
        read(e, keys.clone());
        keys.for_each(|key| store_plain(e, key));
    }
}

/// Uses lines of plain memory, and writes those that say so. Their addresses are known at once, and the task waits until they
/// have arrived for it to read. A line that the CPU has costs nothing: the price of the code contains it.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn move_lines(e: *mut Engine, keys: impl Iterator<Item = (u64, bool)> + Clone) {
    // SAFETY: as the caller promises; a new reference, after the switches.
    let eng = unsafe {
        sync(e);
        &mut *e
    };
    let mut until = eng.now;
    for (key, _) in keys.clone() {
        let line = eng.lines.find(key);
        if eng.lines.is_private(line, eng.cpu) {
            continue;
        }
        if let Answer::Miss(at) = eng.ask(key, line, Kind::Load, true) {
            until = until.max(at);
        }
        eng.note(line);
    }
    eng.spend_on_lines(until);
    for (key, _) in keys.filter(|&(_, writes)| writes) {
        // SAFETY: as the caller promises; the reference ends before the switch.
        unsafe {
            let line = (*e).lines.find(key);
            if !(*e).lines.is_private(line, (*e).cpu) {
                store_in_turn(e, key, line);
            }
        }
    }
}

/// Stores to memory whose users take turns. The task waits only if its store buffer is full.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn store(e: *mut Engine, key: u64) {
    fetch_line(key);
    // SAFETY: as the caller promises.
    unsafe { store_plain(e, key) };
}

/// Stores as [`store`] does, to memory that this program itself need not touch.
///
/// # Safety
/// As [`switch`](super::switch).
unsafe fn store_plain(e: *mut Engine, key: u64) {
    // SAFETY: as the caller promises; the reference ends before `store_in_turn`.
    unsafe {
        if let Some(line) = (*e).use_own(key) {
            store_in_turn(e, key, line);
        }
    }
}

/// Stores to plain memory whose users take turns.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn write(e: *mut Engine, keys: Range<u64>) {
    // SAFETY: as the caller promises; the reference ends before the stores.
    unsafe {
        (*e).lines.fetch_range(&keys);
        keys.for_each(|key| store_plain(e, key));
    }
}

/// Stores with release ordering: the store completes only when all earlier loads and stores of the task are complete, so a
/// task that observes it observes those, too.
///
/// # Safety
/// As [`switch`](super::switch).
pub(crate) unsafe fn release(e: *mut Engine, key: u64) {
    fetch_line(key);
    // SAFETY: as the caller promises; the references end before the switches.
    unsafe {
        let line = (*e).lines.find(key);
        store_in_turn(e, key, line);
        let (me, now) = ((*e).me(), (*e).now);
        let done = me.stores.done().max(me.loads.done());
        if done > now {
            (*e).lines.keep(line, done);
        }
    }
}

/// Stores to a line that other CPUs may use, in the order of time.
///
/// # Safety
/// As [`switch`](super::switch).
unsafe fn store_in_turn(e: *mut Engine, key: u64, line: u32) {
    // SAFETY: as the caller promises; a new reference, after the switches.
    let eng = unsafe {
        sync(e);
        &mut *e
    };
    match eng.ask(key, line, Kind::Store, false) {
        Answer::Hit(cost) => eng.pass(cost),
        Answer::Miss(mut at) => {
            // The request for writing follows the line that a load has requested.
            if eng.loads > 0
                && let Some(read) = eng.me().loads.arrival(line)
            {
                at += read.saturating_sub(eng.now);
                eng.lines.keep(line, at);
            }
            eng.spend(eng.gap);
            let room = eng.me().stores.add(at);
            eng.spend_on_lines(room);
        }
    }
    eng.note(line);
}

/// Wakes all tasks that wait for the line of the last access, which was a write; they check the line again.
///
/// # Safety
/// As [`switch`](super::switch).
#[inline]
pub(crate) unsafe fn written(e: *mut Engine) {
    // SAFETY: no switch here.
    let eng = unsafe { &mut *e };
    let line = eng.line;
    while eng.lines.first_waiter(line) != NONE {
        let (task, now) = (eng.lines.first_waiter(line), eng.now);
        eng.lines.unwait(task);
        eng.stop_waiting(task, now);
        if eng.os.sleeping {
            eng.spend(eng.os.wake);
        }
    }
}
