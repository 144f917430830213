//! Ping beside four TCP streams, for the examples that measure it: the run, its percentiles, and their picture.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use txq_lab::plot::{At, Curve, Curves, Size, curves};

use super::netns::Netns;
use super::process::Running;

/// A bound that no step reaches, however slow the machine is.
const LONG: Duration = Duration::from_secs(120);
/// iperf3's words for Linux's default congestion control, which fills a queue up to its limit: a machine may have another default, such
/// as bbr, which does not.
pub(crate) const CUBIC: [&str; 2] = ["-C", "cubic"];
/// The percentiles of the picture.
const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0];

/// The result of a run.
pub(crate) struct LoadedPing {
    /// bit/s of TCP.
    pub(crate) goodput: f64,
    /// Round-trip times in milliseconds, ascending.
    pings: Vec<f64>,
    pub(crate) lost: usize,
}

impl LoadedPing {
    /// Sends four TCP streams from `near` to `address`, which is in `far`, and pings meanwhile.
    pub(crate) fn measure(near: &Netns, far: &Netns, address: &str, seconds: u32) -> Result<Self> {
        let mut server = Running::start(far.command("iperf3").args(["-s", "-1", "--forceflush"]));
        server.wait_for_text("listening", LONG);
        let time = (seconds + 2).to_string();
        let iperf3 = ["-c", address, "-P", "4", "-J", "-t", &time];
        let iperf3 = Running::start(near.command("iperf3").args(iperf3).args(CUBIC));
        // The pings begin when the streams have filled the queue.
        std::thread::sleep(Duration::from_secs(2));
        let count = 50 * seconds.saturating_sub(1).max(1);
        let pings = pings(near, address, "0.02", count);
        let iperf3 = iperf3.finish(LONG);
        let report: Value =
            serde_json::from_str(&iperf3.stdout).with_context(|| format!("iperf3: {}", iperf3.stdout))?;
        let goodput =
            report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 has no result")?;
        Ok(Self { goodput, lost: count as usize - pings.len(), pings })
    }

    /// Returns the time that `percent` of the pings do not exceed, in milliseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.pings, percent)
    }
}

/// Pings `address` from `near`, `count` times; returns the round-trip times in milliseconds, ascending.
pub(crate) fn pings(near: &Netns, address: &str, interval: &str, count: u32) -> Vec<f64> {
    let words = ["-i", interval, "-c", &count.to_string(), "-W", "2", address];
    let ping = Running::start(near.command("ping").args(words)).finish(LONG);
    let times = ping.stdout.lines();
    let times = times.filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Returns the value that `percent` of the values do not exceed; not a number if there is none.
pub(crate) fn percentile(ascending: &[f64], percent: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last as f64 * percent / 100.0).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Reads the options of an example: a file for the picture, and how many seconds each run takes.
pub(crate) fn options(example: &str) -> Result<(Option<String>, u32)> {
    let (mut svg, mut seconds, mut args) = (None, 10, std::env::args().skip(1));
    while let Some(option) = args.next() {
        let value = args.next().with_context(|| format!("{option} needs a value"));
        match option.as_str() {
            "--svg" => svg = Some(value?),
            "--seconds" => seconds = value?.parse().context("--seconds: not a number of seconds")?,
            _ => bail!("unknown option {option}; use: {example} [--svg FILE] [--seconds N]"),
        }
    }
    Ok((svg, seconds))
}

/// Draws the distribution of the pings, a curve for each run.
pub(crate) fn picture<'r>(
    title: &str,
    runs: impl Iterator<Item = (&'r str, &'r LoadedPing)>,
    size: Size,
) -> Result<String> {
    let at = |run: &LoadedPing| {
        let values = PERCENTILES.iter().enumerate();
        values.map(|(step, &percent)| At { step, value: run.percentile(percent), spread: None }).collect()
    };
    let panel = Curves {
        title: title.to_owned(),
        over: "percentile of the pings".to_owned(),
        figure: "round trip, ms".to_owned(),
        steps: PERCENTILES.iter().enumerate().map(|(i, percent)| (format!("{percent}"), i as f64)).collect(),
        curves: runs.map(|(name, run)| Curve { name: name.to_owned(), at: at(run) }).collect(),
        note: String::new(),
        // A queue that is not managed is a thousand times as long as one that is.
        log: true,
    };
    curves(&[panel], size, 1)
}
