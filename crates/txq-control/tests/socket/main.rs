//! Local programs that send through a device by a socket: clients that behave, stall, die and write nonsense.

mod bounds;
mod chaos;
mod common;
mod floods;
mod hostile;
mod serve;
