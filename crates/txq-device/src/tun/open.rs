//! Opening: the steps from options to an interface with its queues, and what to do when one fails.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ioctl::{self, DEVICE, Value};
use super::{Config, Interface, Kind, Tun};
use crate::sys::interface::Control;
use crate::vnet;

/// Maximum number of queues of an interface (the kernel's `MAX_TAP_QUEUES`).
const MAX_QUEUES: u16 = 256;
/// Maximum length of an interface's name, in bytes.
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

const NOT_PERMITTED: &str =
    "run as root (`sudo`), or give the program CAP_NET_ADMIN (`sudo setcap cap_net_admin+ep PROGRAM`)";

/// Opens the interface, in the network namespace of the options.
pub(super) fn open(config: &Config) -> io::Result<Tun> {
    check(config)?;
    let Some(namespace) = &config.namespace else { return open_here(config) };
    let path = if namespace.contains('/') { namespace.clone() } else { format!("/run/netns/{namespace}") };
    let file = File::open(&path).map_err(|error| {
        let remedy = "`ip netns list` lists those with a name, `ip netns add NAME` makes one";
        fail(error, |error| format!("network namespace \"{namespace}\" cannot be opened ({error}): {remedy}"))
    })?;
    // A namespace belongs to a thread. The queues and the control socket stay in the namespace that they are made in.
    let opened = std::thread::scope(|scope| {
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
                let remedy = "it takes root, or CAP_SYS_ADMIN, and a file of /run/netns or /proc/PID/ns/net";
                fail(error.into(), |error| {
                    format!("network namespace \"{namespace}\" cannot be entered ({error}): {remedy}")
                })
            })?;
            open_here(config)
        };
        std::thread::Builder::new()
            .spawn_scoped(scope, inside)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(opened)
}

/// Checks what can be checked without the kernel.
fn check(config: &Config) -> io::Result<()> {
    let name = &config.name;
    let wrong = |what: String| Err(io::Error::new(ErrorKind::InvalidInput, what));
    if name.len() > MAX_NAME {
        let len = name.len();
        return wrong(format!("interface name \"{name}\" has {len} bytes: use at most {MAX_NAME}"));
    }
    if name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace())
        || [".", ".."].contains(&&**name)
    {
        return wrong(format!(
            "interface name \"{name}\" is not valid: use letters, digits, \"-\" and \"_\""
        ));
    }
    if !(1..=MAX_QUEUES).contains(&config.queues) {
        let queues = config.queues;
        return wrong(format!("interface \"{name}\" cannot have {queues} queues: use 1 to {MAX_QUEUES}"));
    }
    if config.gro && !config.has_header {
        return wrong(format!("interface \"{name}\": `gro` needs `vnet_header`: leave one of them out"));
    }
    if config.must_exist && is_pattern(name) {
        return wrong(format!(
            "interface name \"{name}\" is not that of one interface: name the one to attach to"
        ));
    }
    Ok(())
}

/// Returns whether the kernel completes the name.
fn is_pattern(name: &str) -> bool {
    name.is_empty() || name.contains('%')
}

/// Opens the interface in the calling thread's namespace. After an error all queues are closed again, and an interface that
/// was created is gone.
fn open_here(config: &Config) -> io::Result<Tun> {
    let control = Control::new()?;
    let name =
        if config.name.is_empty() { config.kind.word().to_owned() + "%d" } else { config.name.clone() };
    let before = if is_pattern(&name) { None } else { control.index(&name).ok() };
    if config.must_exist && before.is_none() {
        let create = format!("`ip tuntap add dev {name} mode {}` creates it", config.kind.word());
        return Err(io::Error::new(
            ErrorKind::NotFound,
            format!("there is no interface \"{name}\": {create}"),
        ));
    }
    let mut opening = Opening { config, control, before, name, is_multi: config.queues > 1 };
    let first = opening.first()?;
    let index = opening.step("has no index", |control, name| control.index(name))?;
    if config.must_exist && before != Some(index) {
        let what = format!("interface \"{}\" is gone: it was removed meanwhile", opening.name);
        return Err(io::Error::new(ErrorKind::NotFound, what));
    }
    opening.set_up(&first)?;
    let mut queues = vec![Arc::new(first)];
    for _ in 1..config.queues {
        queues.push(Arc::new(opening.queue()?));
    }
    if config.persistent {
        opening.step("cannot be kept", |_, _| ioctl::set(&queues[0], Value::Persist, 1))?;
    }
    let mtu = opening.step("has no MTU", Control::mtu)?;
    let Opening { control, name, .. } = opening;
    let (kind, has_header, gro) = (config.kind, config.has_header, config.gro);
    Ok(Tun { interface: Arc::new(Interface { name, index, kind, mtu, has_header, gro, control }), queues })
}

/// An interface while it is opened.
struct Opening<'a> {
    config: &'a Config,
    control: Control,
    /// The index of the interface that there was before, if it had a name.
    before: Option<u32>,
    name: String,
    /// Whether the interface has several queues.
    is_multi: bool,
}

