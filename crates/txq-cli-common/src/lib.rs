//! What the commands of txq share: values of options, tables, plots, progress, refusals and the request to stop.
//!
//! The crate is internal: it may change in any release.

#![forbid(unsafe_code)]

pub mod bars;
pub mod contention;
pub mod failure;
pub mod out;
#[cfg(feature = "plot")]
pub mod plot;
pub mod rate;
pub mod schema;
pub mod span;
pub mod stop;
pub mod table;
pub mod tell;
pub mod within;
