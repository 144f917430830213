//! The operating system: the CPU that runs the caller, the clock, and mappings of memory.
//!
//! Linux answers all three (`linux`). Elsewhere `portable` answers with what std has, so that this crate and the
//! qdiscs compile for every system. This module is the only place that chooses between the two; tests compile both.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(
    target_os = "linux",
    expect(dead_code, reason = "no mapping exists whose methods a test could call")
)]
mod portable;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod tsc;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Mapping, cpu, now};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{Mapping, cpu, now};
