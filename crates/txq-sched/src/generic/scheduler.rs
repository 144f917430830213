//! A tree of qdiscs without threads or devices.

mod packets;
mod top;

pub use packets::PacketScheduler;
pub(crate) use top::Top;
