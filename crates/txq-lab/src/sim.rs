//! txq's data plane on a simulated machine of hundreds of CPUs.
//!
//! Few people have 480 hardware threads to try a queue on. This module simulates them. It runs the code of the crate `txq`,
//! not a model of it: the data plane is generic over an [`Arch`](txq_core::arch::Arch), and [`Sim`] is an `Arch` whose atomics,
//! cells and packets take virtual time as cache coherence does. The same seed gives the same result, bit for bit, on every
//! machine; [`Outcome::hash`] shows it.
//!
//! # The idea, in one example
//!
//! Two tasks on two sockets add to one word. A task alone keeps the word's line and pays only for read-modify-writes. Two
//! tasks pass the line back and forth: together they add half as often.
//!
//! ```
//! use std::sync::{Arc, atomic::Ordering::Relaxed};
//! use txq_core::arch::{Arch, Atomic};
//! use txq_lab::sim::{Machine, Picos, Sim, Task, World, sim};
//!
//! # let text = r#"
//! # name = "two sockets"
//! # topology = { sockets = 2, dies = 1, complexes = 1, cores = 4, threads = 2 }
//! # line = { snoop = 0.55, hold = 0.45, read_gap = 8.0, stores = 16 }
//! # core = { pause = 36.0, shared = 1.6 }
//! # os = { clock = 20.0, switch = 1000.0, interrupt = 400.0, wake = 500.0, wakeup = 2000.0, slice = 3e6, spin = 1000.0 }
//! # [access]
//! # hit = 1.0
//! # rmw = 5.0
//! # same_core = 4.0
//! # same_complex = 45.0
//! # same_die = 45.0
//! # same_socket = 45.0
//! # other_socket = 180.0
//! # memory = 90.0
//! # other_memory = 150.0
//! # "#;
//! # let machine: Machine = toml::from_str(text).unwrap();
//! // One thread of each core comes first: CPUs 0 to 3 are in the first socket, 4 to 7 in the second.
//! fn additions(machine: &Machine, cpus: &[u32]) -> u64 {
//!     let mut world = World::new(machine, 1);
//!     let word = Arc::new(<Sim as Arch>::AtomicU64::new(0));
//!     for &cpu in cpus {
//!         let word = word.clone();
//!         world.spawn(Task { cpu: Some(cpu), ..Task::default() }, move || {
//!             while !sim::is_ending() {
//!                 word.fetch_add(1, Relaxed);
//!             }
//!         });
//!     }
//!     let millisecond: Picos = 1_000_000_000;
//!     world.run(millisecond).accesses
//! }
//! assert!(additions(&machine, &[0]) > 190_000);
//! assert!(additions(&machine, &[0, 4]) < 110_000);
//! ```
//!
//! # A whole device
//!
//! Create the world first, then the device (`Builder::<Sim>::new(..).build()`), its senders and its workers. Creating them
//! costs no virtual time. Move each sender and each worker into a task with [`World::spawn`]. A worker's task calls
//! `worker.run()`. A sender's task is a loop of [`sim::work`] (the program's own work for a packet), `alloc`, `xmit` and
//! `wait_credit`. [`World::run`] returns times and counts of accesses. Afterwards the device still has all its counters and
//! reports. `examples/p0.rs` is such a program.
//!
//! # What costs what
//!
//! | what | where |
//! |---|---|
//! | an atomic, a cell: where the line is, and in which state | `cache.rs`, by [`machine::Access`] and [`machine::Line`] |
//! | a wait: only time, for the CPU spins | `engine.rs`, `os.rs` |
//! | a sleep, a wake-up, a time slice, a move to another CPU | `os.rs`, by [`machine::Os`] |
//! | plain code: its price by kind of work | [`Prices`], where `txq` calls [`Arch::spend`](txq_core::arch::Arch::spend) |
//! | plain memory: the lines of a queue, a qdisc, a ring: [`Footprint`](footprint::Footprint) | where `txq` calls [`Arch::touch`](txq_core::arch::Arch::touch) |
//! | a task's own work | [`sim::work`] |
//!
//! # What it is not
//!
//! It does not check memory orderings: values are sequentially consistent (the models in `txq-check` check them). It does
//! not model cycles: caches have no size, memory has no bandwidth. Loads overlap and rings are prefetched if the machine
//! says how many lines ([`Line::loads`](machine::Line::loads), [`Line::ahead`](machine::Line::ahead)); scenarios ask for it
//! (`overlap`). It shows ratios, and which task waits for which line. To see how far a claim depends on a cost, change the
//! cost.
//!
//! # Rules for what runs in it
//!
//! Nothing may depend on addresses, on the real time, on threads, or on the order of a hash map. Give atomics of different
//! owners lines of their own (`CachePadded`), as is good practice on real machines; otherwise the allocator decides which of
//! them share a line.

mod ahead;
mod arch;
mod cache;
pub mod calibrate;
pub mod compare;
mod core_speed;
pub mod device;
mod engine;
pub mod footprint;
mod keys;
pub mod ledger;
pub mod lines;
mod loads;
pub mod machine;
pub(crate) mod moves;
mod one_by_one;
mod os;
mod prices;
mod queue;
pub mod report;
pub mod run;
pub mod scenario;
mod sequence;
#[expect(clippy::module_inception, reason = "a task of the simulator calls `sim::work` and its like")]
pub mod sim;
mod stack;
pub mod state;
mod stores;
pub mod sweep;
#[cfg(test)]
mod testing;
mod times;
pub mod topology;
mod workload;
mod world;

pub use arch::Sim;
pub use machine::{Machine, Picos};
pub use os::CpuUse;
pub use prices::Prices;
pub use world::{Outcome, Task, TaskUse, World};
