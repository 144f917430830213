//! A device that sends and receives, by its name: for programs whose user chooses the device.
//!
//! | name | device |
//! |---|---|
//! | `IFACE`, `af_packet:IFACE` | [`AfPacket`], whose kernel cuts packets with segments |
//! | `af_xdp:IFACE` | [`AfXdp`](crate::AfXdp) |
//! | `tap:NAME` | a TAP interface ([`Tun`]) |
//! | `tun:NAME` | a TUN interface ([`Tun`]) |
//! | `udp:ADDRESS:PORT` | [`Udp`], connected to this address |
//!
//! ```no_run
//! use txq::NetDev;
//! use txq::pool::Pool;
//! use txq_device::{AfXdp, port};
//!
//! // A pool that fits every device.
//! let pool = Pool::new(&AfXdp::pool_config(16384))?;
//! let mut port = port::open("af_xdp:eth0", 1, &pool)?;
//! let mut receiver = port.receivers.remove(0);
//! let dev = NetDev::builder(port.driver).pool(pool).qdisc("fq_codel").start()?;
//! # drop((receiver.stats(), dev));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use txq::driver::Driver;
use txq::pool::Pool;
use txq::receive::Receive;

use crate::{AfPacket, AfXdpConfig, Tun, Udp};

/// An open device and its receivers.
#[non_exhaustive]
pub struct Port {
    /// What a [`NetDev`](txq::NetDev) is built on.
    pub driver: Box<dyn Driver>,
    /// The rx queues, as many as txqs; a UDP socket has one.
    pub receivers: Vec<Box<dyn Receive>>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("device", &self.driver.info()).finish_non_exhaustive()
    }
}

/// Opens the device that `name` names, with `txqs` txqs. `pool` is the one that the device is used with
/// ([`Builder::pool`](txq::netdev::Builder::pool)); AF_XDP sends from it and receives into it.
///
/// # Errors
/// Those of the device, and one for a name that the [module](self) does not list.
pub fn open(name: &str, txqs: u16, pool: &Pool) -> io::Result<Port> {
    match name.split_once(':').unwrap_or(("af_packet", name)) {
        ("af_packet", interface) => {
            let device = AfPacket::open(interface, txqs)?.gso(true);
            let receivers = device.receivers(txqs)?;
            Ok(port(device, receivers))
        }
        ("af_xdp", interface) => {
            let config = AfXdpConfig { receive: true, ..AfXdpConfig::new(interface, txqs) };
            let mut device = config.open(pool)?;
            let receivers = device.receivers();
            Ok(port(device, receivers))
        }
        (kind @ ("tap" | "tun"), interface) => {
            let config = if kind == "tap" { Tun::create_tap(interface) } else { Tun::create(interface) };
            let device = config.queues(txqs).open()?;
            let receivers = device.receivers();
            Ok(port(device, receivers))
        }
        ("udp", address) => {
            let remote: SocketAddr = address.parse().map_err(|_| unknown(name))?;
            let local = match remote {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let device = Udp::connect(local, remote)?.txqs(txqs);
            let receivers = vec![device.receiver()?];
            Ok(port(device, receivers))
        }
        _ => Err(unknown(name)),
    }
}

fn port(driver: impl Driver + 'static, receivers: Vec<impl Receive + 'static>) -> Port {
    let boxed = |receiver| Box::new(receiver) as Box<dyn Receive>;
    Port { driver: Box::new(driver), receivers: receivers.into_iter().map(boxed).collect() }
}

fn unknown(name: &str) -> io::Error {
    let text = format!(
        "\"{name}\" is no device: use IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME or udp:ADDRESS:PORT"
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use txq::pool::PoolConfig;

    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        for name in ["token_ring:tr0", "udp:nowhere", "udp:192.0.2.1"] {
            let error = open(name, 1, &pool).unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{name}\" is no device: use IFACE,")), "{error}");
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn a_udp_socket_is_a_port() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let port = open("udp:127.0.0.1:4789", 2, &pool).unwrap();
        assert_eq!((port.driver.info().txqs, port.receivers.len()), (2, 1));
    }
}
