//! closure: a function of the program that reads the packet and chooses the class.
//!
//! It takes the place of tc's `bpf`. The owner of the queue calls it while it holds the queue, so it should be short and
//! must not wait for another thread. `tc filter show` prints only its `pref`.

use txq_core::packet::Packet;

use crate::tc::Handle;

/// The function that `NetDev::add_classifier` stores. `None` means no match.
pub type Closure<A> = Box<dyn Fn(&Packet<A>) -> Option<Handle> + Send + Sync>;
