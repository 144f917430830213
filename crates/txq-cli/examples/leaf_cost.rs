//! What the classes of an ISP's box cost: 20,000 classes of htb with an fq_codel each, on a device that a thread floods. Prints how long
//! `txq tc -batch` takes to load them, what they take of memory unused, used and idle again, and how long a dump of them takes. The
//! last column is the longest time between two batches of the flooding thread meanwhile.
//!
//! ```sh
//! cargo build --release -p txq-cli --bin txq
//! cargo run --release -p txq-cli --example leaf_cost -- [LEAVES]
//! ```

mod flood;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use flood::Flood;
use txq::NetDev;
use txq_control::Client;
use txq_control::tc::Show;
use txq_device::Null;

/// The classes that the thread floods at all times.
const BUSY: u32 = 200;
/// How long a leaf is idle before its memory is measured.
const IDLE: Duration = Duration::from_secs(6);

fn main() -> Result<(), Box<dyn Error>> {
    let leaves = std::env::args().nth(1).map_or(Ok(20_000), |arg| arg.parse::<u32>())?.clamp(BUSY, 60_000);
    let txq = program()?;
    let dev = NetDev::builder(Null::new(1)).qdisc("handle 1: htb").start()?;
    add(&dev, 1..=BUSY)?;
    let socket = std::env::temp_dir().join(format!("txq-leaves-{}.sock", std::process::id()));
    let _server = txq_control::serve(&dev, socket.clone())?;
    Flood::during(&dev, BUSY, |flood| measure(leaves, &txq, &socket, flood))
}

fn measure(leaves: u32, txq: &Path, socket: &Path, flood: &Flood) -> Result<(), Box<dyn Error>> {
    std::thread::sleep(Duration::from_secs(1));
    println!("{leaves} classes of htb with an fq_codel each, {BUSY} of them flooded");
    println!("{:34} {:>10} {:>14} {:>14}", "", "takes", "memory", "longest wait");
    let before = resident()?;
    let print = |what: &str, takes: Option<Duration>| -> Result<(), Box<dyn Error>> {
        let takes = takes.map_or_else(String::new, |takes| format!("{:.2} s", takes.as_secs_f64()));
        let memory = resident()?.saturating_sub(before) as f64 / 1e6;
        println!("{what:34} {takes:>10} {memory:>11.1} MB {:>11.2} ms", flood.longest_ms());
        Ok(())
    };
    let batch = script(BUSY + 1..=leaves);
    flood.longest_ms();
    let takes = load(txq, socket, &batch)?;
    print("loaded by txq tc -batch", Some(takes))?;
    let mut client = Client::connect_within(socket, Duration::from_secs(60))?;
    for object in ["class", "qdisc"] {
        let (begin, show) = (Instant::now(), Show { stats: true, ..Show::default() });
        let answer = client.tc(&[object, "show", "dev", "null0"], show)?;
        assert!(answer.out.lines().count() > leaves as usize, "{}", answer.err);
        print(&format!("tc -s {object} show"), Some(begin.elapsed()))?;
    }
    flood.classes.store(leaves, Relaxed);
    let begin = flood.packets.load(Relaxed);
    while flood.packets.load(Relaxed) < begin + 2 * u64::from(leaves) {
        std::thread::sleep(Duration::from_millis(1));
    }
    print("all have had packets", None)?;
    flood.classes.store(BUSY, Relaxed);
    std::thread::sleep(IDLE);
    print(&format!("all but {BUSY} idle for {} s", IDLE.as_secs()), None)
}

/// Returns the path of `txq` beside this example.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let txq = own.parent().and_then(Path::parent).map(|folder| folder.join("txq"));
    txq.filter(|txq| txq.is_file())
        .ok_or_else(|| "build txq first: cargo build --release -p txq-cli --bin txq".into())
}

/// Returns the commands that add leaves.
fn script(leaves: impl Iterator<Item = u32>) -> String {
    let mut text = String::new();
    for leaf in leaves {
        let _ =
            writeln!(text, "class add dev null0 parent 1: classid 1:{leaf:x} htb rate 10gbit quantum 1514");
        let _ = writeln!(text, "qdisc add dev null0 parent 1:{leaf:x} handle {:x}: fq_codel", leaf + 1);
    }
    text
}

/// Adds leaves without the control socket.
fn add(dev: &NetDev, leaves: impl Iterator<Item = u32>) -> Result<(), Box<dyn Error>> {
    for leaf in leaves {
        dev.tc(&format!("class add parent 1: classid 1:{leaf:x} htb rate 10gbit quantum 1514"))?;
        dev.tc(&format!("qdisc add parent 1:{leaf:x} handle {:x}: fq_codel", leaf + 1))?;
    }
    Ok(())
}

/// Executes commands by `txq tc -batch`; returns how long it took.
fn load(txq: &Path, socket: &Path, commands: &str) -> Result<Duration, Box<dyn Error>> {
    let file = socket.with_extension("tc");
    fs::write(&file, commands)?;
    let begin = Instant::now();
    let done = Command::new(txq).args(["tc", "--socket"]).arg(socket).arg("-batch").arg(&file).status();
    let takes = begin.elapsed();
    fs::remove_file(&file)?;
    if done?.success() { Ok(takes) } else { Err("txq tc -batch failed".into()) }
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("/proc/self/status has no VmRSS")?.parse::<u64>()? << 10)
}
