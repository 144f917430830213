//! `txq tc`, `txq dev` and `txq daemon` from outside: commands of tc have the real tc's output.

#[path = "../../../txq/tests/netns/mod.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/report.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod report;

mod batches;
mod check;
mod classes;
mod daemon;
mod filters;
mod qdiscs;
mod scripts;
mod served;
mod traffic;
