//! What dumps of a device with 10,000 classes cost the thread that floods it. Three windows take turns: with one dump after another of the
//! flooded device, with dumps of an idle device alike, and without dumps. The second one's dumps cost the CPUs as much as the first
//! one's and hold up nothing, so the two tell apart what any process beside the path costs and what the path waits for.
//!
//! ```sh
//! cargo run --release -p txq-cli --features watch --example dump_cost -- [CLASSES] [ROUNDS]
//! ```

mod flood;

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use flood::Flood;
use txq::NetDev;
use txq_cli::watch::metrics::{Format, metrics};
use txq_cli::watch::snapshot::Snapshot;
use txq_control::Client;
use txq_control::tc::Show;
use txq_device::Null;

/// A window of each sort.
const WINDOW: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let classes = args.next().unwrap_or(Ok(10_000))?.clamp(1, 60_000);
    let rounds = args.next().unwrap_or(Ok(9))?.max(1) as usize;
    let (dev, twin) = (device(classes)?, device(classes)?);
    let folder = std::env::temp_dir();
    let path = |of: &str| folder.join(format!("txq-dump-{of}-{}.sock", std::process::id()));
    let servers = [txq_control::serve(&dev, path("own"))?, txq_control::serve(&twin, path("twin"))?];
    let mut clients = [Client::connect(path("own"))?, Client::connect(path("twin"))?];
    let mut rows = KINDS.map(|_| Row::default());
    Flood::during(&dev, classes, |flood| {
        // The first round warms up.
        let mut rounds = 0..=rounds;
        rounds.try_for_each(|round| {
            let mut kinds = KINDS.iter().zip(&mut rows);
            kinds.try_for_each(|(kind, row)| row.measure(kind, &mut clients, flood, round > 0))
        })
    })?;
    println!("{classes} classes of htb under full load, {rounds} rounds; medians (least to most)");
    println!("A dump a second costs the path, in percent:");
    println!(
        "{:20} {:>9} {:>24} {:>24} {:>24} {:>14}",
        "dump", "takes", "by waits", "by its CPU time", "both, per CPU time", "longest wait"
    );
    for (kind, row) in KINDS.iter().zip(&mut rows) {
        let Row { takes, costs, longest } = row;
        let [waits, cpu, per_cpu] = costs.each_mut().map(|of| spread(of));
        takes.sort_by(f64::total_cmp);
        let takes = takes[takes.len() / 2] * 1e3;
        println!("{kind:20} {takes:>6.0} ms {waits:>24} {cpu:>24} {per_cpu:>24} {longest:>11.2} ms");
    }
    drop(servers);
    Ok(())
}

/// The kinds of dumps.
const KINDS: [&str; 3] = ["tc -s class show", "tc -s -j class show", "metrics"];

/// Returns a device with htb and its classes.
fn device(classes: u32) -> Result<NetDev, Box<dyn Error>> {
    let dev = NetDev::builder(Null::new(1)).qdisc("handle 1: htb").start()?;
    for class in 1..=classes {
        dev.tc(&format!("class add parent 1: classid 1:{class:x} htb rate 10gbit"))?;
    }
    Ok(dev)
}

/// The results of one kind of dump.
#[derive(Default)]
struct Row {
    /// How long a dump of the flooded device takes, in seconds.
    takes: Vec<f64>,
    /// What the path loses by a dump a second, in percent: packets with dumps of the flooded device against those with dumps of the
    /// twin; those against packets without dumps; packets for each second of the sender's CPU time with dumps against those without.
    costs: [Vec<f64>; 3],
    /// The longest time between two batches of the flooding thread in the windows with dumps of its device, in milliseconds.
    longest: f64,
}

impl Row {
    /// Measures a window of each sort.
    fn measure(
        &mut self,
        kind: &str,
        clients: &mut [Client; 2],
        flood: &Flood,
        counts: bool,
    ) -> Result<(), Box<dyn Error>> {
        // Packets for each second, and for each second of CPU time.
        let (mut rates, mut takes) = ([[0.0; 2]; 3], 0.0);
        for (at, rate) in rates.iter_mut().enumerate() {
            flood.longest_ms();
            let (begin, before, cpu, mut dumps) =
                (Instant::now(), flood.packets.load(Relaxed), flood.cpu()?, 0);
            match clients.get_mut(at) {
                Some(client) => {
                    while begin.elapsed() < WINDOW {
                        dump(client, kind)?;
                        dumps += 1;
                    }
                }
                None => std::thread::sleep(WINDOW),
            }
            let (packets, time) = ((flood.packets.load(Relaxed) - before) as f64, begin.elapsed());
            *rate = [packets / time.as_secs_f64(), packets / (flood.cpu()? - cpu)];
            if at == 0 {
                takes = time.as_secs_f64() / f64::from(dumps);
                let longest = flood.longest_ms();
                self.longest = self.longest.max(if counts { longest } else { 0.0 });
            }
        }
        let [own, twin, none] = rates;
        if counts {
            self.takes.push(takes);
            // Of a second, dumps fill the part that one takes.
            let costs = [own[0] / twin[0], twin[0] / none[0], own[1] / none[1]];
            self.costs.iter_mut().zip(costs).for_each(|(of, ratio)| of.push(100.0 * takes * (1.0 - ratio)));
        }
        Ok(())
    }
}

fn spread(of: &mut [f64]) -> String {
    of.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2} to {:.2})", of[of.len() / 2], of[0], of[of.len() - 1])
}

/// Asks for one dump, as `txq tc` and `txq web` do.
fn dump(client: &mut Client, what: &str) -> Result<(), Box<dyn Error>> {
    let show = Show { stats: true, json: what.contains("-j"), ..Show::default() };
    match what {
        "metrics" => drop(black_box(metrics(Some(&Snapshot::take(client)?), Format::Prometheus))),
        _ => drop(black_box(client.tc(&["class", "show", "dev", "null0"], show)?)),
    }
    Ok(())
}
