//! tc's language: what a person types to describe a qdisc, and what is printed about one.
//!
//! A text such as `handle 1: root pfifo limit 10` is split into words ([`Words`]); [`Header`] reads place, name and kind;
//! the kind reads the rest through [`OptionWords`], with rates, sizes and times in tc's units ([`Rate`], [`Size`],
//! [`Micros`], [`Nanos`]). On the way back a kind writes its parameters into [`Options`], and [`show_text`] and
//! [`show_json`] print them with the counters. Texts, errors and output are those of the tc that people know (iproute2
//! 6.1); an error also says what to do. Nothing here knows a particular kind.

#![forbid(unsafe_code)]

mod class;
mod error;
mod handle;
mod header;
mod lex;
mod options;
mod show;
mod units;

pub use class::{ClassHeader, ClassInfo, class_json, class_text};
pub(crate) use error::nearest;
pub use error::{ParseError, set_once};
pub use handle::Handle;
pub use header::Header;
pub use lex::{OptionWords, Syntax, Wording, Words};
pub(crate) use lex::{c_number, radix_number};
pub use options::{Options, Style};
pub use show::{QdiscInfo, show_json, show_text};
pub use units::{Micros, Nanos, Rate, Size, UnitError};
