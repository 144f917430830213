//! `txq hist`: a histogram of latency by powers of two, in the layout of a bpftrace script on `__dev_queue_xmit`.

use anyhow::bail;
use serde_json::json;
use txq::netdev::Sampling;
use txq::stats::log2::Log2;
use txq_cli_common::{bars, out};

use crate::args::{HistArgs, What};
use crate::report::Device;
use crate::run;

/// Runs a workload and prints one histogram of all devices together; an error if nothing was measured.
pub(crate) fn hist(args: &HistArgs) -> anyhow::Result<()> {
    let what = args.what;
    let (report, closed) = run::workload(&args.workload, args.output.quiet, |device| match what {
        What::Xmit => device.xmit_times = true,
        What::Driver | What::Completion => {
            device.sampling.get_or_insert(Sampling::All);
        }
    })?;
    let mut all = Log2::new();
    report.devices.iter().for_each(|device| all.merge(&of(device, what)));
    if args.output.json {
        let devices = report.devices.iter();
        let devices = devices.map(|d| json!({ "name": d.name, "buckets": bars::json(&of(d, what)) }));
        let line = json!({
            "what": what.name(),
            "unit": "ns",
            "samples": all.count(),
            "buckets": bars::json(&all),
            "devices": devices.collect::<Vec<_>>(),
        });
        out::write(&format!("{line}\n"))?;
    } else {
        out::write(&bars::text(&format!("{}_ns", what.name()), &all))?;
    }
    closed?;
    if all.count() == 0 {
        bail!("--what {}: nothing was measured: send for longer, or without sampling = \"off\"", what.name());
    }
    Ok(())
}

fn of(device: &Device, what: What) -> Log2 {
    match what {
        What::Xmit => device.xmit_times,
        What::Driver => device.latency.0.log2(),
        What::Completion => device.latency.1.log2(),
    }
}
