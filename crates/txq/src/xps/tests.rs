use proptest::prelude::*;

use super::*;

fn masks(lists: &[&str]) -> Vec<CpuMask> {
    lists.iter().map(|list| CpuMask::parse_list(list, 4096).unwrap()).collect()
}

fn topology(domains: &[&str]) -> Topology {
    Topology::from_domains(masks(domains)).unwrap()
}

fn txqs_of(map: &XpsMap, cpu: usize) -> Vec<u16> {
    map.txqs_of(cpu, 0).collect()
}

fn no_hash() -> u32 {
    panic!("one txq, or none, needs no hash")
}

#[test]
fn one_txq_needs_no_hash() {
    let map = XpsMap::from_masks(&masks(&["", "0", "", "1"]), 4, 3).unwrap();
    assert_eq!(map.pick(0, 0, no_hash), Some(1));
    assert_eq!(map.pick(1, 0, no_hash), Some(3));
    assert_eq!(map.pick(2, 0, no_hash), None);
    assert_eq!(map.pick(3, 0, no_hash), None, "a CPU the map does not know");
}

#[test]
fn several_txqs_are_chosen_by_the_high_bits_of_the_hash() {
    let map = XpsMap::from_masks(&masks(&["0", "0-1", "0"]), 8, 2).unwrap();
    let picks =
        [0, 0x5555_5555, 0x5555_5556, 0xaaaa_aaab, u32::MAX].map(|hash| map.pick(0, 0, || hash).unwrap());
    assert_eq!(picks, [0, 0, 1, 2, 2]);
    assert_eq!(map.pick(1, 0, no_hash), Some(1));
}

#[test]
fn without_a_map_the_hash_spreads_over_all_txqs() {
    assert_eq!([0, 1 << 30, 1 << 31, u32::MAX].map(|hash| hash_to_txq(hash, 4)), [0, 1, 2, 3]);
    assert_eq!(hash_to_txq(u32::MAX, u16::MAX), u16::MAX - 1);
    assert_eq!(hash_to_txq(u32::MAX, 0), 0);
}

#[test]
fn a_changed_mask_joins_at_the_end_and_leaves_by_swapping() {
    let map = XpsMap::from_masks(&masks(&["0", "0", "0-1"]), 4, 2).unwrap();
    let map = map.with_mask(3, &masks(&["0-1"])[0]).unwrap();
    assert_eq!((txqs_of(&map, 0), txqs_of(&map, 1)), (vec![0, 1, 2, 3], vec![2, 3]));
    let map = map.with_mask(0, &CpuMask::new()).unwrap();
    assert_eq!((txqs_of(&map, 0), txqs_of(&map, 1)), (vec![3, 1, 2], vec![2, 3]));
    let map = map.with_mask(1, &masks(&["0"])[0]).unwrap();
    assert_eq!(txqs_of(&map, 0), [3, 1, 2], "a CPU kept keeps its place");
}

#[test]
fn errors_name_the_txq_and_the_remedy() {
    let text = |result: Result<XpsMap, XpsError>| result.unwrap_err().to_string();
    assert_eq!(text(XpsMap::from_masks(&[], 0, 1)), "XPS: 0 txqs; a device has 1 to 65535");
    assert_eq!(text(XpsMap::auto(&topology(&["0"]), 65536)), "XPS: 65536 txqs; a device has 1 to 65535");
    assert_eq!(
        text(XpsMap::from_masks(&masks(&["0", "0-2,9"]), 2, 4)),
        "XPS: the mask of txq 1 names CPU 9, but there are 4 (0 to 3); clear that bit"
    );
    let beyond = "XPS: a mask for txq 2, but the device has 2 txqs (0 to 1); leave it out or add txqs";
    assert_eq!(text(XpsMap::from_masks(&masks(&["0", "0", "0"]), 2, 1)), beyond);
    let map = XpsMap::from_masks(&[], 2, 1).unwrap();
    assert_eq!(text(map.with_mask(2, &CpuMask::new())), beyond);
}

#[test]
fn a_map_by_rx_queues_says_so() {
    let map = XpsMap::from_rxq_masks(&masks(&["1", "0-1"]), 2, 3).unwrap();
    assert_eq!((map.of(), map.nr_ids(), map.pick(0, 0, no_hash)), (MaskOf::RxQueues, 3, Some(1)));
    let error = XpsMap::from_rxq_masks(&masks(&["3"]), 2, 3).unwrap_err().to_string();
    assert_eq!(error, "XPS: the mask of txq 0 names rx queue 3, but there are 3 (0 to 2); clear that bit");
}

fn classes(queues: &[(u16, u16)]) -> TrafficClasses {
    TrafficClasses::new([0; PRIORITIES], queues, 8).unwrap()
}

