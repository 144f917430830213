//! A thread that sleeps until it is notified: no notification is lost, whether it comes before the sleep, at its beginning, or when
//! its time is over; and what was written before it is observed after it.
//!
//! Guards the token (`txq-core/src/arch/token.rs`). Mutants that it catches: a relaxed notification or a relaxed take, by a
//! causality violation at the payload; a sleep that begins although a token is set, or a notification that does not wake, by a
//! deadlock.

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::token::{Parking, Token};
use txq_core::arch::{CellApi, Event, Nanos};

/// Implements [`Parking`] with the lock of a checker. A sleep with a deadline is over at once.
macro_rules! parking {
    ($name:ident, $checker:ident) => {
        struct $name($checker::sync::Mutex<()>, $checker::sync::Condvar);

        impl Parking for $name {
            fn new() -> Self {
                Self($checker::sync::Mutex::new(()), $checker::sync::Condvar::new())
            }

            fn park(
                &self,
                begin: impl FnOnce() -> bool,
                is_over: impl Fn() -> bool,
                deadline: Option<Nanos>,
            ) {
                let mut held = self.0.lock().expect("not poisoned");
                if !begin() || deadline.is_some() {
                    return;
                }
                while !is_over() {
                    held = self.1.wait(held).expect("not poisoned");
                }
            }

            fn unpark(&self) {
                drop(self.0.lock().expect("not poisoned"));
                self.1.notify_one();
            }
        }
    };
}

parking!(LoomParking, loom);
parking!(ShuttleParking, shuttle);

struct Shared<A: Model, P: Parking> {
    token: Token<A, P>,
    /// How many notifiers have written, and one cell for each.
    payload: Box<[A::Cell<u64>]>,
    count: A::AtomicU32,
}

// SAFETY: a cell is written before its notifier counts itself, and read after all have; the checker verifies that.
unsafe impl<A: Model, P: Parking> Send for Shared<A, P> {}
// SAFETY: as above.
unsafe impl<A: Model, P: Parking> Sync for Shared<A, P> {}

/// Each notifier writes, counts itself and notifies. The sleeper sleeps until all have counted themselves; its first sleeps have
/// `deadlines` that are over.
fn notify_and_wait<A: Model, P: Parking>(notifiers: usize, deadlines: usize) {
    use std::sync::atomic::Ordering::Relaxed;

    use txq_core::arch::Atomic;

    let payload = (0..notifiers).map(|_| A::Cell::new(0)).collect();
    let shared = Arc::new(Shared::<A, P> { token: Token::new(), payload, count: A::AtomicU32::new(0) });
    let joins: Vec<_> = (0..notifiers)
        .map(|i| {
            let shared = shared.clone();
            A::spawn(i as u32 + 1, move || {
                // SAFETY: see above.
                shared.payload[i].with_mut(|p| unsafe { *p = i as u64 + 1 });
                // Relaxed: the token alone orders the payload.
                shared.count.fetch_add(1, Relaxed);
                shared.token.notify();
            })
        })
        .collect();
    for _ in 0..deadlines {
        shared.token.wait(Some(1));
    }
    // A token may be that of several notifiers, or of one whose count was observed before.
    if notifiers == 1 {
        if deadlines == 0 {
            shared.token.wait(None);
            // SAFETY: see above.
            assert_eq!(shared.payload[0].with(|p| unsafe { *p }), 1);
        }
    } else {
        while shared.count.load(Relaxed) < notifiers as u32 {
            shared.token.wait(None);
        }
    }
    joins.into_iter().for_each(|join| join());
}

#[test]
fn one_notifies_under_loom() {
    Loom::check(|| notify_and_wait::<Loom, LoomParking>(1, 0));
}

#[test]
fn two_notify_under_loom() {
    Loom::check(|| notify_and_wait::<Loom, LoomParking>(2, 0));
}

#[test]
fn the_time_is_over_under_loom() {
    Loom::check(|| notify_and_wait::<Loom, LoomParking>(2, 1));
}

#[test]
fn four_notify_under_shuttle() {
    Shuttle::check(|| notify_and_wait::<Shuttle, ShuttleParking>(4, 2));
}
