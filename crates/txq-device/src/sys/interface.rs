//! Queries about network interfaces, and changes of them (`netdevice(7)`).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::check;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// A socket whose ioctls concern the interfaces of the network namespace that it was created in. It needs no permission, except
/// to change something.
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`: after the command the largest and then the current numbers of rx, tx, other and combined queues.
#[repr(C)]
struct Channels {
    command: u32,
    largest: [u32; 4],
    current: [u32; 4],
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    /// Two versions.
    skipped: [u8; 64],
    bus: [u8; 32],
    /// A version, a reserved field and five numbers.
    rest: [u8; 64],
}

impl Control {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.0, name)?)
    }

    /// Returns the present name of the interface with this index.
    pub(crate) fn name(&self, index: u32) -> io::Result<String> {
        Ok(netdevice::index_to_name(&self.0, index)?)
    }

    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        let query = self.ask(name, libc::SIOCGIFMTU)?;
        // SAFETY: SIOCGIFMTU fills in `ifru_mtu`, an integer.
        Ok(unsafe { query.ifr_ifru.ifru_mtu }.max(0) as u32)
    }

    pub(crate) fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        let mut query = named(name);
        query.ifr_ifru.ifru_mtu = mtu.try_into().unwrap_or(libc::c_int::MAX);
        self.call(libc::SIOCSIFMTU, &mut query)
    }

    /// Returns what the interface's frames begin with: `ARPHRD_ETHER` and others.
    pub(crate) fn hardware(&self, name: &str) -> io::Result<u16> {
        let query = self.ask(name, libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFHWADDR fills in `ifru_hwaddr`, of integers.
        Ok(unsafe { query.ifr_ifru.ifru_hwaddr.sa_family })
    }

    /// Returns whether the interface is up (`IFF_UP`).
    pub(crate) fn is_up(&self, name: &str) -> io::Result<bool> {
        Ok(self.flags(name)? & libc::IFF_UP != 0)
    }

    /// Returns the interface's flags (`IFF_UP`, `IFF_RUNNING` and others).
    pub(crate) fn flags(&self, name: &str) -> io::Result<libc::c_int> {
        let query = self.ask(name, libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS fills in `ifru_flags`, an integer.
        Ok(unsafe { query.ifr_ifru.ifru_flags }.into())
    }

    /// Returns another socket of the same network namespace.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Brings the interface up, if it is down.
    pub(crate) fn bring_up(&self, name: &str) -> io::Result<()> {
        let mut query = self.ask(name, libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS fills in `ifru_flags`, an integer.
        let flags = unsafe { query.ifr_ifru.ifru_flags };
        let up = libc::IFF_UP as libc::c_short;
        if flags & up != 0 {
            return Ok(());
        }
        query.ifr_ifru.ifru_flags = flags | up;
        self.call(libc::SIOCSIFFLAGS, &mut query)
    }

    /// Returns whether the interface has a carrier; an error if its driver does not say.
    pub(crate) fn has_carrier(&self, name: &str) -> io::Result<bool> {
        let mut link = Value { command: ETHTOOL_GLINK, data: 1 };
        // SAFETY: the command fills in a struct ethtool_value.
        unsafe { self.ethtool(name, &mut link) }?;
        Ok(link.data != 0)
    }

    /// Returns the numbers of queues that send and that receive; an error if the driver does not say.
    pub(crate) fn queues(&self, name: &str) -> io::Result<(u32, u32)> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, largest: [0; 4], current: [0; 4] };
        // SAFETY: the command fills in a struct ethtool_channels.
        unsafe { self.ethtool(name, &mut channels) }?;
        let [rx, tx, _, combined] = channels.current;
        Ok((tx + combined, rx + combined))
    }

    /// Returns the names of the interface's driver and bus: "tun", and "tun" or "tap", for those of `/dev/net/tun`.
    pub(crate) fn driver(&self, name: &str) -> io::Result<(String, String)> {
        let mut info = DriverInfo {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            skipped: [0; 64],
            bus: [0; 32],
            rest: [0; 64],
        };
        // SAFETY: the command fills in a struct ethtool_drvinfo.
        unsafe { self.ethtool(name, &mut info) }?;
        let text = |bytes: &[u8; 32]| {
            String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
        };
        Ok((text(&info.driver), text(&info.bus)))
    }

    /// Runs the ethtool command whose number `of` begins with.
    ///
    /// # Safety
    /// `of` is the struct of that command, and consists of integers.
    unsafe fn ethtool<T>(&self, name: &str, of: &mut T) -> io::Result<()> {
        let mut query = named(name);
        query.ifr_ifru.ifru_data = (&raw mut *of).cast();
        self.call(SIOCETHTOOL, &mut query)
    }

    fn ask(&self, name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
        let mut query = named(name);
        self.call(request, &mut query).map(|()| query)
    }

    fn call(&self, request: libc::c_ulong, query: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the requests of this module read and write one ifreq, which `query` is; the pointer in that of SIOCETHTOOL is
        // to a whole struct of its command, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, &raw mut *query) })
    }
}

/// Returns whether an interface of the calling thread's network namespace has an IPv4 address.
pub(crate) fn has_ipv4(name: &str) -> bool {
    // Only sockets of IPv4 know its addresses.
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| Control(socket).ask(name, libc::SIOCGIFADDR).is_ok())
}

/// Returns a request about the interface `name`. A name that an interface has fits with its terminating zero.
pub(crate) fn named(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid ifreq: an empty name and integers.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in query.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    query
}
