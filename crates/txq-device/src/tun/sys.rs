//! System calls: the ioctls of `/dev/net/tun`, and those that name an interface.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// The device file that each queue opens.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// Opens a queue that belongs to no interface yet. It belongs to the calling thread's network namespace.
pub(super) fn open_queue() -> io::Result<OwnedFd> {
    Ok(open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

/// Attaches a queue to the interface `name`, which is created if there is none (`TUNSETIFF`). Returns the interface's name.
pub(super) fn attach(queue: &OwnedFd, name: &str, flags: libc::c_int) -> io::Result<String> {
    let mut query = named(name);
    query.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `query` is.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &raw mut query) })?;
    let name = query.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Calls an ioctl of a queue that takes an integer by value.
pub(super) fn set(queue: &OwnedFd, request: Value, value: u32) -> io::Result<()> {
    let request = match request {
        Value::Persist => libc::TUNSETPERSIST,
        Value::Owner => libc::TUNSETOWNER,
        Value::Group => libc::TUNSETGROUP,
        Value::Offload => libc::TUNSETOFFLOAD,
    };
    // SAFETY: these requests take their argument by value and access no memory of the caller.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), request, value as libc::c_ulong) })
}

/// The ioctls that take an integer by value.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Persist,
    Owner,
    Group,
    Offload,
}

/// Makes headers of `bytes` bytes, in the machine's byte order, precede the packets of the interface. Both outlive the
/// program that set them, so a persistent interface may have other values.
pub(super) fn set_header(queue: &OwnedFd, bytes: usize) -> io::Result<()> {
    for (request, value) in [(libc::TUNSETVNETHDRSZ, bytes as libc::c_int), (libc::TUNSETVNETLE, 0)] {
        // SAFETY: both requests read one int, which `value` is.
        check(unsafe { libc::ioctl(queue.as_raw_fd(), request, &raw const value) })?;
    }
    Ok(())
}

/// A socket whose ioctls concern the interfaces of the network namespace that it was created in.
#[derive(Debug)]
pub(super) struct Control(OwnedFd);

impl Control {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// Returns the index of an interface.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.0, name)?)
    }

    /// Returns the MTU of the interface with this index, whatever its name is now.
    pub(super) fn mtu(&self, index: u32) -> io::Result<u32> {
        let name = netdevice::index_to_name(&self.0, index)?;
        let mut query = named(&name);
        self.call(libc::SIOCGIFMTU as libc::Ioctl, &mut query)?;
        // SAFETY: SIOCGIFMTU fills in `ifru_mtu`, an integer.
        Ok(unsafe { query.ifr_ifru.ifru_mtu }.max(0) as u32)
    }

    pub(super) fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        let mut query = named(name);
        query.ifr_ifru.ifru_mtu = mtu.try_into().unwrap_or(libc::c_int::MAX);
        self.call(libc::SIOCSIFMTU as libc::Ioctl, &mut query)
    }

    /// Brings the interface up, if it is down.
    pub(super) fn bring_up(&self, name: &str) -> io::Result<()> {
        let mut query = named(name);
        self.call(libc::SIOCGIFFLAGS as libc::Ioctl, &mut query)?;
        // SAFETY: SIOCGIFFLAGS fills in `ifru_flags`, an integer.
        let flags = unsafe { query.ifr_ifru.ifru_flags };
        if flags & libc::IFF_UP as libc::c_short != 0 {
            return Ok(());
        }
        query.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.call(libc::SIOCSIFFLAGS as libc::Ioctl, &mut query)
    }

    /// Returns the names of the interface's driver and bus: "tun", and "tun" or "tap" for the interfaces of this module.
    pub(super) fn driver(&self, name: &str) -> io::Result<(String, String)> {
        let mut info = DriverInfo {
            cmd: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            skipped: [0; 64],
            bus: [0; 32],
            rest: [0; 64],
        };
        let mut query = named(name);
        query.ifr_ifru.ifru_data = (&raw mut info).cast();
        self.call(libc::SIOCETHTOOL as libc::Ioctl, &mut query)?;
        let text = |bytes: &[u8; 32]| {
            String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
        };
        Ok((text(&info.driver), text(&info.bus)))
    }

    fn call(&self, request: libc::Ioctl, query: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the requests of this type read and write one ifreq, which `query` is; the pointer in that of SIOCETHTOOL
        // is to a whole DriverInfo, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut *query) })
    }
}

const ETHTOOL_GDRVINFO: u32 = 3;

/// The kernel's `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    /// Two versions.
    skipped: [u8; 64],
    bus: [u8; 32],
    /// A version, a reserved field and five numbers.
    rest: [u8; 64],
}

/// Returns a request about the interface `name`, of at most 15 bytes.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid ifreq: an empty name and integers.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in query.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    query
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
