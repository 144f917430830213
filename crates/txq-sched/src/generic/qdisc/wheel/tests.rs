//! The wheel against a sorted map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    /// An item whose time is so long after now, or before.
    Insert(i64),
    /// The time passes, and all items that are due leave.
    Pop(u64),
    /// One of the items that wait.
    Remove(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let span = || (0u32..44).prop_flat_map(|bits| 0..1i64 << bits);
    prop_oneof![
        6 => span().prop_map(Op::Insert),
        1 => (-5000i64..0).prop_map(Op::Insert),
        1 => Just(Op::Insert(i64::MAX)),
        4 => span().prop_map(|t| Op::Pop(t as u64)),
        2 => any::<usize>().prop_map(Op::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]

    #[test]
    fn gives_what_a_sorted_map_gives(start in 0u64..1 << 50, ops in prop::collection::vec(op(), 1..200)) {
        let (mut wheel, mut now) = (Wheel::new(), start);
        // Tickets by time and number of arrival.
        let mut model: BTreeMap<(Nanos, usize), Ticket> = BTreeMap::new();
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert(after) => {
                    let at = now.saturating_add_signed(after);
                    // A time before the wheel's becomes the wheel's.
                    let ticket = wheel.insert(at, n);
                    model.insert((at.max(wheel.now), n), ticket);
                }
                Op::Pop(later) => {
                    now += later;
                    while let Some((at, n)) = wheel.pop(now) {
                        let (first, _) = model.pop_first().unwrap();
                        prop_assert_eq!((at, n), first);
                        prop_assert!(at <= now);
                    }
                    prop_assert!(model.first_key_value().is_none_or(|(&(at, _), _)| at > now));
                    prop_assert!(wheel.now <= now);
                }
                Op::Remove(which) if !model.is_empty() => {
                    let (&key, &ticket) = model.iter().nth(which % model.len()).unwrap();
                    model.remove(&key);
                    prop_assert_eq!(wheel.remove(ticket), Some(key.1));
                    prop_assert_eq!(wheel.remove(ticket), None);
                }
                Op::Remove(_) => {}
            }
            prop_assert_eq!(wheel.len(), model.len());
            let earliest = model.first_key_value().map(|(&(at, _), _)| at);
            prop_assert_eq!(wheel.next_time().is_some(), earliest.is_some());
            prop_assert!(wheel.next_time() <= earliest);
        }
        let mut rest: Vec<_> = wheel.clear().collect();
        rest.sort_unstable();
        let mut expected: Vec<_> = model.keys().map(|k| k.1).collect();
        expected.sort_unstable();
        prop_assert_eq!(rest, expected);
    }
}

#[test]
fn the_next_time_is_exact_as_long_as_nothing_is_removed() {
    let mut wheel = Wheel::new();
    assert_eq!(wheel.pop(1_000_000_000), None);
    for at in [9_000_000_000, 1_000_000_700, 1_000_000_650, 3_000_000_000] {
        wheel.insert(at, ());
    }
    for at in [1_000_000_650, 1_000_000_700, 3_000_000_000, 9_000_000_000] {
        assert_eq!(wheel.next_time(), Some(at));
        assert_eq!(wheel.pop(at - 1), None);
        assert_eq!(wheel.pop(at), Some((at, ())));
    }
    assert_eq!(wheel.next_time(), None);
}

/// Items allocate nothing while there are no more of them than there have been.
#[test]
fn nodes_are_used_again() {
    let mut wheel = Wheel::new();
    for now in 0..10_000u64 {
        wheel.insert(now + 50, now);
        let _ = wheel.pop(now);
    }
    assert!(wheel.nodes.len() <= 51, "{}", wheel.nodes.len());
}
