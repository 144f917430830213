//! `txq trace`: the steps of a running program's packets, a line each, in the manner of perf trace and tcpdump.

mod pcapng;
mod text;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::time::{Duration, Instant};

use crate::common::failure::{Refused, refused};
use crate::common::out::cell;
use crate::common::stop::Signals;
use anyhow::{Context, bail};
use serde_json::json;
use txq_control::{TraceEvent, TraceOptions, Traced, Tracing};

use crate::args::TraceArgs;
use crate::control;
use crate::kernel::programs::{TOO_LONG, counter};
use pcapng::Capture;

/// How long the command waits for an event before it checks for a signal.
const EVENT_WAIT: Duration = Duration::from_millis(100);

/// Prints or writes events until the trace ends.
pub(crate) fn trace(args: &TraceArgs) -> anyhow::Result<()> {
    let options = options(args);
    if let Err(error) = options.filter() {
        bail!("{error}");
    }
    let signals = Signals::catch()?;
    let mut client = control::connect(&args.target)?;
    if let Some(txq) = args.txq {
        let devices = client.info().map_err(control::failed)?.devices;
        let named = devices.iter().filter(|dev| args.dev.as_ref().is_none_or(|name| *name == dev.name));
        let most = named.map(|dev| u64::from(dev.numtxqueues)).max();
        if let Some(most) = most.filter(|most| txq.get() >= *most) {
            bail!("--txq {txq}: there are {most} txqs at most: use 0 to {}", most - 1);
        }
    }
    let before = too_long(args);
    for (device, frames) in before.iter().filter(|(_, frames)| **frames > 0) {
        eprintln!(
            "txq: device \"{}\" has dropped {frames} frames so far that were too long ({TOO_LONG})",
            cell(device)
        );
    }
    let mut tracing = client.trace(&options).map_err(control::failed)?;
    let mut output = Output::open(args, &tracing)?;
    let names: Vec<_> = tracing.devices().iter().map(|dev| dev.name.as_str()).collect();
    eprintln!("txq: tracing {}; Ctrl-C ends", names.join(", "));
    match follow(args, &signals, &mut tracing, &mut output) {
        // The reader of the output is gone: `txq trace | head`.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        ended => {
            for (device, frames) in too_long(args) {
                let more = frames.saturating_sub(before.get(&device).copied().unwrap_or(0));
                if more > 0 {
                    eprintln!(
                        "txq: device \"{}\" dropped {more} frames meanwhile that were too long ({TOO_LONG}): they have no event",
                        cell(&device)
                    );
                }
            }
            ended
        }
    }
}

/// Returns how many received frames did not fit into the buffers of each device; none if the program does not tell.
fn too_long(args: &TraceArgs) -> BTreeMap<String, u64> {
    let connected = control::connect(&args.target).ok();
    let counted = connected.and_then(|mut client| client.stat(args.dev.as_deref()).ok()).unwrap_or_default();
    counted.iter().map(|device| (device.device.clone(), counter(device, TOO_LONG))).collect()
}

/// Returns the options of the trace.
fn options(args: &TraceArgs) -> TraceOptions {
    let mut options = TraceOptions::default();
    (options.dev, options.txq, options.handle) =
        (args.dev.clone(), args.txq.map(|txq| txq.get() as u16), args.handle.clone());
    (options.events, options.reasons) = (args.events.clone(), args.reasons.clone());
    options.expr = (!args.expression.is_empty()).then(|| args.expression.join(" "));
    options.count = args.count.map(|count| count.get());
    options.ms = args.duration.map(|span| span.0.as_millis().try_into().unwrap_or(u64::MAX));
    options.data = args.write.is_some();
    options
}

/// Writes lines until the last one.
fn follow(
    args: &TraceArgs,
    signals: &Signals,
    tracing: &mut Tracing,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut stopped: Option<Instant> = None;
    loop {
        if stopped.is_none() && signals.seen().is_some() {
            tracing.stop();
            stopped = Some(Instant::now());
        }
        if stopped.is_some_and(|at| at.elapsed() > args.target.timeout.0) {
            return Err(Refused("the program does not end the trace".to_owned()).into());
        }
        match tracing.next_within(Duration::ZERO).map_err(control::failed)? {
            Some(Traced::Event(event)) => output.event(&event)?,
            Some(Traced::End { events, lost }) => return output.end(events, lost),
            _ => {
                // All lines that have arrived are written before the command sleeps.
                output.flush()?;
                match tracing.next_within(EVENT_WAIT).map_err(control::failed)? {
                    Some(Traced::Event(event)) => output.event(&event)?,
                    Some(Traced::End { events, lost }) => return output.end(events, lost),
                    _ => {}
                }
            }
        }
    }
}

/// Where events go.
enum Output {
    Text(BufWriter<StdoutLock<'static>>),
    Json(BufWriter<StdoutLock<'static>>),
    Pcapng(Box<Capture>),
}

impl Output {
    fn open(args: &TraceArgs, tracing: &Tracing) -> anyhow::Result<Self> {
        let stdout = || BufWriter::new(io::stdout().lock());
        let Some(path) = &args.write else {
            return Ok(if args.json { Self::Json(stdout()) } else { Self::Text(stdout()) });
        };
        let file: Box<dyn Write> = match path.to_str() {
            Some("-") => Box::new(io::stdout().lock()),
            _ => {
                let file = std::fs::File::create(path);
                Box::new(file.map_err(refused(format!("{} cannot be written", path.display())))?)
            }
        };
        Ok(Self::Pcapng(Box::new(Capture::new(file, tracing.devices())?)))
    }

    fn event(&mut self, event: &TraceEvent) -> anyhow::Result<()> {
        match self {
            Self::Text(out) => writeln!(out, "{}", cell(&text::line(event))).context("stdout"),
            Self::Json(out) => {
                serde_json::to_writer(&mut *out, event).map_err(io::Error::from).context("stdout")?;
                writeln!(out).context("stdout")
            }
            Self::Pcapng(capture) => capture.add(event),
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Text(out) | Self::Json(out) => out.flush().context("stdout"),
            Self::Pcapng(capture) => capture.flush(),
        }
    }

    /// Writes the numbers of events and losses.
    fn end(&mut self, events: u64, lost: u64) -> anyhow::Result<()> {
        match self {
            Self::Json(out) => {
                writeln!(out, "{}", json!({ "events": events, "lost": lost })).context("stdout")?;
            }
            Self::Text(_) | Self::Pcapng(_) => {}
        }
        self.flush()?;
        eprintln!("txq: {events} events, {lost} lost");
        Ok(())
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of = |cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(of))
}
