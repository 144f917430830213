//! Whole devices on simulated machines. The unit tests create no device: each program that does compiles the whole data plane
//! for [`Sim`](txq_lab::sim::Sim).

mod determinism;
mod leases;
mod null;
mod p0;
mod proxy;
mod qdiscs;
mod shares;
#[allow(dead_code, reason = "the example needs the rest")]
mod support;
mod waits;
