//! Sorts the lines of a qdisc's calls: lines of the qdisc itself, of a packet's flow, and of others.

use std::collections::{BTreeMap, BTreeSet};

use super::ops::Op;
use super::trace::{Call, Calls};
use crate::sim::state::{Each, RECENT_CALLS, State, Times};

/// A line is the qdisc's own if at least this part of the calls of a kind accesses it.
const OWN_PART: f64 = 0.5;
/// A line that fewer flows access than this belongs to one of them: the others are its neighbours in lists.
const FEW_FLOWS: usize = 24;

/// Returns the state of a qdisc by its calls.
pub(super) fn state(name: &str, calls: &Calls, ns: Times) -> State {
    // Lines that no call writes stay in the cache of each CPU.
    let is_written = |line: &u64| !calls.data.has(*line);
    let written: BTreeSet<u64> = calls
        .calls
        .iter()
        .flat_map(|call| call.lines.iter().filter(|(_, written)| **written).map(|(line, _)| *line))
        .filter(is_written)
        .collect();
    let of = |op| calls.calls.iter().filter(move |call| call.op == op);
    let ops = [Op::Enqueue, Op::Dequeue, Op::Drop];
    let share = |op: Op, has: &dyn Fn(&Call) -> bool| {
        of(op).filter(|call| has(call)).count() as f64 / of(op).count().max(1) as f64
    };
    let touches = |op, line: u64| share(op, &|call: &Call| call.lines.contains_key(&line));
    let fixed: Vec<u64> =
        written.iter().copied().filter(|&line| ops.iter().any(|&op| touches(op, line) >= OWN_PART)).collect();
    let letter = |op, line: u64| {
        let writes = share(op, &|call: &Call| call.lines.get(&line) == Some(&true));
        match touches(op, line) {
            touches if touches < OWN_PART => '.',
            _ if writes >= OWN_PART => 'w',
            _ => 'r',
        }
    };
    let letters = |op| fixed.iter().map(|&line| letter(op, line)).collect::<String>();
    let owners = owners(calls, |line| written.contains(line) && fixed.binary_search(line).is_err());
    let own = own_lines(&owners);
    // The number of own lines of each kind of call: by a line's place among those of its flow.
    let flow = |op| {
        let most = own.values().map(Vec::len).max().unwrap_or(0);
        let calls = of(op).count().max(1) as f64;
        let letters = (0..most).map(|place| {
            let (mut read, mut wrote) = (0.0, 0.0);
            for call in of(op) {
                let line = own.get(&call.flow).and_then(|lines| lines.get(place));
                match line.and_then(|line| call.lines.get(line)) {
                    Some(true) => wrote += 1.0,
                    Some(false) => read += 1.0,
                    None => {}
                }
            }
            match (read + wrote) / calls {
                part if part < OWN_PART => '.',
                _ if wrote > read => 'w',
                _ => 'r',
            }
        });
        let letters: String = letters.collect();
        letters.trim_end_matches('.').to_owned()
    };
    let flow = Each::of([flow(ops[0]), flow(ops[1]), flow(ops[2])]);
    let longest = flow.all().iter().map(|letters| letters.len()).max().unwrap_or(0);
    let counted = |call: &Call, line: &u64| {
        own.get(&call.flow).is_some_and(|lines| lines.iter().take(longest).any(|own| own == line))
    };
    let mut among = BTreeSet::new();
    // For each kind of call: all further lines, those of the call before, and those of the calls before that.
    let mut counts: BTreeMap<u8, [u32; 3]> = BTreeMap::new();
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, call) in calls.calls.iter().enumerate() {
        let moved = |line: &&u64| written.contains(line) && fixed.binary_search(line).is_err();
        let [all, again, recent] = counts.entry(call.op as u8).or_default();
        for line in call.lines.keys().filter(moved) {
            let before = last.insert(*line, at).map_or(usize::MAX, |last| at - last);
            if counted(call, line) {
                continue;
            }
            among.insert(*line);
            *all += 1;
            match before {
                1 => *again += 1,
                _ if before <= 1 + RECENT_CALLS => *recent += 1,
                _ => {}
            }
        }
    }
    let others = |which: usize| {
        Each::of(ops.map(|op| {
            let count = counts.get(&(op as u8)).map_or(0, |counts| counts[which]);
            round(f64::from(count) / of(op).count().max(1) as f64)
        }))
    };
    let data = of(Op::Enqueue).map(|call| call.lines.keys().filter(|line| calls.data.has(**line)).count());
    let data = data.sum::<usize>() as f64 / of(Op::Enqueue).count().max(1) as f64;
    State {
        name: name.to_owned(),
        fixed: Each::of([letters(ops[0]), letters(ops[1]), letters(ops[2])]),
        flow,
        others: others(0),
        again: others(1),
        recent: others(2),
        among: among.len() as u32,
        data: data.round() as u32,
        ns,
    }
}

/// Returns for each line how often each flow's calls access it.
fn owners(calls: &Calls, counts: impl Fn(&u64) -> bool) -> BTreeMap<u64, BTreeMap<u32, u32>> {
    let mut owners: BTreeMap<u64, BTreeMap<u32, u32>> = BTreeMap::new();
    for call in calls.calls.iter().filter(|call| call.op != Op::Drop) {
        for line in call.lines.keys().filter(|line| counts(line)) {
            *owners.entry(*line).or_default().entry(call.flow).or_default() += 1;
        }
    }
    owners
}

/// Returns the lines of each flow, the ones that it accesses most first.
fn own_lines(owners: &BTreeMap<u64, BTreeMap<u32, u32>>) -> BTreeMap<u32, Vec<u64>> {
    let mut own: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    for (&line, flows) in owners.iter().filter(|(_, flows)| flows.len() < FEW_FLOWS) {
        if let Some((&flow, &times)) =
            flows.iter().max_by_key(|&(flow, times)| (*times, std::cmp::Reverse(*flow)))
        {
            own.entry(flow).or_default().push((times, line));
        }
    }
    let sorted = own.into_iter().map(|(flow, mut lines)| {
        lines.sort_by_key(|&(times, line)| (std::cmp::Reverse(times), line));
        (flow, lines.into_iter().map(|(_, line)| line).collect())
    });
    sorted.collect()
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
