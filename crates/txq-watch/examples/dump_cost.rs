//! What dumps of a device with 10,000 classes cost the thread that floods it: packets a second with a dump every second, over those
//! without, and over those with a dump of an idle device alike, in turn in one run. The second ratio is the cost of what the dump
//! holds up; the first one has that of the CPU time, too, where the machine has no CPU to spare.
//!
//! ```sh
//! cargo run --release -p txq-watch --example dump_cost -- [CLASSES] [ROUNDS]
//! ```

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use txq::NetDev;
use txq::packet::PacketList;
use txq_control::Client;
use txq_control::tc::Show;
use txq_device::Null;
use txq_watch::metrics::{Format, metrics};
use txq_watch::snapshot::Snapshot;

/// A window with or without dumps. Prometheus and a person at a terminal ask less often.
const WINDOW: Duration = Duration::from_secs(1);
const BATCH: usize = 32;
const LEN: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let classes = args.next().unwrap_or(Ok(10_000))?.clamp(1, 60_000);
    let rounds = args.next().unwrap_or(Ok(9))?.max(1) as usize;
    let (dev, twin) = (device(classes)?, device(classes)?);
    let folder = std::env::temp_dir();
    let path = |of: &str| folder.join(format!("txq-dump-{of}-{}.sock", std::process::id()));
    let servers = [txq_control::serve(&dev, path("own"))?, txq_control::serve(&twin, path("twin"))?];
    let mut clients = [Client::connect(path("own"))?, Client::connect(path("twin"))?];
    let (sent, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let mut rows = KINDS.map(|_| Row::default());
    let done = std::thread::scope(|scope| {
        scope.spawn(|| flood(&dev, classes, sent, stop));
        // The first round warms up.
        let mut rounds = 0..=rounds;
        let done = rounds.try_for_each(|round| {
            KINDS
                .iter()
                .zip(&mut rows)
                .try_for_each(|(kind, row)| row.measure(kind, &mut clients, sent, round > 0))
        });
        stop.store(true, Relaxed);
        done
    });
    done?;
    println!(
        "{classes} classes of htb under full load, one dump a second, {rounds} rounds; medians (least to most)"
    );
    println!(
        "{:22} {:>24} {:>32} {:>8}",
        "dump", "rate / that without", "rate / that with an idle twin's", "longest"
    );
    for (kind, row) in KINDS.iter().zip(&mut rows) {
        let [none, twin] = row.ratios.each_mut().map(|of| spread(of));
        println!("{kind:22} {none:>24} {twin:>32} {:>5.0} ms", row.longest.as_secs_f64() * 1e3);
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
        dev.add_class(&format!("parent 1: classid 1:{class:x} htb rate 10gbit"))?;
    }
    Ok(dev)
}

/// The results of one kind of dump.
#[derive(Default)]
struct Row {
    /// The rate with a dump of the flooded device, over that without a dump, and over that with a dump of the twin, which costs
    /// the CPUs as much and stops nothing.
    ratios: [Vec<f64>; 2],
    longest: Duration,
}

impl Row {
    /// Measures a window of each sort.
    fn measure(
        &mut self,
        kind: &str,
        clients: &mut [Client; 2],
        sent: &AtomicU64,
        counts: bool,
    ) -> Result<(), Box<dyn Error>> {
        let mut rates = [0.0; 3];
        for (at, rate) in rates.iter_mut().enumerate() {
            let (begin, before) = (Instant::now(), sent.load(Relaxed));
            if let Some(client) = clients.get_mut(at) {
                dump(client, kind)?;
                self.longest = self.longest.max(begin.elapsed());
            }
            std::thread::sleep(WINDOW.saturating_sub(begin.elapsed()));
            *rate = (sent.load(Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        }
        let [own, twin, none] = rates;
        if counts {
            self.ratios[0].push(own / none);
            self.ratios[1].push(own / twin);
        }
        Ok(())
    }
}

fn spread(of: &mut [f64]) -> String {
    of.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3} to {:.3})", of[of.len() / 2], of[0], of[of.len() - 1])
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

/// Sends to all classes in turn, as fast as buffers return.
fn flood(dev: &NetDev, classes: u32, sent: &AtomicU64, stop: &AtomicBool) {
    let (mut sender, mut list, mut class) = (dev.sender("flood"), PacketList::new(), 0);
    sender.set_limit(256);
    while !stop.load(Relaxed) {
        let _ = sender.alloc_batch(BATCH, LEN, &mut list);
        list.for_each_mut(|packet| {
            class = class % classes + 1;
            packet.set_priority(0x1_0000 | class);
        });
        let packets = list.len() as u64;
        match packets {
            0 => drop(sender.wait_credit(Some(sender.now() + 1_000_000))),
            _ => drop(sender.xmit_batch(&mut list)),
        }
        sent.fetch_add(packets, Relaxed);
    }
}
