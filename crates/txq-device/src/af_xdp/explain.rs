//! Texts of errors: what is missing, and the command that provides it.

use std::io::{self, ErrorKind};

use super::interface::Interface;
use super::program::Failed;
use super::queue::Step;
use super::umem::Umem;
use super::{AfXdpConfig, Attach, Mode};

fn text(error: &io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), text)
}

/// Explains why an interface was not found.
pub(super) fn find(name: &str, error: io::Error) -> io::Error {
    let remedy = "`ip link` lists the interfaces of this network namespace";
    text(
        &error,
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENAMETOOLONG) => format!("there is no interface \"{name}\": {remedy}"),
            _ => format!("interface \"{name}\" cannot be queried ({error}): check its name"),
        },
    )
}

/// Returns an error if the interface or the configuration cannot work.
pub(super) fn check(interface: &Interface, config: &AfXdpConfig) -> io::Result<()> {
    let Interface { name, hardware, .. } = interface;
    let invalid = |text: String| Err(io::Error::new(ErrorKind::InvalidInput, text));
    if !matches!(*hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        let text = format!(
            "interface \"{name}\" is not Ethernet (its link type is {hardware}): use one that `ip link` shows as link/ether"
        );
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    }
    if !config.ring.is_power_of_two() || !(64..=1 << 16).contains(&config.ring) {
        return invalid(format!("a ring of {} packets: use a power of two, 64 to 65536", config.ring));
    }
    if config.queues == 0 {
        return invalid(format!("interface \"{name}\" with 0 queues: use at least 1"));
    }
    let last = u32::from(config.first_queue) + u32::from(config.queues);
    if let Some((tx, rx)) = interface.queues
        && (last > tx || config.receive && last > rx)
    {
        return invalid(format!(
            "interface \"{name}\" has {tx} tx and {rx} rx queues, and queues {} to {} are asked for: use fewer, or make more \
             (`ethtool -l {name}` shows how many it can have, `ethtool -L {name} combined {last}` or `ethtool -L {name} tx \
             {last} rx {last}` sets them)",
            config.first_queue,
            last - 1
        ));
    }
    Ok(())
}

/// Explains why a queue was not opened.
pub(super) fn open(
    interface: &Interface,
    umem: &Umem,
    config: &AfXdpConfig,
    queue: u32,
    (step, error): (Step, io::Error),
) -> io::Error {
    let name = &interface.name;
    let number = error.raw_os_error().unwrap_or(0);
    text(
        &error,
        match (step, number) {
            (Step::Socket, libc::EPERM) => format!(
                "AF_XDP on interface \"{name}\" is not permitted: run as root, or give the program CAP_NET_RAW (`setcap \
             cap_net_raw+ep PROGRAM`)"
            ),
            (Step::Socket, libc::EAFNOSUPPORT) => {
                "the kernel has no AF_XDP: it needs CONFIG_XDP_SOCKETS (`zgrep XDP_SOCKETS /proc/config.gz`)"
                    .to_owned()
            }
            (Step::Umem, libc::ENOBUFS | libc::ENOMEM) => format!(
                "the kernel may not lock the pool's {} KiB in memory: raise the limit of locked memory (`ulimit -l {0}` before \
             the program starts, or LimitMEMLOCK= of its unit), give the program CAP_IPC_LOCK, or make a smaller pool",
                umem.len.div_ceil(1024)
            ),
            (Step::Umem, libc::EINVAL) => format!(
                "the kernel does not accept the pool as a UMEM (buffers {} bytes apart, {} in all): make the pool of \
             AfXdp::pool_config({}); Linux 5.4 or later is needed",
                umem.stride,
                umem.len,
                umem.pool.buffers()
            ),
            (Step::Rings, _) => format!(
                "the kernel makes no rings of {} packets for AF_XDP on interface \"{name}\" ({error}): Linux 5.4 or later is \
             needed",
                config.ring
            ),
            (Step::Bind, libc::EBUSY) => format!(
                "queue {queue} of interface \"{name}\" is in use by another AF_XDP socket: end that program (`ss --xdp -ap` lists \
             the sockets), or use other queues"
            ),
            (Step::Bind, libc::EINVAL) => format!(
                "interface \"{name}\" has no queue {queue}, or its driver does not accept the pool as a UMEM: `ethtool -l {name}` \
             shows the number of queues, and `ethtool -L` sets it"
            ),
            (Step::Bind, libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) if config.mode == Some(Mode::ZeroCopy) => {
                format!(
                    "the driver of interface \"{name}\" has no zero-copy AF_XDP: set `mode` to None or to Mode::Copy"
                )
            }
            _ => format!(
                "queue {queue} of interface \"{name}\" cannot be opened for AF_XDP ({error}): see dmesg"
            ),
        },
    )
}

/// Explains why a pool's memory rules out zero-copy.
pub(super) fn not_contiguous(umem: &Umem) -> io::Error {
    let pages = umem.len.div_ceil(2 << 20);
    let text = format!(
        "zero-copy AF_XDP needs a pool in huge pages: reserve {pages} of them (`sysctl vm.nr_hugepages={pages}`) and make the \
         pool with Backing::HugePages, or set `mode` to None or to Mode::Copy"
    );
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// Explains why the XDP program was not attached.
pub(super) fn attach(name: &str, attach: Option<Attach>, failed: Failed) -> io::Error {
    let (Failed::Load(error) | Failed::Attach(error)) = &failed;
    text(
        error,
        match (&failed, error.raw_os_error().unwrap_or(0)) {
            (_, libc::EPERM | libc::EACCES) => format!(
                "receiving with AF_XDP on interface \"{name}\" is not permitted: run as root, or give the program CAP_NET_ADMIN \
             and CAP_BPF (`setcap cap_net_admin,cap_net_raw,cap_bpf+ep PROGRAM`)"
            ),
            (Failed::Attach(_), libc::EBUSY | libc::EEXIST) => format!(
                "interface \"{name}\" has another XDP program: end the program that uses it (`ip link show {name}` shows its id, \
             `bpftool link` its owner), or remove it (`ip link set {name} xdp off`)"
            ),
            (Failed::Attach(_), _) if attach == Some(Attach::Driver) => format!(
                "the driver of interface \"{name}\" does not take an XDP program ({error}): set `attach` to None or to \
             Attach::Generic"
            ),
            (Failed::Attach(_), _) => {
                format!("interface \"{name}\" does not take an XDP program ({error}): see dmesg")
            }
            (Failed::Load(_), _) => format!(
                "the kernel does not load the XDP program for interface \"{name}\" ({error}): Linux 5.9 or later with \
             CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS is needed"
            ),
        },
    )
}
