//! `txq sim cost`: measures the CPU time of a packet in a program of the user's.
//!
//! The program sends as many packets as an argument says. It runs with a number and with twice that number, in turn, so the
//! difference is the time of that many packets: what the program does once, and each time it starts, cancels out.

mod sys;

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::json;
use txq_cli::common::out;
use txq_cli::common::table::number;
use txq_cli::common::tell::Tell;

use super::args::CostArgs;
use super::spread::Spread;
use sys::CpuTime;

/// The argument, or the part of one, that the number of packets replaces.
const NUMBER: &str = "{}";
/// The least difference of CPU time that is measured, in nanoseconds: the clock of some kernels ticks every 4 ms.
const LEAST_CPU_TIME: f64 = 20e6;

/// Runs the program and prints its cost.
pub(crate) fn cost(args: &CostArgs) -> anyhow::Result<()> {
    let named = |word: &OsString| word.to_string_lossy().contains(NUMBER);
    if !args.program.iter().any(named) {
        bail!(
            "no argument of the program contains {NUMBER}: write {NUMBER} in place of the number of packets that it sends"
        );
    }
    let packets = args.packets.get();
    let mut tell = Tell::new(args.quiet);
    let mut rounds = Vec::new();
    // The first run loads the program, and counts for nothing.
    run(&args.program, packets)?;
    for round in 1..=args.rounds.get() {
        tell.say(&format!("round {round} of {}", args.rounds));
        let [once, twice] = [run(&args.program, packets)?, run(&args.program, 2 * packets)?];
        rounds.push([twice.user - once.user, twice.system - once.system]);
    }
    tell.end();
    let each = |ns: f64| ns / packets as f64;
    let spread =
        |of: fn(&[f64; 2]) -> f64| Spread::of(rounds.iter().map(of)).context("there is at least one round");
    let all = spread(|[user, system]| user + system)?;
    if all.median < LEAST_CPU_TIME {
        bail!(
            "{packets} packets more take {:.1} ms of CPU time more, too little to measure: use a larger --packets, and check \
             that the program sends {NUMBER} packets",
            all.median / 1e6
        );
    }
    let [user, system] = [spread(|[user, _]| *user)?, spread(|[_, system]| *system)?];
    let [low, median, high] = [all.low, all.median, all.high].map(each);
    let [user, system] = [user.median, system.median].map(each);
    if args.json {
        let line = json!({
            "cpu_ns_per_packet": median,
            "low": low,
            "high": high,
            "user_ns": user,
            "system_ns": system,
            "packets": packets,
            "rounds": args.rounds.get(),
        });
        return out::write(&format!("{line}\n"));
    }
    let [short, low, high, user, system] = [median, low, high, user, system].map(number);
    out::write(&format!(
        "{short} ns of CPU time a packet ({low} to {high} in {} rounds): {user} in the program, {system} in the kernel\n\
         txq sim plan --private {median:.0}\n",
        args.rounds
    ))
}

/// Runs the program with a number of packets; returns its CPU time.
fn run(program: &[OsString], packets: u64) -> anyhow::Result<CpuTime> {
    let words: Vec<OsString> = program
        .iter()
        .map(|word| match word.to_str() {
            Some(text) => text.replace(NUMBER, &packets.to_string()).into(),
            None => word.clone(),
        })
        .collect();
    let name = words[0].display();
    let before = sys::of_children()?;
    let mut command = Command::new(&words[0]);
    let ended = command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = ended.with_context(|| format!("{name} cannot be run"))?;
    if !status.success() {
        bail!("{name} failed with {packets} packets: {status}");
    }
    let after = sys::of_children()?;
    Ok(CpuTime { user: after.user - before.user, system: after.system - before.system })
}
