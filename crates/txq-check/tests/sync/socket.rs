//! The ring that a client and the server share: descriptors arrive whole and in order, and no wake is lost.
//!
//! Guards `publish`, `wait`, `must_ring` and `announce` of `txq-control/src/socket/ring.rs`. Mutants that it catches: either fence left out, a side
//! that sleeps without another check, and a cursor that is published without a release. A lost wake is loom's "deadlock".

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_control::socket::ring::{Consumer, Cursors, Descriptor, Producer, Ring, Slot};
use txq_core::arch::Event;

/// The memory, and the sockets: an event stands for the bytes that a side has not read.
struct Shared<A: Model> {
    cursors: Cursors<A>,
    slots: Vec<Slot<A>>,
    to_producer: A::Event,
    to_consumer: A::Event,
}

impl<A: Model> Shared<A> {
    fn ring(&self) -> Ring<'_, A> {
        Ring::new(&self.cursors, &self.slots)
    }
}

fn frame(n: u32) -> Descriptor {
    Descriptor { offset: n + 1, len: n + 2, priority: n + 3, flags: n + 4 }
}

/// The producer publishes each frame; both sides sleep whenever they may.
fn scenario<A: Model>(slots: usize, frames: u32) {
    let shared = Arc::new(Shared::<A> {
        cursors: Cursors::new(),
        slots: (0..slots).map(|_| Slot::default()).collect(),
        to_producer: A::Event::new(),
        to_consumer: A::Event::new(),
    });
    let theirs = shared.clone();
    let thread = A::spawn(1, move || {
        let (ring, mut producer) = (theirs.ring(), Producer::default());
        for n in 0..frames {
            while producer.room(ring).expect("a right consumer") == 0 {
                if producer.wait(ring).expect("a right consumer") {
                    theirs.to_producer.wait(None);
                }
            }
            producer.push(ring, frame(n));
            if producer.publish(ring) {
                theirs.to_consumer.notify();
            }
        }
    });
    let (ring, mut consumer) = (shared.ring(), Consumer::default());
    for n in 0..frames {
        while consumer.pending(ring).expect("a right producer") == 0 {
            if consumer.wait(ring).expect("a right producer") {
                shared.to_consumer.wait(None);
            }
        }
        assert_eq!(consumer.pop(ring), frame(n), "a descriptor is torn, lost or doubled");
        if consumer.publish(ring, 0) {
            shared.to_producer.notify();
        }
    }
    thread();
}

#[test]
fn one_slot_under_loom() {
    Loom::check(|| scenario::<Loom>(1, 2));
}

#[test]
fn two_slots_under_loom() {
    Loom::check(|| scenario::<Loom>(2, 3));
}

#[test]
fn four_slots_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(4, 12));
}
