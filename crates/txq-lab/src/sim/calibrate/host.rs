//! This machine as its kernel describes it: which CPUs share a core, a last-level cache, a die, a socket.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use txq::cpumask::CpuMask;
use txq::topology::{Topology as Caches, TopologyError};

use super::{CalibrateError, pin};
use crate::sim::machine::Topology;

/// A key that identifies a socket, a die, a complex or a core.
type Part = (i64, i64, usize, usize);

/// How far two CPUs are from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    SameCore,
    SameComplex,
    SameDie,
    SameSocket,
    OtherSocket,
}

impl Class {
    /// All classes, from near to far.
    pub(super) const ALL: [Self; 5] =
        [Self::SameCore, Self::SameComplex, Self::SameDie, Self::SameSocket, Self::OtherSocket];

    /// Returns the class's field in a machine's file.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::SameCore => "access.same_core",
            Self::SameComplex => "access.same_complex",
            Self::SameDie => "access.same_die",
            Self::SameSocket => "access.same_socket",
            Self::OtherSocket => "access.other_socket",
        }
    }
}

/// The place of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cpu: u32,
    socket: i64,
    die: i64,
    /// The last-level cache domain.
    complex: usize,
    /// The lowest CPU of the core.
    core: usize,
}

impl Place {
    fn class(&self, other: &Self) -> Class {
        match () {
            () if self.socket != other.socket => Class::OtherSocket,
            () if self.die != other.die => Class::SameSocket,
            () if self.complex != other.complex => Class::SameDie,
            () if self.core != other.core => Class::SameComplex,
            () => Class::SameCore,
        }
    }
}

/// This machine's CPUs.
#[derive(Debug)]
pub(super) struct Host {
    /// The CPUs that this process may use, at least one.
    pub(super) places: Vec<Place>,
    root: PathBuf,
}

impl Host {
    /// Reads `root`/sys and `root`/proc. If the kernel does not describe a level, as in some virtual machines, all CPUs
    /// count as sharing it.
    pub(super) fn read(root: &Path) -> Result<Self, CalibrateError> {
        let mut host = Self::all(root)?;
        let allowed = pin::allowed()?;
        host.places.retain(|place| allowed.contains(&place.cpu));
        match host.places.is_empty() {
            true => {
                Err(TopologyError::Empty { place: "what this process may use and is online".into() }.into())
            }
            false => Ok(host),
        }
    }

    /// Reads all online CPUs.
    pub(super) fn all(root: &Path) -> Result<Self, CalibrateError> {
        let caches = Caches::read(root.join("sys"))?;
        let cpus: Vec<u32> = caches.online().iter().map(|cpu| cpu as u32).collect();
        Ok(Self::of(root, &caches, &cpus))
    }

    /// Reads the given CPUs of a machine.
    fn of(root: &Path, caches: &Caches, cpus: &[u32]) -> Self {
        let place = |&cpu: &u32| {
            let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
            let number = |name: &str| text(name).trim().parse().unwrap_or(0);
            let siblings = CpuMask::parse_list(text("thread_siblings_list"), 1 << 16).unwrap_or_default();
            Place {
                cpu,
                socket: number("physical_package_id"),
                die: number("die_id"),
                complex: caches.domain_of(cpu as usize).unwrap_or(0),
                core: siblings.iter().next().unwrap_or(cpu as usize),
            }
        };
        Self { places: cpus.iter().map(place).collect(), root: root.to_owned() }
    }

    /// Returns the machine's shape; where its parts differ in size, the largest of each kind.
    pub(super) fn topology(&self) -> Topology {
        let part = |place: &Place, depth: usize| -> Part {
            let (socket, die, complex, core) = (place.socket, place.die, place.complex, place.core);
            [
                (0, 0, 0, 0),
                (socket, 0, 0, 0),
                (socket, die, 0, 0),
                (socket, die, complex, 0),
                (socket, die, complex, core),
            ][depth]
        };
        let most = |depth: usize| {
            let wholes: BTreeSet<Part> = self.places.iter().map(|place| part(place, depth)).collect();
            let parts = |whole: &Part| {
                let inside = self.places.iter().filter(|place| part(place, depth) == *whole);
                match depth {
                    4 => inside.count(),
                    _ => inside.map(|place| part(place, depth + 1)).collect::<BTreeSet<_>>().len(),
                }
            };
            wholes.iter().map(parts).max().unwrap_or(1) as u32
        };
        Topology { sockets: most(0), dies: most(1), complexes: most(2), cores: most(3), threads: most(4) }
    }

    /// Returns a few pairs of CPUs of a class, spread over the machine.
    pub(super) fn pairs(&self, class: Class) -> Vec<(u32, u32)> {
        let count = self.places.len();
        let mut pairs = Vec::new();
        for first in [0, count / 3, 2 * count / 3] {
            let a = &self.places[first];
            let mut others = self.places.iter().rev();
            if let Some(b) = others.find(|b| b.cpu != a.cpu && a.class(b) == class) {
                let pair = (a.cpu.min(b.cpu), a.cpu.max(b.cpu));
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        pairs
    }

    /// Returns the class of the nearest two CPUs that are not threads of the same core, if there are such.
    pub(super) fn nearest(&self) -> Option<Class> {
        Class::ALL[1..].iter().copied().find(|&class| !self.pairs(class).is_empty())
    }

    /// Returns two CPUs, not threads of the same core if possible.
    pub(super) fn neighbours(&self) -> Option<(u32, u32)> {
        self.pairs(self.nearest().unwrap_or(Class::SameCore)).first().copied()
    }

    /// Returns a CPU in another socket than the first.
    pub(super) fn elsewhere(&self) -> Option<Place> {
        self.places.iter().copied().find(|place| place.socket != self.places[0].socket)
    }

    /// Returns four times the size of the last-level cache, at least 64 MiB and at most 512 MiB.
    pub(super) fn memory_to_walk(&self) -> usize {
        let dir = self.root.join(format!("sys/devices/system/cpu/cpu{}/cache", self.places[0].cpu));
        let sizes =
            (0..8).filter_map(|index| fs::read_to_string(dir.join(format!("index{index}/size"))).ok());
        let largest = sizes.filter_map(|size| bytes(size.trim())).max().unwrap_or(0);
        largest.saturating_mul(4).clamp(64 << 20, 512 << 20)
    }

    /// Returns the built-in machine that most resembles this one in the numbers that may be missing.
    pub(super) fn alike(&self) -> &'static str {
        match self.cpuinfo("vendor_id").as_deref() {
            Some("AuthenticAMD" | "HygonGenuine") => "epyc-9b45",
            Some("GenuineIntel") => "xeon-6985p",
            _ => "server-128",
        }
    }

    /// Returns a name: the CPU's model, and the number of CPUs.
    pub(super) fn name(&self) -> String {
        let model = self.cpuinfo("model name").unwrap_or_else(|| "a machine".into());
        format!("{model}, {} CPUs", self.places.len())
    }

    fn cpuinfo(&self, key: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join("proc/cpuinfo")).ok()?;
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }
}

/// Parses a size as sysfs writes it: `32768K`, `2M`.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}
