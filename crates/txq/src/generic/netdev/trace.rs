//! Traces of a device, for a reader.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use txq_core::arch::{Arch, Native};
use txq_core::sync::lossy::Consumer;
use txq_sched::Instant;
use txq_sched::tc::Handle;

use super::tree::Tree;
use super::{NetDev, nanos};
use crate::generic::shared::Shared;
use crate::generic::trace::{Event, EventKind, Filter, Stored, Tap, Tracer};

/// The events that a trace's ring holds, unless the program sets another number.
const CAPACITY: usize = 16384;

/// A trace: reads the events of a device's packets, while it exists. Made by [`NetDev::trace`].
///
/// A trace keeps no device alive, and no thread of the device waits for it. If its ring is full when a packet has an event,
/// that event is lost, and [`lost`](Trace::lost) counts it.
pub struct Trace<A: Arch = Native> {
    shared: Weak<Shared<A>>,
    tracer: Arc<Tracer<A>>,
    tap: Arc<Tap<A>>,
    events: Consumer<A, Stored>,
    filter: Filter,
    /// The packets that are in a qdisc or have left it for the driver, by their buffers.
    queued: HashMap<u64, Queued>,
    /// The losses up to the last event.
    seen_lost: u64,
}

/// A packet that was enqueued.
struct Queued {
    since: Instant,
    txq: Option<u16>,
    queue: Option<(Handle, Handle)>,
    /// Whether the packet is in the qdisc, and not in the driver.
    inside: bool,
}

impl<A: Arch> NetDev<A> {
    /// Begins a trace: from now on, each step of a packet that passes `filter` is an event for the reader.
    #[inline(never)]
    pub fn trace(&self, filter: Filter) -> Trace<A> {
        self.trace_with(filter, CAPACITY)
    }

    /// As [`trace`](NetDev::trace), with a ring of at least `capacity` events instead of 16,384. An event takes about 250 bytes.
    #[inline(never)]
    pub fn trace_with(&self, filter: Filter, capacity: usize) -> Trace<A> {
        let (tap, events) = self.shared.begin_trace(filter.clone(), capacity);
        Trace {
            shared: Arc::downgrade(&self.shared),
            tracer: self.shared.tracer.clone(),
            tap,
            events,
            filter,
            queued: HashMap::new(),
            seen_lost: 0,
        }
    }

    /// Writes the handles of the qdiscs where traced threads read them.
    pub(super) fn publish_names(&self, tree: &Tree) {
        let shared = &self.shared;
        shared
            .roots
            .iter()
            .filter(|root| !shared.is_in_force(root.index))
            .for_each(|root| root.set_names(None));
        let has_qdisc = shared.rule().shape() != super::Shape::NoQueue;
        for (minor, root) in (1..).zip(shared.roots_in_force()) {
            let names = match &tree.children {
                Some(children) => {
                    let handle = children.get(usize::from(minor) - 1).copied().unwrap_or_default();
                    (handle, Handle::new(tree.root.major(), minor))
                }
                None => (tree.root, Handle::ROOT),
            };
            root.set_names(has_qdisc.then_some(names));
        }
    }
}

impl<A: Arch> Trace<A> {
    /// Returns the next event; `None` if there is none yet.
    #[inline(never)]
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            let (mut event, lost) = self.events.pop(|stored| (stored.event.clone(), stored.lost))?;
            if lost != self.seen_lost {
                // An event of any packet may be missing.
                self.queued.clear();
                self.seen_lost = lost;
            }
            self.complete(&mut event);
            if self.filter.passes(&event) {
                return Some(event);
            }
        }
    }

    /// Returns the next event, for which it waits at most `timeout`.
    #[inline(never)]
    pub fn next_within(&mut self, timeout: Duration) -> Option<Event> {
        let end = A::now().saturating_add(nanos(timeout));
        loop {
            match self.try_next() {
                None if A::now() < end && !self.is_over() => std::thread::sleep(EVENT_POLL.min(timeout)),
                event => return event,
            }
        }
    }

    /// Returns how many events were lost, because the reader had not made room for them.
    #[inline(never)]
    pub fn lost(&self) -> u64 {
        self.tracer.lost(&self.tap)
    }

    /// Returns whether the device was shut down or dropped, so that no further events come.
    #[inline(never)]
    pub fn is_over(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| shared.is_stopping())
    }

    /// Adds to an event what earlier events of its packet say.
    fn complete(&mut self, event: &mut Event) {
        if event.kind == EventKind::QdiscEnqueue {
            let (since, txq, queue) = (event.time, event.txq, event.queue);
            self.queued.insert(event.packet, Queued { since, txq, queue, inside: true });
            return;
        }
        let Some(queued) = self.queued.get_mut(&event.packet) else { return };
        match event.kind {
            // A copy may have the buffer of a packet that is gone.
            EventKind::QdiscDequeue if !queued.inside => {}
            EventKind::QdiscDequeue => event.sojourn = Some(event.time - queued.since),
            EventKind::QdiscRequeue => queued.inside = true,
            EventKind::NetDevStartXmit => queued.inside = false,
            _ => {
                if queued.inside {
                    event.sojourn = Some(event.time - queued.since);
                    event.txq = event.txq.or(queued.txq);
                    event.queue = event.queue.or(queued.queue);
                }
                self.queued.remove(&event.packet);
            }
        }
    }
}

/// Time between two polls of a trace by a waiting reader.
const EVENT_POLL: Duration = Duration::from_millis(5);

impl<A: Arch> Drop for Trace<A> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_trace(&self.tap);
        }
    }
}

impl<A: Arch> fmt::Debug for Trace<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("filter", &self.filter)
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}
