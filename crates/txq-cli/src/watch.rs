//! Watch a running txq: what its queues do, in a terminal, in a browser, and for Prometheus.
//!
//! A [`Snapshot`](snapshot::Snapshot) is the state of a program that serves its devices (`txq_control::serve`): counters, the tree
//! of qdiscs and classes, times. It takes a few requests of the control socket, whatever the number of watchers, and no thread of the
//! data path waits for it.
//!
//! The module is that of the feature `watch`, and internal: it may change in any release.

pub mod metrics;
pub mod select;
pub mod snapshot;
pub mod top;
pub mod web;
