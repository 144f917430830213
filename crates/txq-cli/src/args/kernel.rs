//! The options of `txq doctor` and `txq xps`, which inspect the kernel's own devices.

use super::At;

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  txq doctor                                     all interfaces of this namespace
  txq doctor eth0                                its txqs, XPS maps, qdiscs and offloads, and what to change
  txq doctor eth0 --json | jq -r '.[].findings[].remedy'

The commands that it prints are not executed. ethtool and tc must be installed for what they know. The devices of
running txq programs (`txq ls`), or of the one at --name or --socket, are listed if frames were too long for them or their timers are late.";

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The interface [default: all but lo]
    pub(crate) interface: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
    /// Print one JSON array, an object for each interface, and for each device of a txq program with findings
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const XPS_EXAMPLES: &str = "\
Examples:
  txq xps show eth0                              the CPUs of each txq
  txq xps auto eth0 --dry-run                    the masks that it would write
  txq xps auto eth0                              a txq for each CPU, or for CPUs that share a cache
  txq xps none eth0                              choose by flow hash again

The masks are those of /sys/class/net/IFACE/queues/tx-N/xps_cpus. They last until the number of txqs changes, or the interface goes.";

#[derive(Debug, clap::Args)]
pub(crate) struct XpsArgs {
    /// What to do
    #[arg(value_enum)]
    pub(crate) action: XpsAction,
    /// The kernel's interface
    pub(crate) interface: String,
    /// Print the masks and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum XpsAction {
    /// Assign txqs to CPUs by the machine's caches
    Auto,
    /// Remove the maps
    None,
    /// Print the maps
    Show,
}
