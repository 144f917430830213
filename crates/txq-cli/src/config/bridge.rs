//! The bridge that `txq bridge` describes in words.

use anyhow::ensure;
use toml::Table;

use super::check::{self, Purpose};
use super::{Bridge, Config, Device, Loaded, Priority, Segments, Socket, Tun, Ways, rehearse};
use crate::args::{BridgeArgs, ShellArgs};
use crate::device;

/// Returns the file that stands for a command line.
pub(crate) fn of_bridge(args: &BridgeArgs) -> anyhow::Result<Loaded> {
    let ways = Ways::of(args.preset.as_deref(), args.up.as_ref(), args.down.as_ref())?;
    let (first, second) =
        (end(&args.first, args, ways.down.as_deref())?, end(&args.second, args, ways.up.as_deref())?);
    let names = [&first, &second].map(|device| device.name.clone().unwrap_or_default());
    ensure!(names[0] != names[1], "both ends of the bridge are \"{}\": name two interfaces", names[0]);
    let bridge = Bridge {
        devices: names,
        segments: if args.keep_segments { Segments::Keep } else { Segments::Cut },
        priority: Priority::Tos,
        cpus: Vec::new(),
    };
    let socket = args.client_socket.iter().map(|path| Socket {
        path: path.clone(),
        device: second.name.clone(),
        group: args.client_group.clone(),
        ..Socket::default()
    });
    let socket = socket.collect();
    checked(
        "txq bridge",
        Config { device: vec![first, second], bridge: vec![bridge], socket, ..Config::default() },
    )
}

/// Returns the file that stands for the link of a shell: a TUN interface at each end. Each end is in a network namespace, or in the
/// program's own. `interface` is the name of that at the far end.
pub(crate) fn of_link(
    args: &ShellArgs,
    ways: &Ways,
    spaces: [Option<String>; 2],
    interface: &str,
) -> anyhow::Result<Loaded> {
    let ends = [("up", interface, &ways.up), ("down", "link0", &ways.down)];
    let device = ends.into_iter().zip(spaces).map(|((name, interface, way), namespace)| {
        let mut device = Device {
            name: Some(name.to_owned()),
            tun: Some(Tun {
                interface: interface.to_owned(),
                mtu: Some(args.mtu),
                namespace,
                ..Tun::default()
            }),
            default_qdisc: Some("fq_codel".to_owned()),
            ..Device::default()
        };
        super::apply_way(way.as_deref(), &mut device);
        device
    });
    let device: Vec<_> = device.collect();
    let bridge = Bridge {
        devices: ["up", "down"].map(str::to_owned),
        segments: Segments::Cut,
        priority: Priority::Tos,
        cpus: Vec::new(),
    };
    checked("txq shell", Config { device, bridge: vec![bridge], ..Config::default() })
}

/// Checks a file that stands for the command line of `program`.
fn checked(program: &str, mut config: Config) -> anyhow::Result<Loaded> {
    // There is no file in which the faults have a place.
    let wrong = |fault: super::locate::Fault| fault.at(program, "");
    check::check(&mut config, Purpose::Daemon).map_err(wrong)?;
    rehearse::rehearse(&config).map_err(wrong)?;
    Ok(Loaded { config, raw: Table::new() })
}

/// Returns the device of one end, with the qdisc of what leaves there.
fn end(name: &str, args: &BridgeArgs, way: Option<&str>) -> anyhow::Result<Device> {
    let mut device = device::named(name, args.txqs.get() as u16, false)?;
    super::apply_way(way, &mut device);
    device.default_qdisc = Some("fq_codel".to_owned());
    Ok(device)
}
