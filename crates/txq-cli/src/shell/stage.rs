//! The first process of a namespace: it prepares the namespace by its orders, runs a program, and ends all others with itself. It also ends
//! when the program that gave the orders dies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, exit};
use std::thread;
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use txq_control::{Access, Error, Place, Socket};

use super::address::{End, PREFIX_4, PREFIX_6};
use super::nat::Nat;
use super::netlink::Netlink;
use super::{files, user};
use crate::exec::is_foreground;

/// How often, and how far apart, the end of a dead process' claim to its socket is awaited.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// What a namespace is prepared with, and what runs in it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) link: Option<Link>,
    /// Whether it has a `/proc` of its own.
    pub(super) proc: bool,
    /// The text of `/etc/resolv.conf`.
    pub(super) resolv_conf: Option<String>,
    /// The program; without one the namespace waits, without capabilities.
    pub(super) command: Vec<OsString>,
    pub(super) environment: BTreeMap<String, String>,
    /// The name of the control socket to remove if the program that gave the orders dies.
    pub(super) control: Option<String>,
    /// The pipe to write to when the namespace is prepared; [`Space::order`](super::space::Space::order) names it.
    pub(super) prepared: PathBuf,
}

/// The end of a link in a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) interface: String,
    pub(super) end: End,
    /// The gateways of default routes.
    pub(super) gateways: Vec<IpAddr>,
    /// Whether what arrives by the link leaves the namespace with the namespace's own addresses.
    pub(super) masquerade: bool,
}

/// Runs the first process of a namespace; `path` is the pipe with its orders.
pub(super) fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let mut pipe = BufReader::new(File::open(path)?);
    let mut line = String::new();
    pipe.read_line(&mut line)?;
    if line.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let mut orders: Orders = serde_json::from_str(&line)?;
    let control = orders.control.take();
    thread::Builder::new().name("lifeline".into()).spawn(move || {
        // Nothing follows the orders. The end of the pipe is that of the other process.
        let _ = pipe.read(&mut [0]);
        control.iter().for_each(|name| remove(name));
        exit(1);
    })?;
    // Its path ends with the old `/proc`.
    let mut prepared = File::options().write(true).open(&orders.prepared)?;
    let _nat = prepare(&orders)?;
    prepared.write_all(&[0])?;
    drop(prepared);
    let Some((program, arguments)) = orders.command.split_first() else {
        user::renounce()?;
        loop {
            thread::park();
        }
    };
    let mut command = Command::new(program);
    let child = match command.args(arguments).envs(&orders.environment).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("txq: {}: {error}", program.display());
            return Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let child = Pid::from_child(&child);
    loop {
        for signal in signals.wait() {
            // A terminal sends these to the program itself, too.
            let is_terminals = [SIGINT, SIGQUIT].contains(&signal) && is_foreground();
            if let Some(signal) =
                Signal::from_named_raw(signal).filter(|_| signal != SIGCHLD && !is_terminals)
            {
                let _ = kill_process(child, signal);
            }
        }
        // Orphans of the namespace are this process' children.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
            if let Some(code) = code.filter(|_| pid == child) {
                return Ok(ExitCode::from(code as u8));
            }
        }
    }
}

/// Removes the control socket of the dead process, whose claim to it the kernel may still be about to release.
fn remove(name: &str) {
    for _ in 0..ATTEMPTS {
        // A server removes its socket when it is dropped.
        match Socket::open(&Place::Name(name.to_owned()), Access::Owner) {
            Err(Error::InUse { .. }) => thread::sleep(PAUSE),
            _ => return,
        }
    }
}

fn prepare(orders: &Orders) -> anyhow::Result<Option<Nat>> {
    let mut nat = None;
    if let Some(link) = &orders.link {
        // A nested shell's packets go on. Before the addresses, which IPv6 forgets otherwise.
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let set = fs::write(format!("/proc/sys/net/{file}"), "1");
            // A kernel without IPv6 has no such file.
            set.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        Netlink::route()?.bring_up(index("lo")?)?;
        nat = configure(link)?;
    }
    if orders.proc || orders.resolv_conf.is_some() {
        files::make_private()?;
    }
    if orders.proc {
        let _ = files::mount_proc();
    }
    if let Some(text) = &orders.resolv_conf
        && let Err(error) = files::cover_resolv_conf(text)
    {
        eprintln!("txq: /etc/resolv.conf stays as it is, so names may not resolve: {error}");
    }
    Ok(nat)
}

/// Gives the calling thread's network namespace the end of a link; returns its rules.
pub(super) fn configure(link: &Link) -> anyhow::Result<Option<Nat>> {
    let netlink = Netlink::route()?;
    let index = index(&link.interface)?;
    netlink.add_address(index, link.end.v4.into(), PREFIX_4)?;
    // A kernel without IPv6 is one without its addresses.
    let has_v6 = netlink.add_address(index, link.end.v6.into(), PREFIX_6).is_ok();
    for gateway in link.gateways.iter().filter(|gateway| gateway.is_ipv4() || has_v6) {
        netlink.add_default_route(index, *gateway)?;
    }
    if !link.masquerade {
        return Ok(None);
    }
    let nat = Nat::masquerade(&link.interface, index, self::index(super::INTERFACE).ok()).map_err(|error| {
        anyhow::Error::from(crate::common::failure::Refused(format!(
            "no masquerade rule: {error}: the kernel needs nf_tables and nft_masq (`sudo modprobe nft_masq`), and Linux 5.12 or newer; --peer \
             needs no rule"
        )))
    })?;
    Ok(Some(nat))
}

/// Returns the number of an interface of the calling thread's network namespace.
fn index(name: &str) -> io::Result<u32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(name_to_index(&socket, name)?)
}
