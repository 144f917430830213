//! Packets to a driver and back: transmission, completions, and the rules that drivers must keep.
//!
//! The state that both sides share is in [`TxQueue`](crate::generic::txqueue::TxQueue). The transmitter gives packets to the driver
//! ([`transmit`], [`pass`]); the completer takes them back ([`reap`], [`defer`]); [`border`] checks each call of the driver.

mod border;
mod defer;
mod driver;
mod pass;
mod reap;
mod replace;
mod transmit;

pub(crate) use transmit::Transmitted;
