//! `txq shell`: a program in a network namespace of its own, whose packets pass a qdisc in each direction.
//!
//! This process has the queues of two TUN interfaces, one at each end of the link, and forwards between them as `txq bridge` does. The
//! near end is in a new namespace. The far end is in this process' own namespace, which routes on, or in a second new one: that of a
//! peer, or one whose route is `pasta`. Each new namespace has a first process ([`stage`]), which ends with this one; the interfaces and
//! rules belong to descriptors. So nothing stays, however this process ends.

mod address;
mod far;
mod files;
mod nat;
mod netlink;
mod pasta;
mod space;
mod stage;
mod user;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use txq_control::{Error, Listener};
use txq_device::Tun;

use crate::args::{At, ShellArgs};
use crate::common::failure::Refused;
use crate::config::{self, Loaded, Ways};
use crate::control;
use crate::daemon::{Meters, Realtime, State};
use crate::exec::is_foreground;
use address::{End, Number};
use space::Space;
use stage::{Link, Orders};

/// The names of the devices.
const UP: &str = "up";
const DOWN: &str = "down";
/// The name of the shell's interface, and of a peer's.
const INTERFACE: &str = "link0";
/// The name of the thread in the namespace of the far end, before the link's number.
const FAR: &str = "far-";
/// How long a server may take to listen, or `pasta` to configure its interface.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(20);

/// The far end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    /// This process' own network namespace.
    Here,
    Pasta,
    Peer,
}

/// Runs the program of the command line; returns its exit code.
pub(crate) fn shell(args: &ShellArgs) -> anyhow::Result<ExitCode> {
    if let Some(orders) = &args.stage {
        return stage::run(orders);
    }
    if let Some(name) = &args.far {
        return far::enter(name, &args.command);
    }
    // Wrong qdiscs are found before anything is made.
    let ways = Ways::of(args.preset.as_deref(), args.up.as_ref(), args.down.as_ref())?;
    config::of_link(args, &ways, [None, None], "")?;
    let outside = Outside::of(args)?;
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let meters = Meters::default();
    let (listener, name) = listen(args, &meters)?;
    let number = Number::claim()?;
    let ends = [End::near(number.get()), End::far(number.get())];
    let [near_end, far_end] = ends;
    let mut near = Space::start("near", UnshareFlags::NEWNET | UnshareFlags::NEWNS, space::own())?;
    let mut other = match outside {
        Outside::Here => None,
        _ => Some(Space::start(
            &format!("{FAR}{}", number.get()),
            UnshareFlags::NEWNET | UnshareFlags::NEWNS,
            space::in_background(),
        )?),
    };
    let interface = match outside {
        Outside::Here | Outside::Pasta => format!("txq{}", number.get()),
        Outside::Peer => INTERFACE.to_owned(),
    };
    let spaces = [other.as_ref(), Some(&near)].map(|space| space.map(Space::network));
    let Loaded { config, raw } = config::of_link(args, &ways, spaces, &interface)?;
    let mut state = State::start(Some(Loaded { config, raw }), meters, Realtime::default())?;
    let server = listener.serve().map_err(control::failed)?;
    state.serve(&server)?;
    let link = Link {
        interface,
        end: far_end,
        gateways: Vec::new(),
        // pasta sends from its own sockets, whatever the address in the namespace.
        masquerade: outside == Outside::Here,
    };
    let environment = environment(&name, ends, outside != Outside::Pasta);
    let (rules, pasta) = match (&mut other, outside) {
        (Some(far), Outside::Pasta) => {
            far.order(Orders { link: Some(link), ..Orders::default() })?;
            (None, Some(pasta::start(far)?))
        }
        (Some(far), _) => {
            let serve = args.serve.iter();
            let command = serve.flat_map(|server| ["sh", "-c", &**server].map(OsString::from)).collect();
            let environment = environment.clone();
            far.order(Orders { link: Some(link), proc: true, command, environment, ..Orders::default() })?;
            if args.serve.is_some() {
                wait_for_server(far);
            }
            (None, None)
        }
        (None, _) => (stage::configure(&link)?, None),
    };
    near.order(Orders {
        link: Some(Link {
            interface: INTERFACE.to_owned(),
            end: near_end,
            gateways: gateways(far_end, outside, other.as_ref()),
            masquerade: false,
        }),
        proc: true,
        resolv_conf: resolv_conf(args, outside),
        command: command(&args.command),
        environment,
        control: Some(name.clone()),
        ..Orders::default()
    })?;
    if !args.quiet {
        eprintln!(
            "txq: shell \"{name}\": {} here, {} at the other end; `txq tc --name {name} -s qdisc show` shows the devices {UP} and {DOWN}",
            near_end.v4, far_end.v4
        );
    }
    let code = run(&mut near, &mut state, &server, &mut signals)?;
    // The rules and the processes outside end after the program.
    drop((rules, pasta, other));
    Ok(ExitCode::from(code))
}

impl Outside {
    /// Chooses by what the user asks for, and by what this process may do. A user without capabilities gets those of a user namespace.
    fn of(args: &ShellArgs) -> anyhow::Result<Self> {
        let is_capable = user::is_capable();
        let outside = if args.peer || args.serve.is_some() {
            Self::Peer
        } else if is_capable && may_make_interfaces()? {
            check_forwarding()?;
            Self::Here
        } else {
            pasta::find()?;
            Self::Pasta
        };
        if !is_capable {
            user::enter()?;
        }
        Ok(outside)
    }
}

