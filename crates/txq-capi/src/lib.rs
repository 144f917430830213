//! libtxq: txq for programs in C, and in every language that calls C.
//!
//! `include/txq.h` describes each function; the test `header` generates it from this crate. There are two levels:
//!
//! - [`sched`]: a tree of qdiscs over the program's own buffers, without threads or devices ([`txq_sched::Scheduler`]).
//! - [`device`], [`sender`]: devices, their senders and their worker threads ([`txq::NetDev`]). [`control`] lets `txq tc` reach them.
//!
//! These rules hold for every function. A pointer that the function reads must be null or point to what the function's type
//! says, and a handle must not have been freed; the other rules are checked at each call:
//!
//! - No panic leaves the library. A function that panics returns [`TXQ_E_PANIC`](error::TXQ_E_PANIC), and so does every later
//!   call with that handle, except the one that frees the handle.
//! - A null pointer, a struct of another size, a text that is not UTF-8, and a handle of another type are errors with a code and
//!   a text ([`txq_last_error`](error::txq_last_error)).
//! - A handle that one thread at a time may use refuses a second one with [`TXQ_E_BUSY`](error::TXQ_E_BUSY).
//! - In a child after `fork`, devices and senders refuse all calls with [`TXQ_E_FORKED`](error::TXQ_E_FORKED); their threads exist
//!   only in the parent.

// The rules above are the safety section of each function.
#![allow(clippy::missing_safety_doc)]
// The names are C's.
#![allow(non_camel_case_types)]

pub mod config;
pub mod control;
pub mod device;
pub mod driver;
pub mod error;
mod fork;
mod handle;
pub mod reason;
pub mod sched;
pub mod sender;
pub mod show;
mod slab;
mod strings;
