//! The receiving half.

use super::*;

/// A relay: what one socket receives goes on through another, with new headers.
#[test]
fn received_packets_can_be_forwarded() {
    const ALL: u32 = 2000;
    for (at, join) in [(V4, true), (V6, true), (V4, false)] {
        let end = peer(at);
        let entry = Udp::bind(at).unwrap().receive_buffer(4 << 20).unwrap().join(join);
        let mut receiver = entry.receiver().unwrap();
        let relay = builder(entry.clone()).start().unwrap();
        let dev = builder(Udp::bind(at).unwrap()).start().unwrap();
        let (mut sender, mut relayer) = (dev.sender("s"), relay.sender("r"));
        let len = |number: u32| if number.is_multiple_of(17) { 3 + number as usize } else { 1000 };
        for first in (0..ALL).step_by(20) {
            let numbers = first..first + 20;
            let packet = |number| {
                udp::packet(&mut sender, entry.local_addr(), &payload(number, 4 + len(number))).unwrap()
            };
            let mut batch: PacketList = numbers.clone().map(packet).collect();
            let _ = sender.xmit_batch(&mut batch);
            let mut relayed = 0;
            while relayed < 20 {
                if receiver.receive(7, &mut relayer, &mut batch).unwrap() == 0 {
                    assert!(receiver.wait(Some(Duration::from_secs(20))).unwrap(), "a datagram");
                    continue;
                }
                relayed += batch.len();
                batch.for_each_mut(|packet| {
                    let (datagram, _) = Datagram::parse(packet.data()).unwrap();
                    assert_eq!(datagram.destination(), entry.local_addr());
                    packet.pull(datagram.header_len()).unwrap();
                    Datagram::new(address(&end)).push(packet).unwrap();
                });
                let _ = relayer.xmit_batch(&mut batch);
            }
            for number in numbers {
                assert_eq!(receive(&end), payload(number, 4 + len(number)));
            }
        }
        let stats = receiver.stats();
        assert_eq!((stats.packets, stats.missed, stats.too_long), (ALL.into(), 0, 0));
        assert_conserved(&dev);
        assert_eq!(assert_conserved(&relay).sent, u64::from(ALL));
    }
}

/// A joined message is longer than the budget, and then than the sender's limit: its other datagrams wait in the receiver.
#[test]
fn a_joined_message_is_received_in_parts() {
    let udp = Udp::bind(V4).unwrap();
    let mut receiver = udp.receiver().unwrap();
    let dev = builder(udp.clone()).start().unwrap();
    let (mut sender, mut pool) = (dev.sender("s"), dev.sender("r"));
    let packets = (0..40).map(|n| udp::packet(&mut sender, udp.local_addr(), &payload(n, 100)).unwrap());
    let mut batch: PacketList = packets.collect();
    let _ = sender.xmit_batch(&mut batch);
    assert!(receiver.wait(Some(Duration::from_secs(20))).unwrap());
    assert_eq!(receiver.receive(7, &mut pool, &mut batch).unwrap(), 7);
    assert!(receiver.wait(None).unwrap(), "the rest is there");
    pool.set_limit(10);
    assert_eq!(receiver.receive(64, &mut pool, &mut batch).unwrap(), 3);
    assert_eq!(receiver.receive(64, &mut pool, &mut batch).unwrap(), 0, "no buffers");
    pool.set_limit(1000);
    assert_eq!(receiver.receive(64, &mut pool, &mut batch).unwrap(), 30);
    for (packet, n) in batch.iter().zip(0..) {
        let (datagram, bytes) = Datagram::parse(packet.data()).unwrap();
        assert_eq!((datagram.source(), datagram.destination()), (udp.local_addr(), udp.local_addr()));
        assert_eq!((number(bytes), bytes.len(), packet.rx_queue()), (n, 100, Some(0)));
    }
    assert_eq!(receiver.receive(64, &mut pool, &mut batch).unwrap(), 0);
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
}

#[test]
fn lost_datagrams_are_counted_by_the_receiver() {
    let udp = Udp::bind(V4).unwrap().receive_buffer(20_000).unwrap();
    let mut receiver = udp.receiver().unwrap();
    // Buffers that are too short for the long datagrams.
    let dev = NetDev::builder(udp.clone()).qdisc("pfifo").pool_config(pool(500)).start().unwrap();
    let mut pool = dev.sender("r");
    let from = peer(V4);
    let send = |len| from.send_to(&vec![0; len], udp.local_addr()).unwrap();
    let _ = [600, 400, 600].map(send);
    let mut batch = PacketList::new();
    while batch.is_empty() {
        receiver.receive(64, &mut pool, &mut batch).unwrap();
    }
    assert_eq!(receiver.receive(64, &mut pool, &mut batch).unwrap(), 0);
    assert_eq!((receiver.stats().packets, receiver.stats().bytes, receiver.stats().too_long), (1, 428, 2));
    (0..1000).for_each(|_| _ = send(400));
    let mut got = 0;
    while receiver.wait(Some(Duration::from_millis(20))).unwrap() {
        got += receiver.receive(64, &mut pool, &mut batch).unwrap();
        batch = PacketList::new();
    }
    // A datagram carries the count of those lost before it.
    send(400);
    assert!(receiver.wait(Some(Duration::from_secs(20))).unwrap());
    got += receiver.receive(64, &mut pool, &mut batch).unwrap();
    assert_eq!(got as u64 + receiver.stats().missed, 1001);
    assert!(receiver.stats().missed > 0);
}

/// Each datagram carries the time at which the kernel received it, also those that came joined; the receiver polls before it
/// sleeps.
#[test]
fn datagrams_carry_the_time_at_which_they_came() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    for at in [V4, V6] {
        let udp = Udp::bind(at).unwrap();
        let mut receiver = BusyPoll::new(udp.receiver().unwrap(), Duration::from_micros(100));
        receiver.record_times().unwrap();
        let dev = builder(udp.clone()).start().unwrap();
        let mut sender = dev.sender("s");
        let mut last = now();
        for round in 0..10 {
            let packets = (0..5)
                .map(|n| udp::packet(&mut sender, udp.local_addr(), &payload(round * 5 + n, 100)).unwrap());
            let mut batch: PacketList = packets.collect();
            let _ = sender.xmit_batch(&mut batch);
            let mut got = PacketList::new();
            while got.len() < 5 {
                assert!(receiver.wait(Some(Duration::from_secs(20))).unwrap());
                receiver.receive(10, &mut sender, &mut got).unwrap();
            }
            for packet in got.iter() {
                assert!((last..=now()).contains(&packet.cookie()), "{} is not after {last}", packet.cookie());
                last = packet.cookie();
            }
        }
    }
}
