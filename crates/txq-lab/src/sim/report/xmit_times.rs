//! Published distributions of the duration of xmit calls: counts by powers of two, in nanoseconds.
//!
//! They are bpftrace's histograms of `__dev_queue_xmit` for llist (Linux 100dfa74ca74, senders that are not pinned).

use txq::stats::log2::Log2;

/// The first bucket begins at 2^7 ns, and each next one at twice that.
const FIRST_BUCKET: u32 = 7;
/// Counts with busylock.
const BEFORE: [u64; 12] = [0, 21, 631, 27_328, 265_392, 417_543, 826_292, 733_822, 19_055, 17_240, 25_633, 4];
/// Counts with llist.
const AFTER: [u64; 12] =
    [1_539_830, 2_299_558, 483_936, 265_345, 145_463, 54_571, 10_270, 9_385, 7_749, 26_799, 2_665, 665];

/// Returns the published distribution of a scenario's variant, if there is one.
pub fn published(scenario: &str, variant: &str) -> Option<Log2> {
    let counts = match (scenario, variant) {
        ("p0-unpinned", "before") => BEFORE,
        ("p0-unpinned", "after") => AFTER,
        _ => return None,
    };
    let mut times = Log2::new();
    for (order, count) in (FIRST_BUCKET..).zip(counts) {
        times.add(1 << order, count);
    }
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    #[test]
    fn the_scenario_has_the_modes_of_these_distributions() {
        let p0 = Scenario::open("p0-unpinned").unwrap();
        let modes: Vec<_> = p0.published.iter().filter(|p| p.figure == "xmit_mode_ns").collect();
        assert_eq!(modes.len(), 2);
        for mode in modes {
            let times = published("p0-unpinned", &mode.variant).unwrap();
            let most = times.buckets().max_by_key(|bucket| bucket.count).unwrap();
            assert_eq!(Some(most.min as f64), mode.value, "{}", mode.variant);
        }
        assert!(published("p0-pinned", "before").is_none());
    }
}
