//! Shared parts of the integration tests: network namespaces, a capture of real traffic, a receiver that keeps every
//! frame, and the checks that compare both.

pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod dns;
pub(crate) mod netns;
pub(crate) mod offload;
pub(crate) mod pcap;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod skip;
pub(crate) mod socket_frame;
pub(crate) mod tempdir;
pub(crate) mod user;
