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
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::sys::interface::{Control, has_ipv4};

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

    /// Returns whether the interface has an IP address that other hosts reach, so that the kernel answers frames that come in on
    /// it. Link-local addresses of IPv6 do not count. The interface is one of the calling thread's network namespace.
    pub fn has_address(&self) -> bool {
        has_ipv4(&self.name) || self.index().is_some_and(has_ipv6)
    }

    /// Claims the receiving on the interface for this process, until the result is dropped; `None` if a claim of this network
    /// namespace exists. It hinders no one: it lets programs notice that both forward the same frames.
    pub fn claim(&self) -> Option<Claim> {
        let name = format!("txq receives on interface {}", self.index()?);
        let address = SocketAddr::from_abstract_name(name).ok()?;
        UnixDatagram::bind_addr(&address).ok().map(Claim)
    }

    /// Returns the index of the interface that has the name now; `None` if there is none.
    pub fn index(&self) -> Option<u32> {
        self.control.index(&self.name).ok()
    }
}

/// A claim of [`Watch::claim`]: a socket without a file, whose name is that of the interface's index.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "only dropped")] UnixDatagram);

/// Returns whether an interface has an IPv6 address of another scope than the link.
fn has_ipv6(index: u32) -> bool {
    const LINK: &str = "20";
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    text.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let found = words.next().and_then(|index| u32::from_str_radix(index, 16).ok());
        found == Some(index) && words.nth(1) != Some(LINK)
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_and_an_unknown_interface_is_not() {
        let lo = Watch::interface("lo").unwrap();
        assert_eq!((lo.index(), lo.name()), (Some(1), "lo"));
        assert_ne!(lo.state(), State::Gone);
        assert!(!Watch::interface("no-such-if").unwrap().has_address());
        assert!(lo.mtu().is_some_and(|mtu| mtu > 0));
        let none = Watch::interface("no-such-if").unwrap();
        assert_eq!((none.index(), none.mtu(), none.state()), (None, None, State::Gone));
        assert_eq!(none.state().to_string(), "is gone");
        let long = Watch::interface("a-name-that-is-too-long-for-one").unwrap();
        assert_eq!((long.index(), long.state()), (None, State::Gone));
    }
}
