//! The published effect, from the data plane's own code: with 240 senders at 30 txqs, llist beats busylock in packets and in
//! CPU time per packet. It fails when line transfers cost nothing: then all disciplines are alike.

use txq::Discipline;

use crate::support::{Case, MS, P0, Ran, run};

fn of(discipline: Discipline, case: Case) -> Ran {
    let ran = run(&Case { discipline, ..case });
    assert_eq!(ran.outcome.stuck, Vec::<String>::new(), "{discipline}");
    ran
}

fn effect(case: Case) {
    let [busylock, llist, combine] =
        [Discipline::Busylock, Discipline::Llist, Discipline::Combine].map(|discipline| of(discipline, case));
    let cpu = |ran: &Ran| ran.per_packet().0;
    // Senders of the kernel's llist still meet at the queue's lock, so it saves less.
    for (name, ran, least) in [("llist", &llist, 0.2), ("combine", &combine, 0.3)] {
        let (rate, saved) = (ran.mpps() / busylock.mpps(), 1.0 - cpu(ran) / cpu(&busylock));
        assert!(rate > 1.3, "{name} sends only {rate:.2} times as many packets as busylock");
        assert!(saved > least, "{name} saves only {:.0} % of busylock's CPU time", saved * 100.0);
    }
    let (all, waiting) = busylock.per_packet();
    assert!(
        waiting > all / 3.0,
        "with busylock a packet costs {all:.0} ns, of which {waiting:.0} is waiting"
    );
    let (all, waiting) = llist.per_packet();
    assert!(waiting < all / 4.0, "with llist a packet costs {all:.0} ns, of which {waiting:.0} is waiting");
}

#[test]
fn llist_beats_busylock_where_senders_of_a_txq_are_far_apart() {
    effect(P0);
}

#[test]
fn llist_beats_busylock_with_fq() {
    effect(Case { qdisc: "fq", ..P0 });
}

#[test]
fn llist_beats_busylock_where_senders_move_about() {
    effect(Case { pinned: false, ..P0 });
}

/// With one sender per txq there is no contention, so disciplines are alike.
#[test]
fn senders_that_do_not_meet_are_alike() {
    let case = Case { senders: 30, time: MS / 2, ..P0 };
    let rates = [Discipline::Busylock, Discipline::Llist, Discipline::Combine]
        .map(|discipline| of(discipline, case).mpps());
    assert!(rates.iter().all(|rate| (rate / rates[0] - 1.0).abs() < 0.2), "{rates:?}");
}
