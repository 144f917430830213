//! Synchronisation primitives, one a file, each generic over [`Arch`](crate::arch::Arch). Their model tests are in the
//! `txq-check` crate.

pub mod activity;
pub mod bits;
pub mod bucket;
pub mod contention;
pub mod fill;
pub mod llist;
pub mod lossy;
pub mod rcu;
pub mod spinlock;
pub mod spsc;
pub mod timers;
pub mod waiter;
pub mod words;
