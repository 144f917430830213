//! txq's data plane on a simulated machine of hundreds of CPUs.
//!
//! What runs is the code of the crate `txq`, not a model of it: its atomics, cells and packets are on virtual CPUs that pay
//! for each access what cache coherence would have them pay, on a virtual clock. The same seed gives the same result.

mod arch;
mod cache;
pub mod calibrate;
pub mod compare;
pub mod device;
mod engine;
pub mod ledger;
pub mod machine;
mod os;
mod prices;
mod queue;
pub mod run;
pub mod scenario;
pub mod sim;
pub mod sweep;
#[cfg(test)]
mod testing;
pub mod topology;
mod workload;
mod world;

pub use arch::Sim;
pub use machine::{Machine, Picos};
pub use os::CpuUse;
pub use prices::Prices;
pub use world::{Outcome, Task, TaskUse, World};
