//! The peer DPDK: its rings, mempools and scheduler, and threads that share tx queues, measured by small C programs
//! (`peers/dpdk.c`, `peers/sched.c`, `peers/links.c`) built against the installed libdpdk.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::case::Sample;
use super::child;
use super::lab::Lab;

const RINGS_SOURCE: &str = include_str!("../../peers/dpdk.c");
/// What the sources include.
const DPDK_HEADER: (&str, &str) = ("#include \"dpdk.h\"", include_str!("../../peers/dpdk.h"));
const LINKS_SOURCE: &str = include_str!("../../peers/links.c");
const SCHED_SOURCE: &str = include_str!("../../peers/sched.c");
/// Lcores that DPDK has at most; one watches, and one drains.
const LCORES: u64 = 128;
/// Threads that may enqueue, at most.
pub(super) const MAX_ENQUEUERS: u64 = LCORES - 2;

/// The synchronisation modes of a ring, in the program's words and in ours. The spinning modes spin while the ring is full
/// or empty, as polling programs do. The others yield their CPU, as txq's senders do.
pub(super) const RINGS: [(&str, &str); 6] = [
    ("mp", "mp ring"),
    ("rts", "rts ring"),
    ("hts", "hts ring"),
    ("mp-spin", "mp spinning"),
    ("rts-spin", "rts spinning"),
    ("hts-spin", "hts spinning"),
];

/// The built program that measures rings and mempools.
#[derive(Clone)]
pub(super) struct Dpdk {
    program: PathBuf,
}

