//! llist where holders of locks keep their CPUs, as the kernel's do: no packet is lost, sent twice or left behind, and each
//! sender's packets leave in order.
//!
//! Guards the parts of `txq/src/generic/enqueue/llist.rs` and `llist/owner.rs` that ask [`Arch::holders_run`], which only simulations
//! of the kernel use. Mutants that it catches: a sender with the duty that goes if the lock is taken ("a packet is left
//! behind").

use std::sync::atomic::Ordering;

use super::xmit::senders;
use txq::Discipline;
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, CpuId, Nanos};

/// A checker's machine, whose threads keep their CPUs.
struct Kernel<A>(A);

// SAFETY: everything is the checker's.
unsafe impl<A: Arch> Arch for Kernel<A> {
    type AtomicU32 = A::AtomicU32;
    type AtomicU64 = A::AtomicU64;
    type AtomicPtr<T: 'static> = A::AtomicPtr<T>;
    type Cell<T> = A::Cell<T>;
    type Event = A::Event;

    fn fence(order: Ordering) {
        A::fence(order);
    }
    fn cpu() -> CpuId {
        A::cpu()
    }
    fn now() -> Nanos {
        A::now()
    }
    fn relax() {
        A::relax();
    }
    fn yield_cpu() {
        A::yield_cpu();
    }
    fn holders_run() -> bool {
        true
    }

    const WAITS_FOR_ROOM: u32 = A::WAITS_FOR_ROOM;
    const PROMPT: u32 = A::PROMPT;
}

impl<A: Model> Model for Kernel<A> {
    fn check_boxed(scenario: Box<dyn Fn() + Send + Sync>) {
        A::check_boxed(scenario);
    }

    fn spawn_boxed(cpu: CpuId, f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        A::spawn_boxed(cpu, f)
    }
}

#[test]
fn two_senders_under_loom() {
    Loom::check(|| assert_eq!(senders::<Kernel<Loom>>(Discipline::Llist, 2, 1, 1, 1000), 0));
}

#[test]
fn six_senders_under_shuttle() {
    Shuttle::check(|| assert_eq!(senders::<Kernel<Shuttle>>(Discipline::Llist, 6, 3, 1, 1000), 0));
    Shuttle::check(|| assert_eq!(senders::<Kernel<Shuttle>>(Discipline::Llist, 3, 2, 3, 1000), 0));
}
