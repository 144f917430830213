//! quinn's clients and servers over txq's UDP device.

#[path = "../../../../tests/support"]
mod support {
    #![allow(dead_code, reason = "shared with tests that need more of it")]
    pub(crate) mod home;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
}

mod bundles;
mod ends;
mod limits;
mod reentry;
mod shaped;
#[path = "../../../../tests/support/tls.rs"]
mod tls;
mod transfers;
mod waits;