impl Opening<'_> {
    /// Opens the first queue. One queue fits an interface of one queue and of several.
    fn first(&mut self) -> io::Result<OwnedFd> {
        let again = self.before.is_some() && !self.is_multi;
        match self.attach() {
            Err(error) if again && error.raw_os_error() == Some(libc::EINVAL) => {
                self.is_multi = true;
                self.attach().inspect_err(|_| self.is_multi = false)
            }
            done => done,
        }
        .map_err(|error| self.refused(error))
    }

    /// Opens one more queue.
    fn queue(&mut self) -> io::Result<OwnedFd> {
        self.attach().map_err(|error| self.refused(error))
    }

    fn attach(&mut self) -> io::Result<OwnedFd> {
        let queue = ioctl::open_queue().map_err(no_device)?;
        let mut flags = libc::IFF_NO_PI;
        flags |= if self.config.kind == Kind::Tun { libc::IFF_TUN } else { libc::IFF_TAP };
        flags |= if self.is_multi { libc::IFF_MULTI_QUEUE } else { 0 };
        flags |= if self.config.has_header { libc::IFF_VNET_HDR } else { 0 };
        self.name = ioctl::attach(&queue, &self.name, flags)?;
        Ok(queue)
    }

    /// Sets the interface up. A persistent one may have any settings of an earlier program.
    fn set_up(&self, queue: &OwnedFd) -> io::Result<()> {
        let config = self.config;
        if config.has_header {
            self.step("has no virtio-net header of 10 bytes", |_, _| ioctl::set_header(queue, vnet::LEN))?;
        }
        self.step("does not change its offloads", |_, _| set_offloads(queue, config.gro))?;
        for (value, id) in [(Value::Owner, config.owner), (Value::Group, config.group)] {
            if let Some(id) = id {
                self.step("does not take its owner", |_, _| ioctl::set(queue, value, id))?;
            }
        }
        if let Some(mtu) = config.mtu {
            let what = format!("does not take an MTU of {mtu} bytes, 68 to 65535 (TAP: 65521)");
            self.step(&what, |control, name| control.set_mtu(name, mtu))?;
        }
        if config.up {
            self.step("cannot be brought up", Control::bring_up)?;
        }
        Ok(())
    }

    fn step<T>(&self, what: &str, step: impl FnOnce(&Control, &str) -> io::Result<T>) -> io::Result<T> {
        step(&self.control, &self.name).map_err(|error| {
            let remedy = match error.raw_os_error() {
                Some(libc::EPERM) => NOT_PERMITTED,
                _ => "see `ip -d link` and dmesg",
            };
            fail(error, |error| format!("interface \"{}\" {what} ({error}): {remedy}", self.name))
        })
    }

    /// Explains why the kernel refused a queue.
    fn refused(&self, error: io::Error) -> io::Error {
        let (name, mode) = (&self.name, self.config.kind.word());
        let known = self.before.and_then(|_| self.control.driver(name).ok());
        let (driver, bus) = known.as_ref().map_or(("", ""), |(driver, bus)| (driver, bus));
        let what = match error.raw_os_error() {
            None => return error,
            Some(libc::EPERM) if self.before.is_some() => format!(
                "interface \"{name}\" belongs to another user: {NOT_PERMITTED}, or let the user have it \
                 (`sudo ip tuntap add dev {name} mode {mode} user USER`)"
            ),
            Some(libc::EPERM) => format!("creating interface \"{name}\" is not permitted: {NOT_PERMITTED}"),
            Some(libc::EBUSY) => format!(
                "interface \"{name}\" is in use by another program: `ip -d tuntap` shows which, or choose another name"
            ),
            Some(libc::E2BIG) => format!(
                "interface \"{name}\" has {MAX_QUEUES} queues, in this program and in others: ask for fewer"
            ),
            Some(libc::EINVAL) if self.before.is_some() && driver != "tun" => format!(
                "interface \"{name}\" is neither TUN nor TAP: `ip link` shows which interfaces exist, choose another name"
            ),
            Some(libc::EINVAL) if self.before.is_some() && bus != mode => format!(
                "interface \"{name}\" is a {}, not a {}: choose another name, or remove it with `sudo ip link del {name}`",
                bus.to_uppercase(),
                mode.to_uppercase()
            ),
            Some(libc::EINVAL) if self.before.is_some() => format!(
                "interface \"{name}\" has one queue: ask for one, or create it with several \
                 (`sudo ip tuntap add dev {name} mode {mode} multi_queue`)"
            ),
            _ => format!("interface \"{name}\" cannot be opened ({error}): see dmesg"),
        };
        io::Error::new(error.kind(), what)
    }
}

/// Explains why the device file does not open. The error has no number of the kernel's, so it is final.
fn no_device(error: io::Error) -> io::Error {
    fail(error, |error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            format!(
                "there is no {DEVICE}: load the module (`sudo modprobe tun`), or pass the device to the container"
            )
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("{DEVICE} may not be opened: run as root (`sudo`), or `sudo chmod 666 {DEVICE}`")
        }
        _ => format!("{DEVICE} cannot be opened ({error})"),
    })
}

fn fail(error: io::Error, what: impl FnOnce(&io::Error) -> String) -> io::Error {
    io::Error::new(error.kind(), what(&error))
}

/// Sets what the kernel may leave to the receiver: checksums and segments, or nothing.
fn set_offloads(queue: &OwnedFd, gro: bool) -> io::Result<()> {
    const TCP: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    const UDP: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if !gro {
        return ioctl::set(queue, Value::Offload, 0);
    }
    match ioctl::set(queue, Value::Offload, TCP | UDP) {
        // Before Linux 6.2.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => ioctl::set(queue, Value::Offload, TCP),
        done => done,
    }
}
