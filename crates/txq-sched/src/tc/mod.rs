//! tc's language: the text that describes a qdisc, and the text and JSON that tc prints about one.
//!
//! [`Words`] splits a text such as `handle 1: root pfifo limit 10` into words. [`Header`] parses place, name and kind. The
//! kind parses the rest through [`OptionWords`], with rates, sizes and times in tc's units ([`Rate`], [`Size`], [`Micros`],
//! [`Nanos`]). For output, a kind writes its parameters into [`Options`], and [`show_text`] and [`show_json`] print them
//! with the counters. Texts, errors and output are those of iproute2 6.1; an error also says what to do. This module knows
//! no particular kind.

#![forbid(unsafe_code)]

mod abbrev;
mod class;
mod command;
mod error;
mod estimator;
mod handle;
mod header;
mod lex;
mod options;
mod show;
mod stab;
mod units;
mod unknown;

pub(crate) use abbrev::full;
#[cfg(feature = "json")]
pub use class::class_json;
pub use class::{ClassHeader, ClassInfo, class_text};
#[doc(hidden)]
pub use command::batch;
pub use command::{BatchError, Command, Object, Verb};
pub(crate) use error::nearest;
pub use error::{ParseError, set_once};
pub use estimator::Estimator;
pub use handle::Handle;
pub use header::Header;
#[cfg(test)]
pub(crate) use lex::syntax_of;
pub use lex::{OptionWords, Syntax, Wording, Words};
pub(crate) use lex::{c_number, radix_number};
pub use options::{Options, Style};
#[cfg(feature = "json")]
pub use show::show_json;
pub use show::{QdiscInfo, SentRate, show_text};
pub(crate) use stab::SizeTable;
pub use stab::Stab;
pub use units::{Micros, Nanos, Rate, Size, UnitError};
pub(crate) use units::{general, general_json};
pub(crate) use unknown::unknown_class;
