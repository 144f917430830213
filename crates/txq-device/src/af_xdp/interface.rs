//! The interface: what the kernel says of it by name.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// A network interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// `ARPHRD_ETHER` and others.
    pub(super) hardware: u16,
    /// Queues that send and that receive, if the driver says so.
    pub(super) queues: Option<(u32, u32)>,
    /// A socket of the interface's network namespace, for queries.
    control: OwnedFd,
}

/// `struct ethtool_channels`: after the command the largest and then the current numbers of rx, tx, other and combined queues.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    largest: [u32; 4],
    current: [u32; 4],
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

impl Interface {
    /// Finds an interface of the calling thread's network namespace.
    pub(super) fn find(name: &str) -> io::Result<Self> {
        // A query needs a socket of any kind; this one needs no permission.
        let control = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&control, name)?;
        let mtu = ask(&control, name, libc::SIOCGIFMTU)?;
        let hardware = ask(&control, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFMTU fills in `ifru_mtu`, and SIOCGIFHWADDR `ifru_hwaddr`; both are plain integers.
        let (mtu, hardware) = unsafe { (mtu.ifr_ifru.ifru_mtu, hardware.ifr_ifru.ifru_hwaddr.sa_family) };
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        let queues = ethtool(&control, name, &mut channels).ok().map(|()| {
            let [rx, tx, _, combined] = channels.current;
            (tx + combined, rx + combined)
        });
        Ok(Self { name: name.to_owned(), index, mtu: mtu.max(0) as u32, hardware, queues, control })
    }

    /// Returns whether the interface still exists in its network namespace, under any name.
    pub(super) fn exists(&self) -> bool {
        netdevice::index_to_name(&self.control, self.index).is_ok()
    }

    /// Returns whether the interface has a carrier; true if its driver does not say.
    pub(super) fn has_carrier(&self) -> bool {
        let mut link = Value { command: ETHTOOL_GLINK, data: 1 };
        ethtool(&self.control, &self.name, &mut link).is_err() || link.data != 0
    }

    /// Returns whether frames wait for hardware behind the interface, and not for the CPU.
    pub(super) fn has_hardware(&self) -> bool {
        std::path::Path::new("/sys/class/net").join(&self.name).join("device").exists()
    }
}

fn query(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid ifreq: an empty name and integers.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    // A name that was found fits with its terminating zero.
    for (to, from) in query.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    query
}

fn ask(control: &OwnedFd, name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    let mut query = query(name);
    // SAFETY: the request reads and writes one ifreq, which `query` is.
    match unsafe { libc::ioctl(control.as_raw_fd(), request as libc::Ioctl, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs an ethtool command, whose number `of` begins with, and which fills in the rest of `of`.
fn ethtool<T>(control: &OwnedFd, name: &str, of: &mut T) -> io::Result<()> {
    let mut query = query(name);
    query.ifr_ifru.ifru_data = (&raw mut *of).cast();
    // SAFETY: the request reads one ifreq, and reads and writes the command's struct, to which the ifreq points.
    match unsafe { libc::ioctl(control.as_raw_fd(), SIOCETHTOOL as libc::Ioctl, &raw mut query) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
