//! The same world gives the same outcome: repeated, on another thread, and with another heap. It fails, for example, with an
//! array of atomics that the allocator may place on any line.

use std::thread;

use txq::Discipline;
use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::Setup;

use crate::support::{Case, MS, P0, run};

/// A heap with a history: blocks of odd sizes, every other one freed.
fn litter(seed: usize) -> Vec<Vec<u8>> {
    let mut blocks: Vec<_> = (0..5000).map(|i| vec![0; 1 + (i * 7919 + seed * 104_729) % 1500]).collect();
    let mut n = seed;
    blocks.retain(|_| {
        n += 1;
        n.is_multiple_of(2)
    });
    blocks
}

#[test]
fn equal_worlds_have_equal_outcomes() {
    for &discipline in Discipline::ALL {
        for (pinned, qdisc) in [(true, "pfifo_fast"), (false, "fq")] {
            let case = Case { discipline, qdisc, pinned, senders: 48, txqs: 6, time: MS / 5, ..P0 };
            let first = run(&case);
            assert!(first.sent > 200, "{discipline}: {}", first.sent);
            for seed in 0..3 {
                let again = thread::spawn(move || {
                    let _litter = litter(seed);
                    run(&case)
                });
                let again = again.join().expect("it ran before");
                assert!(
                    first.outcome == again.outcome,
                    "{discipline} {qdisc}: other hashes, or only other times"
                );
                assert_eq!(first.sent, again.sent);
            }
        }
    }
}

/// The same with loads that overlap and rings that are fetched ahead, beside which other objects lie in each run.
#[test]
fn what_is_fetched_ahead_does_not_depend_on_addresses() {
    let hash = || {
        let text = "machine = 'vm-2'\nmilliseconds = 1\nwarmup = 3\noverlap = true\n\
                    tune = { line = { ahead = 12 } }\nlines = { driver = 1 }\n\
                    device = { txqs = 3, ring = 256, null = true, completions = 'inline' }\nsteering = 'hash'\n\
                    path = { qdisc = 'pfifo', discipline = 'combine' }\n\
                    workload = { kind = 'udp-stream', senders = 2, bytes = 120, credit = 128, private = 0, pinned = true }\n";
        let report = measure(&Setup::of(text.parse().unwrap()).unwrap()).unwrap();
        assert!(report.figures["mpps"] > 1.0, "{:?}", report.figures["mpps"]);
        report.hash
    };
    let first = hash();
    for seed in 0..3 {
        let again = thread::spawn(move || {
            let _litter = litter(seed);
            hash()
        });
        assert_eq!(again.join().expect("it ran before"), first);
    }
}
