//! Models of whole devices, in one program, because each program would compile the device once per checker.

mod bursts;
mod deferred;
mod device;
mod flow;
mod goodput;
mod graft;
mod timers;
mod txqueue;
mod waiting;
mod xmit;