/// A work of the program. Works that allocate also name the kind of object.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Threads that enqueue on a ring of the named mode, and one that drains it.
    Queue(&'static str, u64),
    Core(&'static str),
    Cross(&'static str),
    Free(&'static str),
}

/// Objects to allocate and free: raw mempool objects, or mbufs.
pub(super) const OBJECTS: [(&str, &str); 2] = [("raw", "mempool"), ("mbuf", "mbufs")];

impl Dpdk {
    /// Builds the program and tries it; the error says why it cannot be used.
    pub(super) fn prepare(lab: &Lab) -> Result<Self, String> {
        let dpdk = Self { program: build("dpdk", RINGS_SOURCE)? };
        let tried = dpdk.measure(lab, Duration::ZERO, Shape::Core(OBJECTS[0].0), 1);
        tried.map(|_| dpdk).map_err(|error| error.to_string())
    }

    pub(super) fn measure(
        &self,
        lab: &Lab,
        time: Duration,
        shape: Shape,
        batch: u64,
    ) -> anyhow::Result<Sample> {
        let mut command = alone(&self.program, "256", &lcores(lab, shape));
        match shape {
            Shape::Queue(ring, threads) => command.args(["queue", ring, &threads.to_string()]),
            Shape::Core(object) => command.args(["core", object]),
            Shape::Cross(object) => command.args(["cross", object]),
            Shape::Free(object) => command.args(["free", object]),
        };
        command.args([batch.to_string(), child::millis(time).to_string()]);
        child::measure(lab, &mut command, time)
    }
}

/// The built program that measures DPDK's scheduler.
#[derive(Clone)]
pub(super) struct Sched {
    program: PathBuf,
}

impl Sched {
    /// Builds the program and tries it; the error says why it cannot be used.
    pub(super) fn prepare(lab: &Lab) -> Result<Self, String> {
        let sched = Self { program: build("sched", SCHED_SOURCE)? };
        let tried = sched.measure(lab, Duration::ZERO, 1, 1);
        tried.map(|_| sched).map_err(|error| error.to_string())
    }

    /// Measures with one thread, on the first CPU.
    pub(super) fn measure(
        &self,
        lab: &Lab,
        time: Duration,
        pipes: u64,
        batch: u64,
    ) -> anyhow::Result<Sample> {
        let mut command = alone(&self.program, "1024", &format!("0@{}", lab.cpu(0)));
        command.args([pipes.to_string(), batch.to_string(), child::millis(time).to_string()]);
        child::measure(lab, &mut command, time + time / 8)
    }
}

/// The built program in which threads share tx queues.
#[derive(Clone)]
pub(super) struct Links {
    program: PathBuf,
}

/// The ways to wait for a tx queue's lock, in the program's words and in ours.
pub(super) const LOCKS: [(&str, &str); 2] =
    [("spin", "dpdk, tx locks"), ("yield", "dpdk, yielding tx locks")];

/// The work of [`Links`].
pub(super) struct Work {
    /// One of [`LOCKS`], in the program's words.
    pub(super) lock: &'static str,
    pub(super) txqs: u16,
    /// Bits per second of each link.
    pub(super) rate: u64,
    /// Packets that a ring holds.
    pub(super) ring: u32,
    /// Packets that each thread adds to those of all.
    pub(super) credit: u64,
    pub(super) threads: u64,
    pub(super) batch: u64,
}

impl Links {
    /// Builds the program and tries it; the error says why it cannot be used.
    pub(super) fn prepare(lab: &Lab) -> Result<Self, String> {
        let links = Self { program: build("links", LINKS_SOURCE)? };
        let work = Work {
            lock: LOCKS[0].0,
            txqs: 1,
            rate: 1_000_000_000,
            ring: 64,
            credit: 64,
            threads: 1,
            batch: 1,
        };
        let tried = links.measure(lab, Duration::ZERO, &work);
        tried.map(|_| links).map_err(|error| error.to_string())
    }

    pub(super) fn measure(&self, lab: &Lab, time: Duration, work: &Work) -> anyhow::Result<Sample> {
        // A buffer of 1500 bytes takes 2 KiB with its headroom and its descriptor.
        let megabytes = 64 + work.threads * (work.credit + 64) / 256;
        let mut command = alone(&self.program, &megabytes.to_string(), &spread(lab, work.threads));
        let (links, rate, ring) = (u64::from(work.txqs), work.rate, u64::from(work.ring));
        command.arg(work.lock);
        command.args(
            [links, rate, ring, work.credit, work.threads, work.batch].map(|number| number.to_string()),
        );
        command.arg(child::millis(time).to_string());
        child::measure(lab, &mut command, time)
    }
}

/// Builds a program against the installed DPDK.
fn build(name: &str, source: &str) -> Result<PathBuf, String> {
    let ask = |what: &[&str]| child::output(Command::new("pkg-config").args(what).arg("libdpdk"));
    let (flags, version) = (ask(&["--cflags", "--libs"])?, ask(&["--modversion"])?);
    let mut flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    // Defines an unused macro, so a program is built anew when another DPDK is installed.
    flags.push(format!("-DINSTALLED={}", version.trim()));
    child::build(name, &source.replace(DPDK_HEADER.0, DPDK_HEADER.1), &flags)
}

/// Prepares a program with no huge pages, no devices, and nothing shared with other DPDK programs: it needs no root.
fn alone(program: &Path, megabytes: &str, lcores: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-huge", "--no-pci", "-m", megabytes, "--no-telemetry", "--no-shconf"]);
    command.args(["--log-level", "lib.eal:3", "--lcores", lcores, "--"]);
    command
}

/// Returns DPDK's list of lcores and their CPUs. Lcore 0 watches and may run anywhere. The others are pinned to one CPU
/// each in the shapes between two CPUs, and if senders are pinned (`lab.pin`); otherwise the kernel places them.
fn lcores(lab: &Lab, shape: Shape) -> String {
    match shape {
        Shape::Queue(_, threads) => spread(lab, threads + 1),
        Shape::Core(_) if !lab.pin => spread(lab, 2),
        Shape::Core(_) | Shape::Cross(_) | Shape::Free(_) => {
            format!("0@({}),1@{},2@{}", all_cpus(lab), lab.cpu(0), lab.last_cpu())
        }
    }
}

/// Returns the list of lcore 0 and `lcores` more, which are pinned if senders are.
fn spread(lab: &Lab, lcores: u64) -> String {
    let all = all_cpus(lab);
    let mut map = format!("0@({all})");
    if !lab.pin {
        let _ = write!(map, ",(1-{lcores})@({all})");
        return map;
    }
    for lcore in 1..=lcores {
        let _ = write!(map, ",{lcore}@{}", lab.cpu(lcore as usize - 1));
    }
    map
}

fn all_cpus(lab: &Lab) -> String {
    let all: Vec<String> = lab.cpus.iter().map(u32::to_string).collect();
    all.join(",")
}
