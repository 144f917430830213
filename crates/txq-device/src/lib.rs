//! Drivers for [`txq`]: one device a file, one trait ([`txq::driver::Driver`], whose documentation is the tutorial).

pub mod null;

pub use null::Null;
