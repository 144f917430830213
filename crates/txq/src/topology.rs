//! The machine's CPUs, and which of them share a last-level cache.
//!
//! Two CPUs that send through one txq pass its lock, its ring and its counters back and forth. Inside one cache domain that
//! costs tens of nanoseconds, between two domains hundreds, so txqs are dealt out by domain. The kernel keeps the same
//! knowledge in `cpu_online_mask` and `cpus_share_cache()`, and shows it below `/sys/devices/system/cpu`. It is read from
//! there.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use txq_core::cpumask::{CpuMask, MaskError};

/// A bound on CPU ids, above that of any kernel. It limits the memory that a damaged file can make the program allocate.
const MAX_CPUS: usize = 1 << 16;

/// Why the machine's description cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file is missing or unreadable.
    #[error("CPU topology: {}: {source}; mount sysfs there, or describe the machine by Topology::from_domains", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else than the kernel writes.
    #[error("CPU topology: {}: {source}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The problem with its text.
        source: MaskError,
    },
    /// There is no CPU.
    #[error("CPU topology: {place} names no CPU; at least one is needed")]
    Empty {
        /// The file or the argument.
        place: String,
    },
}

/// The online CPUs, divided into last-level cache domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Disjoint, none empty, together the online CPUs; ordered by their lowest CPU.
    domains: Vec<CpuMask>,
    online: CpuMask,
    nr_cpus: usize,
}

impl Topology {
    /// Reads the machine from the sysfs mounted at `root` (`/sys`).
    ///
    /// A CPU's domain is the `shared_cpu_list` of its cache of the highest level, without the CPUs that are offline. CPUs
    /// whose caches are not described, as in some containers, virtual machines and architectures, form one domain together:
    /// if nothing is known, sharing a queue is assumed to cost the same everywhere.
    ///
    /// # Errors
    /// When `devices/system/cpu/online` cannot be read or a list in these files is malformed. A missing list of possible
    /// CPUs and a missing cache are no errors.
    pub fn read(root: impl AsRef<Path>) -> Result<Self, TopologyError> {
        let cpus = root.as_ref().join("devices/system/cpu");
        let online_file = cpus.join("online");
        let online = read_list(&online_file)?.ok_or_else(|| TopologyError::Io {
            path: online_file.clone(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        if online.is_empty() {
            return Err(TopologyError::Empty { place: online_file.display().to_string() });
        }
        let possible = read_list(&cpus.join("possible"))?.unwrap_or_default();

        let mut shared = Vec::new();
        let mut unknown = online.clone();
        for cpu in online.iter() {
            // The CPUs of a domain that was found before describe the same cache again.
            if unknown.contains(cpu)
                && let Some(list) = last_level_cache(&cpus.join(format!("cpu{cpu}/cache")))?
            {
                let domain: CpuMask = list.iter().chain([cpu]).filter(|&cpu| unknown.contains(cpu)).collect();
                domain.iter().for_each(|cpu| unknown.clear(cpu));
                shared.push(domain);
            }
        }
        let mut topology = Self::from_domains(shared.into_iter().chain([unknown]))?;
        topology.nr_cpus = possible.width().max(online.width());
        Ok(topology)
    }

    /// Creates a machine whose online CPUs are those of `domains`. A CPU named twice belongs to the first domain that names
    /// it.
    ///
    /// # Errors
    /// When no domain names a CPU.
    pub fn from_domains(domains: impl IntoIterator<Item = CpuMask>) -> Result<Self, TopologyError> {
        let mut online = CpuMask::new();
        let mut disjoint: Vec<CpuMask> = Vec::new();
        for domain in domains {
            let domain: CpuMask = domain.iter().filter(|&cpu| !online.contains(cpu)).collect();
            domain.iter().for_each(|cpu| online.set(cpu));
            disjoint.extend((!domain.is_empty()).then_some(domain));
        }
        if online.is_empty() {
            return Err(TopologyError::Empty { place: "the list of domains".into() });
        }
        disjoint.sort_by_key(|domain| domain.iter().next());
        Ok(Self { nr_cpus: online.width(), domains: disjoint, online })
    }

    /// Returns the CPUs of each NUMA node that has any, from the sysfs mounted at `root` (`/sys`), as
    /// [`PoolConfig::nodes`](txq_core::pool::PoolConfig::nodes) takes them. Empty if the kernel knows of no nodes.
    ///
    /// # Errors
    /// When a list in these files is malformed.
    pub fn nodes(root: impl AsRef<Path>) -> Result<Vec<CpuMask>, TopologyError> {
        let nodes = root.as_ref().join("devices/system/node");
        let numbers = read_list(&nodes.join("online"))?.unwrap_or_default();
        let cpus = numbers.iter().map(|node| read_list(&nodes.join(format!("node{node}/cpulist"))));
        let cpus = cpus.collect::<Result<Vec<_>, _>>()?;
        Ok(cpus.into_iter().flatten().filter(|cpus| !cpus.is_empty()).collect())
    }

    /// Returns the machine without the CPUs that are not in `cpus`; as it is if none would be left.
    pub(crate) fn within(&self, cpus: &CpuMask) -> Self {
        let domains =
            self.domains.iter().map(|domain| domain.iter().filter(|&cpu| cpus.contains(cpu)).collect());
        let part = Self::from_domains(domains).map(|part| Self { nr_cpus: self.nr_cpus, ..part });
        part.unwrap_or_else(|_| self.clone())
    }

    /// Returns the CPUs that are online.
    pub fn online(&self) -> &CpuMask {
        &self.online
    }

    /// Returns one more than the highest CPU id that can ever come online (kernel: `nr_cpu_ids`).
    pub fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }

    /// Returns the last-level cache domains: disjoint, none empty, together [`online`](Self::online), ordered by their
    /// lowest CPU.
    pub fn domains(&self) -> &[CpuMask] {
        &self.domains
    }

    /// Returns the index in [`domains`](Self::domains) of the domain of `cpu`; `None` if it is offline.
    pub fn domain_of(&self, cpu: usize) -> Option<usize> {
        self.domains.iter().position(|domain| domain.contains(cpu))
    }
}

/// Returns the CPUs that share the cache of the highest level described in `dir`; `None` without a description.
fn last_level_cache(dir: &Path) -> Result<Option<CpuMask>, TopologyError> {
    let mut last = (0, None);
    for index in 0.. {
        let cache = dir.join(format!("index{index}"));
        let Some(level) = read(&cache.join("level"))? else { break };
        // Split first-level caches have the same level and the same CPUs, so the first one counts.
        if let Some(level) = str::from_utf8(&level).ok().and_then(|level| level.trim().parse::<u8>().ok())
            && level > last.0
            && let Some(list) = read_list(&cache.join("shared_cpu_list"))?
        {
            last = (level, Some(list));
        }
    }
    Ok(last.1)
}

fn read_list(path: &Path) -> Result<Option<CpuMask>, TopologyError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let list = CpuMask::parse_list(text, MAX_CPUS);
    list.map(Some).map_err(|source| TopologyError::List { path: path.to_owned(), source })
}

/// Returns the bytes of a file; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, TopologyError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TopologyError::Io { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
