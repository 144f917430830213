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
