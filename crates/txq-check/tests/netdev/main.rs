//! Models of whole devices, in one program, because each program would compile the device once per checker.

mod deferred;
mod device;
mod graft;
mod timers;
mod txqueue;
mod waiting;
mod xmit;
