//! What the commands of txq and those of the laboratory share: values of options, tables, progress, refusals, the request to
//! stop, and what a program prints about its command line.
//!
//! The module is internal: it may change in any release.

pub mod bars;
pub mod contention;
pub mod failure;
pub mod options;
pub mod out;
pub mod packaging;
pub mod rate;
pub(crate) mod schema;
pub mod span;
pub mod stop;
pub mod table;
pub mod tell;
pub mod within;
