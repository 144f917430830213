//! Models of a whole device: one program for all of them, for each would compile the device once for each checker.

mod deferred;
mod device;
mod graft;
mod timers;
mod txqueue;
mod xmit;
