//! The command `txq-lab` as its users and their programs run it.
//!
//! All these tests are one program: several would each compile `support`, and cargo runs programs one after another.

#[path = "../../../../tests/support"]
mod support {
    #[allow(dead_code, reason = "other test programs use the rest")]
    pub(crate) mod process;
    #[allow(dead_code, reason = "other test programs use the rest")]
    pub(crate) mod skip;
    pub(crate) mod tempdir;
}

mod bad_input;
mod bench;
mod lab_patches;
mod packaging;
mod sim;
mod sim_sweep;
mod through_txq;
