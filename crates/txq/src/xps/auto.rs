//! Deals txqs to CPUs by their caches: the arithmetic behind `XpsMap::auto` (kernel: what drivers do with
//! `netif_set_xps_queue` and `cpumask_local_spread`).

use crate::topology::Topology;

/// Returns pairs of each online CPU and its one txq below `txqs`, which is not 0. `XpsMap::auto` documents the rules.
pub(super) fn deal(topology: &Topology, txqs: usize) -> Vec<(usize, usize)> {
    let domains = topology.domains();
    if txqs >= topology.online().len() {
        topology.online().iter().zip(0..).collect()
    } else if txqs < domains.len() {
        let groups = domains.iter().enumerate().map(|(n, domain)| (n * txqs / domains.len(), domain));
        groups.flat_map(|(txq, domain)| domain.iter().map(move |cpu| (cpu, txq))).collect()
    } else {
        let sizes: Vec<usize> = domains.iter().map(|domain| domain.len()).collect();
        let mut first = 0;
        let mut dealt = Vec::with_capacity(topology.online().len());
        for (domain, share) in domains.iter().zip(shares(&sizes, txqs)) {
            dealt.extend(domain.iter().enumerate().map(|(n, cpu)| (cpu, first + n % share)));
            first += share;
        }
        dealt
    }
}

/// Divides `txqs` among domains of `sizes` CPUs; returns the txqs of each domain. Each domain gets one, and each further txq
/// goes to the domain with the most CPUs per txq. This makes the largest such number as small as possible. There must be at
/// least as many txqs as domains, and no more than CPUs. No domain then gets more txqs than CPUs, because a domain with a
/// CPU too many comes first.
fn shares(sizes: &[usize], txqs: usize) -> Vec<usize> {
    let mut shares = vec![1; sizes.len()];
    for _ in sizes.len()..txqs {
        // Reversed, because `max_by` returns the last of equals, and the first domain comes first.
        let cpus_per_txq = |a: &usize, b: &usize| (sizes[*a] * shares[*b]).cmp(&(sizes[*b] * shares[*a]));
        if let Some(crowded) = (0..sizes.len()).rev().max_by(cpus_per_txq) {
            shares[crowded] += 1;
        }
    }
    shares
}
