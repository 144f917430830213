//! `txq hist`: a histogram of latency by powers of two, in the layout of a bpftrace script on `__dev_queue_xmit`.

use std::time::Duration;

use crate::common::{bars, out};
use anyhow::bail;
use serde_json::json;
use txq::netdev::Sampling;
use txq::stats::log2::Log2;

use crate::args::{HistArgs, Target, What};
use crate::control;
use crate::report::Device;
use crate::run;

/// Prints one histogram of all devices of a workload, or of a running program, together; an error if nothing was measured.
pub(crate) fn hist(args: &HistArgs) -> anyhow::Result<()> {
    match args.running.target() {
        Some(target) => running(args, &target),
        None if args.since_start => {
            bail!("--since-start needs a running program: name it with --name or --socket")
        }
        None if args.running.dev.is_some() => {
            bail!("--dev needs a running program: name it with --name or --socket")
        }
        None => workload(args),
    }
}

/// Measures a running program.
fn running(args: &HistArgs, target: &Target) -> anyhow::Result<()> {
    let what = match args.what {
        What::Xmit => txq_control::Interval::Xmit,
        What::Driver => txq_control::Interval::Driver,
        What::Completion => txq_control::Interval::Completion,
        What::Lateness => txq_control::Interval::Lateness,
    };
    let time = match args.since_start {
        true => Duration::ZERO,
        false => args.workload.duration.map_or(control::RECORDING, |span| span.0),
    };
    let mut client = control::connect(target)?;
    let found = client.hist(what, args.running.dev.as_deref(), time).map_err(control::failed)?;
    let devices: Vec<_> = found.into_iter().map(|device| (device.device, device.times)).collect();
    if print(args, &devices)? == 0 {
        let remedy = match args.what {
            What::Xmit => "the program builds its device with `xmit_times(true)`",
            What::Lateness => "a qdisc shapes, and holds packets back",
            _ => "the program sends, and builds its device with `sampling`",
        };
        bail!("--what {}: nothing was measured: wait for longer, and check that {remedy}", args.what.name());
    }
    Ok(())
}

/// Sends a workload and measures it.
fn workload(args: &HistArgs) -> anyhow::Result<()> {
    let what = args.what;
    let (report, closed) = run::workload(&args.workload, args.output.quiet, |device| match what {
        What::Xmit => device.xmit_times = true,
        What::Lateness => {}
        What::Driver | What::Completion => {
            device.sampling.get_or_insert(Sampling::All);
        }
    })?;
    let devices: Vec<_> =
        report.devices.iter().map(|device| (device.name.clone(), of(device, what))).collect();
    let samples = print(args, &devices)?;
    closed?;
    if samples == 0 {
        let remedy = match what {
            What::Lateness => "send more than the qdisc's rate allows",
            _ => "send for longer, or without sampling = \"off\"",
        };
        bail!("--what {}: nothing was measured: {remedy}", what.name());
    }
    Ok(())
}

/// Prints the histograms of devices; returns the number of samples.
fn print(args: &HistArgs, devices: &[(String, Log2)]) -> anyhow::Result<u64> {
    let what = args.what;
    let mut all = Log2::new();
    devices.iter().for_each(|(_, times)| all.merge(times));
    if args.output.json {
        let devices = devices.iter();
        let devices = devices.map(|(name, times)| json!({ "name": name, "buckets": bars::json(times) }));
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
    Ok(all.count())
}

fn of(device: &Device, what: What) -> Log2 {
    match what {
        What::Xmit => device.xmit_times,
        What::Driver => device.latency.to_driver.log2(),
        What::Completion => device.latency.to_completion.log2(),
        What::Lateness => device.lateness,
    }
}
