//! Dealing txqs to CPUs by their caches: the arithmetic behind `XpsMap::auto` (kernel: what drivers do with
//! `netif_set_xps_queue` and `cpumask_local_spread`).

use crate::topology::Topology;

/// Pairs of each online CPU with its one txq below `txqs`, which is not 0. `XpsMap::auto` tells the rules.
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

/// Divides `txqs` among domains of `sizes` CPUs: one for each, then each next one to the domain with the most CPUs
/// for a txq, which makes the largest such number as small as it can be. Needs at least as many txqs as domains and
/// no more than CPUs; no domain then gets more txqs than CPUs, since one with a CPU too many is served before.
fn shares(sizes: &[usize], txqs: usize) -> Vec<usize> {
    let mut shares = vec![1; sizes.len()];
    for _ in sizes.len()..txqs {
        // Reversed, since of equals `max_by` takes the last and the first domain is to be served.
        let cpus_per_txq = |a: &usize, b: &usize| (sizes[*a] * shares[*b]).cmp(&(sizes[*b] * shares[*a]));
        if let Some(crowded) = (0..sizes.len()).rev().max_by(cpus_per_txq) {
            shares[crowded] += 1;
        }
    }
    shares
}
