//! Which CPU sends, through which txq, and which takes interrupts.

use txq::cpumask::CpuMask;
use txq::xps::{XpsError, XpsMap};

use crate::sim::machine::Topology;
use crate::sim::scenario::setup::{Completions, Steering};

/// Returns the CPUs of each socket.
pub(super) fn nodes(topology: &Topology) -> Vec<CpuMask> {
    let mut nodes = vec![CpuMask::default(); topology.sockets as usize];
    let (cpus, cores) = (topology.cpus(), topology.cpus() / topology.threads);
    for cpu in 0..cpus {
        nodes[(cpu % cores * topology.sockets / cores) as usize].set(cpu as usize);
    }
    nodes
}

/// Returns the CPUs for senders and those for interrupts: all are both, unless `irq_cpus` of the last cores take no senders.
pub(super) fn divide(topology: &Topology, irq_cpus: u32) -> Result<(Vec<u32>, Vec<u32>), String> {
    let cpus = topology.cpus();
    if irq_cpus == 0 {
        return Ok(((0..cpus).collect(), (0..cpus).collect()));
    }
    if irq_cpus >= cpus {
        let most = cpus - 1;
        return Err(format!(
            "device.irq_cpus is {irq_cpus} of {cpus} CPUs, which leaves none to send: use 0 to {most}"
        ));
    }
    let cores = cpus / topology.threads;
    let mut by_core: Vec<u32> = (0..cpus).collect();
    by_core.sort_by_key(|cpu| (cpu % cores, *cpu));
    let mut irqs = by_core.split_off((cpus - irq_cpus) as usize);
    by_core.sort_unstable();
    irqs.sort_unstable();
    Ok((by_core, irqs))
}

/// Returns the map of the senders' CPUs to txqs; `None` for steering by hash.
pub(super) fn xps(
    steering: Steering,
    txqs: u16,
    topology: &Topology,
    own: &[u32],
) -> Result<Option<XpsMap>, XpsError> {
    let cores = topology.cpus() / topology.threads;
    let of = own.iter().map(|cpu| cpu % cores + 1).max().unwrap_or(1);
    let txq_of = |cpu: u32| match steering {
        Steering::Hash => None,
        Steering::Near => Some(cpu % cores * u32::from(txqs) / of),
        Steering::Far => Some(cpu % u32::from(txqs)),
    };
    if steering == Steering::Hash {
        return Ok(None);
    }
    let mut masks = vec![CpuMask::default(); txqs.into()];
    for &cpu in own {
        if let Some(txq) = txq_of(cpu) {
            masks[txq as usize].set(cpu as usize);
        }
    }
    XpsMap::from_masks(&masks, txqs.into(), topology.cpus() as usize).map(Some)
}

/// Returns the CPU that handles a txq's interrupt, one of `irqs`.
pub(super) fn irq_cpu(completions: Completions, txq: u16, txqs: u16, irqs: &[u32]) -> u32 {
    let at = match completions {
        Completions::First | Completions::Inline => usize::from(txq) % irqs.len(),
        Completions::Spread => usize::from(txq) * irqs.len() / usize::from(txqs),
        Completions::One => 0,
    };
    irqs[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_get_whole_cores_and_senders_the_rest() {
        let topology = Topology { sockets: 1, dies: 1, complexes: 2, cores: 2, threads: 2 };
        let all: Vec<u32> = (0..8).collect();
        assert_eq!(divide(&topology, 0), Ok((all.clone(), all)));
        assert_eq!(divide(&topology, 2), Ok((vec![0, 1, 2, 4, 5, 6], vec![3, 7])));
        assert_eq!(divide(&topology, 3), Ok((vec![0, 1, 2, 4, 5], vec![3, 6, 7])));
        assert!(divide(&topology, 8).unwrap_err().contains("use 0 to 7"));
        let near = xps(Steering::Near, 3, &topology, &[0, 1, 2, 4, 5, 6]).unwrap().unwrap();
        let txqs = |cpu| near.txqs_of(cpu, 0).collect::<Vec<_>>();
        assert_eq!([txqs(0), txqs(1), txqs(2), txqs(6)], [vec![0], vec![1], vec![2], vec![2]]);
        let irqs = [3, 7];
        let of = |completions| (0..4).map(|txq| irq_cpu(completions, txq, 4, &irqs)).collect::<Vec<_>>();
        assert_eq!(of(Completions::Spread), [3, 3, 7, 7]);
        assert_eq!(of(Completions::First), [3, 7, 3, 7]);
    }
}
