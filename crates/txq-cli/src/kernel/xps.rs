//! `txq xps`: the kernel's maps from CPUs to the txqs of an interface.

use crate::common::failure::Refused;
use crate::common::out;
use anyhow::bail;
use txq::topology::Topology;
use txq::xps::XpsMap;

use super::doctor::ranges;
use super::{Interface, write_xps};
use crate::args::{XpsAction, XpsArgs};

/// Shows or writes the maps of an interface.
pub(crate) fn xps(args: &XpsArgs) -> anyhow::Result<()> {
    let interface = Interface::read(&args.interface)?;
    let txqs = interface.txqs.len();
    let masks = match args.action {
        XpsAction::Show => {
            let line = |(txq, cpus): (usize, &Vec<usize>)| match cpus.is_empty() {
                true => format!("txq {txq}: by flow hash\n"),
                false => format!("txq {txq}: CPUs {}\n", ranges(cpus)),
            };
            let cpus = interface.txqs.iter().map(|txq| &txq.cpus);
            return out::write(&cpus.enumerate().map(line).collect::<String>());
        }
        XpsAction::None => vec!["0".to_owned(); txqs],
        XpsAction::Auto if txqs < 2 => {
            bail!(
                "interface \"{}\" has {txqs} txq: all CPUs send through it, and there is nothing to map; `ethtool -l {0}` shows \
                 how many it can have",
                args.interface
            )
        }
        XpsAction::Auto => {
            let topology = Topology::read("/sys").map_err(|error| Refused(error.to_string()))?;
            let map = XpsMap::auto(&topology, txqs)?;
            let mask = |txq| map.mask_of(txq as u16).format(topology.nr_cpus());
            (0..txqs).map(mask).collect()
        }
    };
    if args.dry_run {
        let line = |(txq, mask): (usize, &String)| {
            format!("echo {mask} > /sys/class/net/{}/queues/tx-{txq}/xps_cpus\n", args.interface)
        };
        return out::write(&masks.iter().enumerate().map(line).collect::<String>());
    }
    write_xps(&args.interface, &masks)
}
