//! closure: a function of the program that looks at the packet and says the class.
//!
//! Where tc has `bpf`, a program that is linked with this crate has its own code. It is called by whoever owns the queue, with
//! the queue held: it should be short and wait for nobody. `tc filter show`'s text has its `pref` alone.

use crate::packet::Packet;
use crate::tc::Handle;

/// What [`NetDev::add_classifier`](crate::NetDev::add_classifier) keeps.
pub type Closure<A> = Box<dyn Fn(&Packet<A>) -> Option<Handle> + Send + Sync>;
