//! Drivers for [`txq`]: one device a file, one trait ([`txq::driver::Driver`], whose documentation is the tutorial).

pub mod capture;
pub mod null;

pub use capture::Capture;
pub use null::Null;
