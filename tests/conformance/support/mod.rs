//! The parts that the suite shares with other tests.

#[path = "../../support/home.rs"]
pub(crate) mod home;
#[path = "../../support/netns.rs"]
pub(crate) mod netns;
#[path = "../../support/offload.rs"]
pub(crate) mod offload;
#[path = "../../support/process.rs"]
pub(crate) mod process;
#[path = "../../support/receiver.rs"]
pub(crate) mod receiver;
#[path = "../../support/skip.rs"]
pub(crate) mod skip;
#[path = "../../support/tempdir.rs"]
pub(crate) mod tempdir;
