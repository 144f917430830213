//! Models of whole devices, in one program, because each program would compile the device once per checker.

mod bursts;
mod deferred;
mod device;
mod flow;
mod goodput;
mod graft;
mod leases;
mod listed;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "../support/stacks.rs"]
mod stacks;
mod timers;
mod txqueue;
mod waiting;
mod xmit;
