//! Whatever packets a list holds, each buffer returns to its own pool, and each credit to its own sender.

use std::sync::mpsc;
use std::thread;

use crate::device::{Wires, assert_conserved, pool};
use txq::packet::{Packet, PacketList};
use txq::pool::{AllocError, Cache, Pool, PoolConfig};
use txq::{Discipline, NetDev, Sender};

/// Number of packets of 65535 segments each whose sum exceeds 2^30.
const PACKETS: usize = 16_448;

fn config(name: &str) -> PoolConfig {
    PoolConfig { name: name.into(), buffers: 2 * PACKETS as u32, room: 64, ..pool() }
}

fn device(discipline: Discipline, wires: &Wires) -> NetDev {
    NetDev::builder(wires.clone())
        .pool_config(config("a"))
        .bql(None)
        .qdisc("pfifo limit 100000")
        .max_burst(100_000)
        .discipline(discipline)
        .build()
        .unwrap()
}

fn segmented(mut packet: Packet) -> Packet {
    packet.set_gso(1, u16::MAX);
    packet
}

/// Returns one packet of `first`, followed by packets of `rest`: 16,448 in all, of 65535 segments each.
fn batch(first: Packet, rest: &mut Sender) -> PacketList {
    let mut batch = PacketList::new();
    batch.push_back(segmented(first));
    batch.extend((1..PACKETS).map(|_| segmented(rest.alloc(1).unwrap())));
    assert_eq!(batch.segs(), PACKETS as u64 * u64::from(u16::MAX));
    batch
}

/// Sends `batch` while another sender owns the queue and is in the driver; then sends everything.
fn xmit_past_an_owner(dev: &NetDev, wires: &Wires, mut batch: PacketList) {
    let (mut sender, mut other, mut worker) = (dev.sender("sender"), dev.sender("owner"), dev.worker(0));
    // A lone owner keeps the queue while it is in the driver.
    let (alone, owner) = (other.packet(b"alone").unwrap(), other.packet(b"owner").unwrap());
    let _ = other.xmit(alone);
    let (entered, wait_entered) = mpsc::channel();
    let (leave, wait_leave) = mpsc::channel();
    wires.at(0).refuse_after(entered, wait_leave);
    thread::scope(|scope| {
        scope.spawn(|| other.xmit(owner));
        wait_entered.recv().unwrap();
        let _ = sender.xmit_batch(&mut batch);
        leave.send(()).unwrap();
    });
    while !dev.is_idle() {
        worker.poll();
    }
    assert_eq!(wires.at(0).sent().len(), PACKETS + 2);
    // Two more packets: those that held up the queue.
    let sent = dev.qdiscs(txq::tc::Style::default())[0].stats.packets;
    assert_eq!(sent, PACKETS as u64 * u64::from(u16::MAX) + 2);
}

/// Takes all buffers of a pool, and checks that each lies in that pool's region.
fn assert_own_buffers(pool: &Pool, cache: &mut Cache) {
    let (base, stride) = pool.region();
    let region = base.as_ptr().addr()..base.as_ptr().addr() + stride * pool.buffers() as usize;
    let mut all = PacketList::new();
    while let Ok(packet) = cache.alloc(1) {
        assert!(region.contains(&packet.data().as_ptr().addr()), "a buffer of another pool");
        all.push_back(packet);
    }
    assert_eq!(all.len(), pool.buffers() as usize);
}

#[test]
fn a_list_of_two_pools_returns_to_both() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = device(discipline, &wires);
        let foreign = Pool::new(&config("b")).unwrap();
        let mut cache = foreign.cache("b", 0);
        let batch = batch(cache.alloc(1).unwrap(), &mut dev.sender("a"));
        xmit_past_an_owner(&dev, &wires, batch);
        assert_conserved(&dev);
        assert_own_buffers(&foreign, &mut cache);
        assert_own_buffers(dev.pool(), &mut dev.pool().cache("a", 0));
    }
}

#[test]
fn a_list_of_two_senders_returns_credit_to_both() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = device(discipline, &wires);
        let (mut one, mut many) = (dev.sender("one"), dev.sender("many"));
        one.set_limit(1);
        many.set_limit(PACKETS as u64 - 1);
        let batch = batch(one.alloc(1).unwrap(), &mut many);
        xmit_past_an_owner(&dev, &wires, batch);
        let _one = one.alloc(1).unwrap();
        assert!(matches!(one.alloc(1), Err(AllocError::Limit { .. })), "credit of another sender");
        let mut all = PacketList::new();
        all.extend((1..PACKETS).map(|_| many.alloc(1).expect("its credit came back")));
        assert!(matches!(many.alloc(1), Err(AllocError::Limit { .. })));
    }
}
