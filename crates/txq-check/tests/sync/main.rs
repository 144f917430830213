//! Models of the lock-free protocols of `txq-core` and of the clients' ring, each alone: under loom for orderings, under
//! shuttle for more threads than loom can explore.

mod bits;
mod bucket;
mod fill;
mod llist;
mod lossy;
mod pass;
mod pool;
mod pool_credit;
mod pool_size;
mod pool_wait;
mod rcu;
mod socket;
mod spinlock;
mod spsc;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "../support/stacks.rs"]
mod stacks;
mod ticket;
mod timers;
mod token;
