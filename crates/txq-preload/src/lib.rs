//! Internal to `txq exec`, and published only because Cargo wants it.
//!
//! It is the library that `txq exec` loads into a program (`LD_PRELOAD`): the program's UDP datagrams leave through a txq device, arrive through
//! another one, and nothing in the program changes.
//!
//! It replaces the functions of the C library that send, receive or wait on a socket, and those that change what is known of a socket
//! (`symbols`). A datagram becomes a packet with IP and UDP headers ([`txq_device::udp::Datagram`]), goes through the qdisc of the process's one device
//! (`process`), and leaves through a duplicate of the program's own descriptor (`driver`, `socket`), so its source port, its options
//! and its replies are the program's. On the way in, a thread of the library receives through that duplicate (`receive`), and what the qdisc has
//! released waits for the program in a UNIX socket (`arrive`, `socket/standin.rs`). All else goes to the kernel as it is. `docs/exec.md` in the repository says what a program
//! notices.
//!
//! Rules that hold everywhere here:
//!
//! - A call behaves as the kernel's for any argument, or passes through: pointers are checked before they are read (`memory`).
//! - The library works on stacks of its own (`stack`), and keeps the program's calls off its descriptors (`socket`, `changes`).
//! - The library's own system calls are direct (`sys`), so it never calls itself.
//! - No lock is held while the program's code can run: signals wait while a thread is in the device (`sys::Undisturbed`).
//! - No panic crosses into the program, and a call that succeeds leaves `errno` as it was.
//! - Frames that call the replaced functions own nothing, so a cancelled thread may unwind through them.

#![cfg(target_os = "linux")]

mod arrive;
mod changes;
mod driver;
mod epolls;
mod keeper;
mod memory;
mod message;
mod next;
mod process;
mod receive;
mod record;
mod send;
mod socket;
mod stack;
mod symbols;
mod sys;
mod table;