#[test]
fn each_class_has_lists_of_its_own() {
    let map = XpsMap::from_masks(&masks(&["0-1", "0", "1", "0-1"]), 8, 2).unwrap();
    let two = map.in_classes(&classes(&[(2, 2), (2, 0)])).unwrap();
    let lists = |map: &XpsMap, class| [0, 1].map(|cpu| map.txqs_of(cpu, class).collect::<Vec<_>>());
    assert_eq!((lists(&two, 0), lists(&two, 1)), ([vec![3], vec![2, 3]], [vec![0, 1], vec![0]]));
    assert_eq!(two.pick(0, 2, no_hash), None, "a class the map does not know");
    assert_eq!((two.mask_of(3).to_string(), two.mask_of(1).to_string()), ("0-1".into(), "0".into()));
    let error = two.with_mask(4, &masks(&["0"])[0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "XPS: a mask for txq 4, which belongs to no traffic class; give it to one or leave its mask empty"
    );
    assert_eq!(map.in_classes(&classes(&[(3, 0)])), Err(XpsError::NoClass { txq: 3 }));
    assert_eq!(two.in_classes(&TrafficClasses::default()).unwrap().nr_ids(), 2);
}

#[test]
fn txqs_that_are_not_in_use_leave_the_map() {
    let map = XpsMap::from_masks(&masks(&["0", "", "0", "0-1"]), 4, 2).unwrap();
    let left = map.without_from(2).unwrap();
    assert_eq!((txqs_of(&left, 0), txqs_of(&left, 1)), (vec![0], vec![]));
    assert_eq!(map.without_from(4).as_ref(), Some(&map));
    assert_eq!(map.without_from(0), None);
    let dealt = map.in_classes(&classes(&[(4, 0)])).unwrap();
    assert_eq!(dealt.without_from(3).unwrap().mask_of(3), CpuMask::new());
}

/// X6: the hash of many flows falls on each of a CPU's txqs as often as on any other (chi-square), and nowhere else.
#[test]
fn flows_spread_evenly_over_a_cpus_txqs() {
    let flows = if cfg!(miri) { 1000 } else { 100_000 };
    // The value that chi-square of so many degrees of freedom exceeds once in 10 000 times.
    for (txqs, bound) in [(2, 15.1), (3, 18.4), (7, 27.9), (64, 111.0)] {
        let map = XpsMap::from_masks(&vec![masks(&["0"])[0].clone(); txqs], txqs, 1).unwrap();
        let hasher = txq_core::flow::FlowHasher::new([1, 2], false);
        let mut counts = vec![0u32; txqs];
        for flow in 0u32..flows {
            let hosts = txq_core::flow::Hosts::Ipv4 { src: [10, 0, 0, 1], dst: flow.to_be_bytes() };
            let keys = txq_core::flow::FlowKeys { hosts, ..Default::default() };
            counts[usize::from(map.pick(0, 0, || hasher.hash(&keys)).unwrap())] += 1;
        }
        let expected = f64::from(flows) / txqs as f64;
        let chi_square: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(chi_square < bound, "{txqs} txqs: {chi_square}, {counts:?}");
    }
}

#[test]
fn enough_txqs_for_all_give_the_nth_online_cpu_txq_n() {
    let map = XpsMap::auto(&topology(&["0,2", "1,5"]), 9).unwrap();
    let picks: Vec<_> = (0..6).map(|cpu| map.pick(cpu, 0, no_hash)).collect();
    assert_eq!(picks, [Some(0), Some(1), Some(2), None, None, Some(3)]);
    assert!(map.mask_of(4).is_empty() && map.mask_of(9).is_empty());
}

#[test]
fn txqs_go_where_the_cpus_are() {
    let map = XpsMap::auto(&topology(&["0-1", "2-9"]), 5).unwrap();
    let shown: Vec<_> = (0..5).map(|txq| map.mask_of(txq).to_string()).collect();
    assert_eq!(shown, ["0-1", "2,6", "3,7", "4,8", "5,9"]);
}

#[test]
fn with_fewer_txqs_than_domains_whole_neighbours_share() {
    let map = XpsMap::auto(&topology(&["0-1", "2-3", "4-5", "6-7", "8-9"]), 2).unwrap();
    assert_eq!([map.mask_of(0).to_string(), map.mask_of(1).to_string()], ["0-5", "6-9"]);
}

#[test]
fn a_lookup_touches_eight_bytes_of_the_table() {
    assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (8, 8));
}

/// Domains of the given sizes over CPU ids with gaps, one CPU of each domain in turn, as on machines that
/// number across packages.
fn interleaved(sizes: &[usize]) -> Topology {
    let mut domains = vec![CpuMask::new(); sizes.len()];
    for round in 0..sizes.iter().copied().max().unwrap_or(0) {
        for (n, domain) in domains.iter_mut().enumerate().filter(|(n, _)| round < sizes[*n]) {
            domain.set(round * (sizes.len() + 1) + n);
        }
    }
    Topology::from_domains(domains).unwrap()
}

