//! The state of a network interface: for programs that go on when the interface goes and comes back.
//!
//! ```no_run
//! use txq_device::watch::{State, Watch};
//!
//! let watch = Watch::interface("eth0")?;
//! match watch.state() {
//!     State::Up => {}
//!     State::NoCarrier => println!("eth0: is the cable plugged in?"),
//!     State::Down => println!("eth0: `ip link set eth0 up` starts it"),
//!     State::Gone => println!("eth0: the interface is removed"),
//!     other => println!("eth0 {other}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! An interface that is removed and made again has the same name and another index ([`Watch::index`]). Sockets and queues of
//! the old one carry no packets of the new one, so a program opens them anew.

use std::fmt;
use std::io;

use crate::sys::interface::Control;

/// The state of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It is up and has a carrier.
    Up,
    /// It is up, and has no carrier (`NO-CARRIER` in `ip link`).
    NoCarrier,
    /// It is down (`ip link set DEV down`).
    Down,
    /// There is none of this name.
    Gone,
}

/// The state in a sentence: `is up`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "is up",
            Self::NoCarrier => "has no carrier",
            Self::Down => "is down",
            Self::Gone => "is gone",
        })
    }
}

/// An interface of one network namespace, by its name.
#[derive(Debug)]
pub struct Watch {
    control: Control,
    name: String,
}

impl Watch {
    /// Watches the interface called `name` of the calling thread's network namespace. It need not exist.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn interface(name: &str) -> io::Result<Self> {
        Ok(Self::new(Control::new()?, name))
    }

    pub(crate) fn new(control: Control, name: &str) -> Self {
        Self { control, name: name.to_owned() }
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the present state, by one system call.
    pub fn state(&self) -> State {
        match self.control.flags(&self.name) {
            Err(_) => State::Gone,
            Ok(flags) if flags & libc::IFF_UP == 0 => State::Down,
            Ok(flags) if flags & libc::IFF_RUNNING == 0 => State::NoCarrier,
            Ok(_) => State::Up,
        }
    }

    /// Returns the present MTU, in bytes; `None` if there is no such interface.
    pub fn mtu(&self) -> Option<u32> {
        self.control.mtu(&self.name).ok()
    }

    /// Returns the index of the interface that has the name now; `None` if there is none.
    pub fn index(&self) -> Option<u32> {
        self.control.index(&self.name).ok()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_and_an_unknown_interface_is_not() {
        let lo = Watch::interface("lo").unwrap();
        assert_eq!((lo.index(), lo.name()), (Some(1), "lo"));
        assert_ne!(lo.state(), State::Gone);
        assert!(lo.mtu().is_some_and(|mtu| mtu > 0));
        let none = Watch::interface("no-such-if").unwrap();
        assert_eq!((none.index(), none.mtu(), none.state()), (None, None, State::Gone));
        assert_eq!(none.state().to_string(), "is gone");
        let long = Watch::interface("a-name-that-is-too-long-for-one").unwrap();
        assert_eq!((long.index(), long.state()), (None, State::Gone));
    }
}
