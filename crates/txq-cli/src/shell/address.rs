//! The addresses of links. Each link has a number: that of its subnets of 198.18.0.0/16, which is set aside for tests of networks
//! (RFC 2544), and of fd74:7871::/32.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The lengths of a link's prefixes.
pub(super) const PREFIX_4: u8 = 30;
pub(super) const PREFIX_6: u8 = 64;
/// The address at which pasta answers DNS.
pub(super) const DNS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 53);
const LAST: u8 = 254;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

impl End {
    /// Returns the end of a link at the machine, or at the peer.
    pub(super) fn far(number: u8) -> Self {
        Self::of(number, 1)
    }

    /// Returns the end of a link in the shell.
    pub(super) fn near(number: u8) -> Self {
        Self::of(number, 2)
    }

    fn of(number: u8, host: u8) -> Self {
        let v6 = Ipv6Addr::new(0xfd74, 0x7871, 0, number.into(), 0, 0, 0, host.into());
        Self { v4: Ipv4Addr::new(198, 18, number, host), v6 }
    }
}

/// A number that no other link of this network namespace has while this value exists.
#[derive(Debug)]
pub(super) struct Number {
    number: u8,
    /// A name that the kernel gives to one process of the namespace at a time.
    _claim: UnixListener,
}

impl Number {
    /// Returns a number above those of the links that this namespace is the inner end of: no link of a chain has another one's.
    pub(super) fn claim() -> anyhow::Result<Self> {
        let is_own = |number: &u8| {
            let near = End::near(*number).v4;
            UdpSocket::bind(SocketAddr::new(IpAddr::V4(near), 0)).is_ok()
        };
        let first = (0..=LAST).rev().find(is_own).map_or(0, |inner| inner + 1);
        for number in first..=LAST {
            let name = UnixAddr::from_abstract_name(format!("txq-shell-{number}"))?;
            if let Ok(claim) = UnixListener::bind_addr(&name) {
                return Ok(Self { number, _claim: claim });
            }
        }
        None.context("all 255 links of this network namespace are in use: end one of them (`txq ls`)")
    }

    pub(super) fn get(&self) -> u8 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_links_at_a_time_have_two_numbers() {
        let (first, second) = (Number::claim().unwrap(), Number::claim().unwrap());
        assert_ne!(first.get(), second.get());
        assert_ne!(End::near(0), End::far(0));
        let freed = first.get();
        drop(first);
        assert_eq!(Number::claim().unwrap().get(), freed);
    }
}