/// Returns whether this process may make an interface in its network namespace, which may belong to another user namespace.
fn may_make_interfaces() -> anyhow::Result<bool> {
    match Tun::create("txq-try%d").up(false).open() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(Refused(error.to_string()).into()),
    }
}

fn check_forwarding() -> anyhow::Result<()> {
    if fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|on| on.trim() == "0") {
        let text = "this machine does not forward packets, so a shell of root reaches nothing: `sysctl -w net.ipv4.ip_forward=1` changes that; \
                    or use --peer, or be an ordinary user with pasta";
        return Err(Refused(text.to_owned()).into());
    }
    Ok(())
}

/// Listens for commands, by another name if the default one is in use.
fn listen(args: &ShellArgs, meters: &Meters) -> anyhow::Result<(Listener, String)> {
    let bind = |name: &str| {
        let counters = meters.clone();
        let at = At { name: Some(name.to_owned()), socket: None };
        control::builder(&at, Some(Box::new(move |dev| counters.of(dev)))).program("txq shell").bind()
    };
    if let Some(name) = &args.name {
        return Ok((bind(name).map_err(control::failed)?, name.clone()));
    }
    let mut others = (2..).map(|number| format!("shell-{number}"));
    let mut name = "shell".to_owned();
    loop {
        match bind(&name) {
            Err(Error::InUse { .. }) => name = others.next().unwrap_or_default(),
            listener => return Ok((listener.map_err(control::failed)?, name)),
        }
    }
}

/// Returns a program and its arguments: those given, or the user's shell.
fn command(given: &[OsString]) -> Vec<OsString> {
    if given.is_empty() {
        return vec![env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
    }
    given.to_vec()
}

/// Returns the variables for programs at both ends. The far end of pasta's is no program's.
fn environment(name: &str, [near, far]: [End; 2], has_far: bool) -> BTreeMap<String, String> {
    let far = has_far.then(|| ("TXQ_FAR", far.v4.to_string()));
    let all = [("TXQ_SHELL", name.to_owned()), ("TXQ_NEAR", near.v4.to_string())].into_iter().chain(far);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the gateways of the shell's default routes: that of IPv6 only if the far end has a way on.
fn gateways(far: End, outside: Outside, other: Option<&Space>) -> Vec<IpAddr> {
    let routes = match other {
        Some(space) => space.read("ipv6_route"),
        None => fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default(),
    };
    let forwards = outside != Outside::Here
        || fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding").is_ok_and(|on| on.trim() == "1");
    let has_v6 = outside == Outside::Peer || forwards && has_default_route(&routes);
    std::iter::once(far.v4.into()).chain(has_v6.then_some(far.v6.into())).collect()
}

/// Returns whether the text of `/proc/net/ipv6_route` has a default route of an interface that is not `lo`.
fn has_default_route(routes: &str) -> bool {
    let zero = "0".repeat(32);
    routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
        fields.first() == Some(&&*zero) && fields.get(1) == Some(&"00") && fields.last() != Some(&"lo")
    })
}

fn resolv_conf(args: &ShellArgs, outside: Outside) -> Option<String> {
    let of = |server: IpAddr| Some(format!("nameserver {server}\n"));
    match (args.dns, outside) {
        (Some(server), _) => of(server),
        (None, Outside::Pasta) => of(address::DNS.into()),
        (None, Outside::Here) => files::servers_behind_loopback(),
        (None, Outside::Peer) => None,
    }
}

/// Waits until a process of a namespace has a socket of TCP or UDP, for [`PATIENCE`] at most.
fn wait_for_server(space: &mut Space) {
    let listens = |space: &Space| {
        ["tcp", "tcp6", "udp", "udp6"].iter().any(|file| space.read(file).lines().count() > 1)
    };
    wait_until(|| listens(space) || space.code().is_some());
}

/// Waits until a condition holds, for [`PATIENCE`] at most; returns whether it does.
fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(TICK);
    }
    true
}

/// Forwards until the program in the shell ends; returns its exit code.
fn run(
    near: &mut Space,
    state: &mut State,
    server: &txq_control::Server,
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    loop {
        if let Some(code) = near.code() {
            return Ok(code);
        }
        for signal in signals.pending() {
            let is_terminals = [SIGINT, SIGQUIT].contains(&signal) && is_foreground();
            if let Some(signal) = Signal::from_named_raw(signal).filter(|_| !is_terminals) {
                near.signal(signal);
            }
        }
        if state.tick() {
            state.serve(server)?;
        }
        std::thread::sleep(TICK);
    }
}

/// Gives the calling thread namespaces of its own.
#[expect(deprecated, reason = "it is unsafe only for UnshareFlags::FILES, which no caller uses")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    Ok(rustix::thread::unshare(flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_default_route_by_an_interface_is_a_way_on() {
        let zero = "0".repeat(32);
        let line = |length: &str, interface: &str| {
            format!("{zero} {length} {zero} 00 {zero} 00000400 00000001 00000000 00000003 {interface}\n")
        };
        assert!(has_default_route(&line("00", "eth0")));
        assert!(!has_default_route(&line("00", "lo")) && !has_default_route(&line("40", "eth0")));
    }

    #[test]
    fn a_shell_without_a_program_is_the_users() {
        assert_eq!(command(&["true".into()]), ["true"]);
        assert_eq!(command(&[]).len(), 1);
    }
}
