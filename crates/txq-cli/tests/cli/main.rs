//! The command `txq` as its users and their programs run it.
//!
//! All these tests are one program: several would each compile `support`, and cargo runs programs one after another.

#[path = "../../../../tests/support/mod.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod support;

#[path = "../../../../examples/served.rs"]
#[expect(dead_code, reason = "the tests call `run`")]
mod served;

#[path = "../../../txq/tests/netns/mod.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod txq_netns;

mod bad_input;
mod bridge;
mod contention;
mod contrib;
mod control;
mod daemon_replay;
mod doctor;
mod exec;
mod lab;
mod main_job;
mod replay;
mod run;
mod shell;
mod socket;
mod tc;
// `cargo test --workspace` has the feature, and so has `cargo test -p txq-cli --features watch`.
#[cfg(feature = "watch")]
mod top;
#[cfg(not(feature = "watch"))]
mod without;