proptest! {
    #[test]
    fn a_txq_is_in_a_list_exactly_if_the_cpu_is_in_its_mask(
        writes in prop::collection::vec((0usize..6, prop::collection::btree_set(0usize..70, 0..20)), 0..12),
    ) {
        let mut map = XpsMap::from_masks(&[], 6, 70).unwrap();
        let mut last = vec![CpuMask::new(); 6];
        for (txq, cpus) in writes {
            last[txq] = cpus.into_iter().collect();
            map = map.with_mask(txq, &last[txq]).unwrap();
        }
        for (txq, mask) in (0..).zip(&last) {
            prop_assert_eq!(&map.mask_of(txq), mask);
        }
        let rebuilt = XpsMap::from_masks(&last, 6, 70).unwrap();
        for cpu in 0..70 {
            let mut list = txqs_of(&map, cpu);
            list.sort();
            prop_assert_eq!(list, txqs_of(&rebuilt, cpu));
        }
    }

    /// X2: after any writes, a txq is in an id's list of a class if the id is in its mask and the class is its own.
    #[test]
    fn a_txq_is_in_the_lists_of_its_class(
        writes in prop::collection::vec((0usize..8, prop::collection::btree_set(0usize..20, 0..9)), 0..16),
        first in 1u16..4, second in 1u16..4, fewer in 1u16..9,
    ) {
        let classes = classes(&[(first, 0), (second, first)]);
        let mut map = XpsMap::from_masks(&[], 8, 20).unwrap().in_classes(&classes).unwrap();
        let mut last = vec![CpuMask::new(); 8];
        for (txq, cpus) in writes {
            let mask: CpuMask = cpus.into_iter().collect();
            match map.with_mask(txq, &mask) {
                Ok(new) => (map, last[txq]) = (new, mask),
                Err(error) => {
                    prop_assert_eq!(error, XpsError::NoClass { txq });
                    prop_assert!(txq >= usize::from(first + second));
                }
            }
        }
        let left = map.without_from(fewer);
        for (txq, mask) in (0u16..).zip(&last) {
            for (cpu, class) in (0..20).flat_map(|cpu| [(cpu, 0), (cpu, 1)]) {
                let expected = mask.contains(cpu) && classes.of_txq(txq) == Some(class);
                prop_assert_eq!(map.txqs_of(cpu, class).filter(|&other| other == txq).count(), usize::from(expected));
                let stays = left.as_ref().is_some_and(|left| left.txqs_of(cpu, class).any(|other| other == txq));
                prop_assert_eq!(stays, expected && txq < fewer);
            }
        }
    }

    #[test]
    fn a_pick_is_one_of_the_cpus_txqs(hash: u32, lists in prop::collection::vec(prop::collection::btree_set(0usize..5, 0..4), 7)) {
        let masks: Vec<CpuMask> = lists.iter().map(|cpus| cpus.iter().copied().collect()).collect();
        let map = XpsMap::from_masks(&masks, 7, 5).unwrap();
        for cpu in 0..5 {
            let pick = map.pick(cpu, 0, || hash);
            prop_assert_eq!(pick.is_none(), txqs_of(&map, cpu).is_empty());
            prop_assert!(pick.is_none_or(|txq| masks[usize::from(txq)].contains(cpu)));
        }
    }

    #[test]
    fn an_automatic_map_is_fair(sizes in prop::collection::vec(1usize..20, 1..9), txqs in 1usize..100) {
        let topology = interleaved(&sizes);
        let map = XpsMap::auto(&topology, txqs).unwrap();
        let cpus = topology.online().len();
        for cpu in topology.online().iter() {
            prop_assert_eq!(map.txqs_of(cpu, 0).len(), 1, "every CPU has its txq");
        }
        let masks: Vec<CpuMask> = (0..txqs as u16).map(|txq| map.mask_of(txq)).collect();
        let used = masks.iter().filter(|mask| !mask.is_empty()).count();
        prop_assert_eq!(used, txqs.min(cpus), "no txq idles while CPUs share");
        let span = |counts: &[usize]| counts.iter().max().unwrap() - counts.iter().min().unwrap();
        if txqs < sizes.len() {
            let domains: Vec<usize> =
                masks.iter().map(|mask| topology.domains().iter().filter(|domain| domain.intersects(mask)).count()).collect();
            prop_assert_eq!(domains.iter().sum::<usize>(), sizes.len(), "no domain is split");
            prop_assert!(span(&domains) <= 1);
            return Ok(());
        }
        let mut shares = Vec::new();
        for domain in topology.domains() {
            let own: Vec<usize> = masks.iter().filter(|mask| mask.intersects(domain)).map(CpuMask::len).collect();
            prop_assert_eq!(own.iter().sum::<usize>(), domain.len(), "no txq is shared between domains");
            prop_assert!(span(&own) <= 1);
            shares.push((domain.len(), own.len()));
        }
        // No txq could be moved to where it would be needed more.
        for (cpus, txqs) in &shares {
            for (other_cpus, other_txqs) in shares.iter().filter(|(_, other)| *other > 1) {
                prop_assert!(cpus * (other_txqs - 1) <= other_cpus * txqs);
            }
        }
    }
}
