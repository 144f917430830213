//! Packets that cannot be sent, and peers that are gone.

use super::*;

#[test]
fn datagrams_that_no_socket_can_send_are_dropped_with_the_reason() {
    let udp = Udp::bind(V6).unwrap();
    let counters = udp.counters();
    let dev = builder(udp).start().unwrap();
    let (mut sender, to) = (dev.sender("s"), "[::1]:9".parse().unwrap());
    // Longer than IP allows, and longer than a message.
    assert!(udp::packet(&mut sender, "127.0.0.1:9".parse().unwrap(), &[0; 65_508]).is_err());
    let long = udp::packet(&mut sender, to, &[0; 65_527]).unwrap();
    let mut not_udp = udp::packet(&mut sender, to, b"tcp").unwrap();
    not_udp.data_mut()[6] = 6;
    let mut cut = udp::packet(&mut sender, to, b"cut").unwrap();
    cut.truncate(50);
    let _ = sender.xmit_batch(&mut [long, not_udp, cut].into_iter().collect());
    let stats = assert_conserved(&dev);
    let dropped = |reason| stats.dropped.get(reason);
    assert_eq!((dropped(DropReason::UnhandledProto), dropped(DropReason::HdrTrunc)), (1, 1), "{stats:?}");
    assert_eq!(stats.sent + dropped(DropReason::PktTooBig), 1, "{stats:?}");
    assert_eq!(counters.read().too_long, dropped(DropReason::PktTooBig));
    // A socket of IPv4 reaches no IPv6.
    let dev = builder(Udp::bind(V4).unwrap()).start().unwrap();
    let mut sender = dev.sender("s");
    let packet = udp::packet(&mut sender, to, b"lost").unwrap();
    let _ = sender.xmit(packet);
    assert_eq!(assert_conserved(&dev).dropped.get(DropReason::IpOutnoroutes), 1);
}

/// The kernel answers a datagram to a closed port at the next call, which then sends nothing.
#[test]
fn a_peer_that_does_not_listen_costs_no_later_packet() {
    let gone = peer(V4);
    let to = address(&gone);
    drop(gone);
    let udp = Udp::connect(V4, to).unwrap();
    let counters = udp.counters();
    let mut dev = builder(udp).start().unwrap();
    let mut sender = dev.sender("s");
    let mut accepted = 0;
    // The kernel's answer to one datagram may come after the next, on a busy machine.
    while counters.read().refused == 0 {
        let packet = udp::packet(&mut sender, to, &payload(accepted, 50)).unwrap();
        let _ = sender.xmit(packet);
        accepted += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = assert_conserved(&dev);
    let lost = stats.dropped.get(DropReason::NoSocket);
    assert_eq!(stats.sent + lost, u64::from(accepted));
    assert_eq!((counters.read().datagrams, counters.read().unreachable), (stats.sent, lost));
    let back = UdpSocket::bind(to).unwrap();
    back.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for number in 10..20 {
        let packet = udp::packet(&mut sender, to, &payload(number, 50)).unwrap();
        let _ = sender.xmit(packet);
        assert_eq!(receive(&back), payload(number, 50));
    }
    assert_eq!(assert_conserved(&dev).sent, stats.sent + 10);
    dev.shutdown().expect("refusals are no error of the device");
}

/// Linux refuses the address of another machine: as a missing route in IPv4, as an invalid message in IPv6.
#[test]
fn the_source_cannot_be_another_machine() {
    use DropReason::{IpOutnoroutes, NotSpecified};
    for (local, from, reason) in [(V4, "192.0.2.1:5", IpOutnoroutes), (V6, "[2001:db8::1]:5", NotSpecified)] {
        let peer = peer(local);
        let udp = Udp::bind(local).unwrap();
        let counters = udp.counters();
        let mut dev = builder(udp).start().unwrap();
        let mut sender = dev.sender("s");
        let datagram = Datagram::new(address(&peer));
        let from = datagram.from(from.parse().unwrap());
        let lost = [(); 2].map(|()| pushed(&mut sender, from, b"lost"));
        let good = [(); 2].map(|()| pushed(&mut sender, datagram, b"good"));
        let _ = sender.xmit_batch(&mut lost.into_iter().chain(good).collect());
        assert_eq!((receive(&peer), receive(&peer)), (b"good".to_vec(), b"good".to_vec()));
        let stats = assert_conserved(&dev);
        assert_eq!((stats.sent, stats.dropped.get(reason)), (2, 2), "{stats:?}");
        // The refusal had another cause than the joined packets.
        assert_eq!(sent(counters.read()), (1, 1, 2));
        match (reason, dev.shutdown()) {
            (NotSpecified, Err(error)) => {
                let error = error.to_string();
                assert!(error.contains("udp:[::1]") && error.contains("source address"), "{error}");
            }
            (NotSpecified, Ok(())) => panic!("the error is not reported"),
            (_, end) => end.unwrap(),
        }
    }
}

/// Behind a device that refuses, stalls and drops, each packet that the device lets through arrives once and in order.
#[test]
fn faults_cost_only_the_packets_that_they_drop() {
    let peer = peer(V4);
    let rates = Rates { busy: 0.3, drop: 0.05, ..Rates::default() };
    let faults = Faults::new(Udp::bind(V4).unwrap(), 1, rates);
    let dev = NetDev::builder(faults).qdisc("pfifo limit 10000").pool_config(pool(2000)).start().unwrap();
    let mut sender = dev.sender("s");
    let mut arrived = Vec::new();
    for first in (0..1000_u32).step_by(20) {
        let before = dev.stats().sent;
        let packets = (first..first + 20)
            .map(|number| udp::packet(&mut sender, address(&peer), &payload(number, 100)).unwrap());
        let mut batch: PacketList = packets.collect();
        let _ = sender.xmit_batch(&mut batch);
        assert!(dev.drain(Duration::from_secs(20)));
        (before..dev.stats().sent).for_each(|_| arrived.push(number(&receive(&peer))));
    }
    assert_silent(&peer);
    let stats = assert_conserved(&dev);
    assert_eq!(stats.sent + stats.dropped.total(), 1000);
    assert_eq!(arrived.len() as u64, stats.sent);
    assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
    assert!(stats.dropped.total() > 0 && stats.requeues > 0, "{stats:?}");
}
