//! Classes of htb that borrow share what is left by their quanta, however late each call is and whatever their bursts are.

use txq_sched::tc::Handle;
use txq_sched::{Item, Next, Scheduler};

const LEN: u32 = 1514;
const SECOND: u64 = 1_000_000_000;

/// Keeps packets in two classes for two seconds, dequeues each time `late` after the qdisc has asked for it, and returns the bytes of each
/// class.
fn sent(bursts: &str, late: u64) -> [u64; 2] {
    let class = |parent: &str, words: &str| format!("class add parent {parent} {words} ceil 50mbit {bursts}");
    let text = [
        "handle 1: htb default 11".to_owned(),
        class("1:", "classid 1:1 htb rate 50mbit"),
        class("1:1", "classid 1:10 htb rate 5mbit quantum 10000"),
        class("1:1", "classid 1:11 htb rate 15mbit quantum 30000"),
    ];
    let mut scheduler: Scheduler<usize> = Scheduler::new(&text.join("\n")).expect("a tree");
    let (mut queued, mut sent, mut now) = ([0; 2], [0; 2], SECOND);
    while now < 3 * SECOND {
        for (class, queued) in queued.iter_mut().enumerate() {
            for _ in *queued..50 {
                let item = Item::new(LEN, class).class(Handle::new(1, 0x10 + class as u16));
                let _verdict = scheduler.enqueue(now, item);
            }
            *queued = 50;
        }
        match scheduler.poll(now) {
            Next::Packet(packet) => {
                queued[packet.value] -= 1;
                sent[packet.value] += u64::from(packet.len);
                now += 1000;
            }
            Next::Until(at) => now = at.as_nanos().max(now + 1) + late,
            Next::Idle => panic!("packets wait"),
        }
    }
    sent
}

#[test]
fn what_is_borrowed_is_shared_by_the_quanta() {
    for bursts in ["burst 1514 cburst 1514", "burst 1600 cburst 1600", "burst 25000 cburst 25000"] {
        for late in [0, 50_000, 200_000, 1_000_000, 4_000_000] {
            let [small, large] = sent(bursts, late);
            let (share, all) = (small as f64 / (small + large) as f64, (small + large) as f64 * 8.0 / 2e3);
            assert!((0.245..0.255).contains(&share), "{bursts}, {late} ns late: {share:.3} instead of 0.250");
            assert!((49_500.0..51_000.0).contains(&all), "{bursts}, {late} ns late: {all:.0} kbit/s");
        }
    }
}
