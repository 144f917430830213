//! Payloads, order, joined and cut messages, addresses, types of service.

use super::*;

#[test]
fn every_payload_arrives_byte_for_byte() {
    let lens = [0, 1, 2, 3, 100, 1200, 1472, 1473, 9000, 65_487];
    for (local, peer_at) in [(V4, V4), (V6, V6), ("[::]:0", V4), ("[::]:0", V6), ("0.0.0.0:0", V4)] {
        for connected in [false, true] {
            let peer = peer(peer_at);
            // A socket of both families has the address of its peer's.
            let to = match (address(&peer), local) {
                (SocketAddr::V4(v4), "[::]:0") => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
                (to, _) => to,
            };
            let udp = if connected { Udp::connect(local, to) } else { Udp::bind(local) }.unwrap();
            let dev = builder(udp).start().unwrap();
            let mut sender = dev.sender("s");
            for (number, len) in (0..).zip(lens) {
                let bytes = payload(number, len);
                let packet = if number % 2 == 0 {
                    udp::packet(&mut sender, to, &bytes).unwrap()
                } else {
                    pushed(&mut sender, Datagram::new(to), &bytes)
                };
                let _ = sender.xmit(packet);
                assert!(receive(&peer) == bytes, "{len} bytes from {local} to {to}");
            }
            assert_silent(&peer);
            assert_eq!(assert_conserved(&dev).sent, lens.len() as u64);
        }
    }
}

/// Batches of all lengths to several destinations, from several txqs of one socket: each destination gets its own packets in
/// order, joined or not.
#[test]
fn packets_of_a_flow_stay_in_order() {
    const EACH: u32 = 640;
    for join in [false, true] {
        let peers = [peer(V4), peer(V6), peer(V4)];
        let udp = Udp::bind("[::]:0").unwrap().txqs(4).join(join);
        let counters = udp.counters();
        let dev = builder(udp).qdisc("mq").default_qdisc("pfifo limit 10000").xps(None).start().unwrap();
        let mut sender = dev.sender("s");
        let len = |number: u32| if number % 100 < 60 { 200 } else { 10 + number as usize % 300 };
        for first in (0..EACH).step_by(16) {
            for peer in &peers {
                let mut batch = PacketList::new();
                for number in first..first + 16 {
                    let bytes = payload(number, len(number));
                    batch.push_back(udp::packet(&mut sender, address(peer), &bytes).unwrap());
                }
                let _ = sender.xmit_batch(&mut batch);
            }
            for peer in &peers {
                for number in first..first + 16 {
                    assert_eq!(receive(peer), payload(number, len(number)));
                }
            }
        }
        assert_eq!(assert_conserved(&dev).sent, u64::from(3 * EACH));
        let counts = counters.read();
        assert_eq!(counts.datagrams, u64::from(3 * EACH));
        assert_eq!(counts.joined > 0, join, "{counts:?}");
        assert!(counts.calls <= counts.messages && counts.messages <= counts.datagrams, "{counts:?}");
    }
}

#[test]
fn packets_that_are_alike_are_one_message() {
    let peer = peer(V4);
    let udp = Udp::bind(V4).unwrap();
    let counters = udp.counters();
    let dev = builder(udp).start().unwrap();
    let mut sender = dev.sender("s");
    let batch: PacketList = (0..32)
        .map(|number| udp::packet(&mut sender, address(&peer), &payload(number, 500)).unwrap())
        .collect();
    let _ = sender.xmit_batch(&mut { batch });
    for number in 0..32 {
        assert_eq!(receive(&peer), payload(number, 500));
    }
    assert_conserved(&dev);
    let counts = counters.read();
    assert_eq!((counts.calls, sent(counts)), (1, (1, 1, 32)), "{counts:?}");
}

#[test]
fn a_packet_with_segments_arrives_as_datagrams() {
    for (local, len, size) in [(V4, 5000, 1200), (V6, 4800, 1200), (V4, 20, 1), (V4, 60_000, 1400)] {
        let peer = peer(local);
        let udp = Udp::bind(local).unwrap();
        let counters = udp.counters();
        let dev = builder(udp).start().unwrap();
        let mut sender = dev.sender("s");
        let whole = payload(7, len);
        let mut packet = udp::packet(&mut sender, address(&peer), &whole).unwrap();
        let segs = len.div_ceil(size);
        packet.set_gso(size as u16, segs as u16);
        let _ = sender.xmit(packet);
        for segment in whole.chunks(size) {
            assert_eq!(receive(&peer), segment);
        }
        assert_silent(&peer);
        assert_eq!(assert_conserved(&dev).sent, 1);
        assert_eq!(sent(counters.read()), (1, 1, segs as u64));
    }
}

/// More segments than the kernel cuts a message into.
#[test]
fn a_packet_with_too_many_segments_goes_out_one_by_one() {
    let peer = peer(V4);
    let udp = Udp::bind(V4).unwrap();
    let counters = udp.counters();
    let dev = builder(udp).start().unwrap();
    let mut sender = dev.sender("s");
    let whole = payload(7, 65 * 4 + 1);
    let mut packet = udp::packet(&mut sender, address(&peer), &whole).unwrap();
    packet.set_gso(4, 66);
    let _ = sender.xmit(packet);
    for segment in whole.chunks(4) {
        assert_eq!(receive(&peer), segment);
    }
    assert_eq!(assert_conserved(&dev).sent, 1);
    let counts = counters.read();
    assert_eq!((counts.calls, sent(counts)), (2, (66, 0, 66)));
}

#[test]
fn the_source_of_the_header_is_the_datagrams() {
    let peer = peer("0.0.0.0:0");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, address(&peer).port()));
    for local in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"] {
        let udp = Udp::bind(local).unwrap();
        let port = udp.local_addr().port();
        let dev = builder(udp).start().unwrap();
        let mut sender = dev.sender("s");
        for source in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            let from = SocketAddr::new(source.parse().unwrap(), 0);
            let packet = pushed(&mut sender, Datagram::new(to).from(from), b"x");
            let _ = sender.xmit(packet);
            let (_, seen) = peer.recv_from(&mut [0; 9]).unwrap();
            assert_eq!(seen, SocketAddr::new(from.ip(), port));
        }
    }
}

/// The type of service of each packet arrives, whether the socket has it already or not.
#[test]
fn dscp_and_ecn_arrive() {
    for (local, at) in [(V4, V4), (V6, V6), ("[::]:0", V4)] {
        let to = Udp::bind(at).unwrap();
        let (mut receiver, to_dev) = (to.receiver().unwrap(), builder(to.clone()).start().unwrap());
        let dev = builder(Udp::bind(local).unwrap()).start().unwrap();
        let (mut sender, mut pool) = (dev.sender("s"), to_dev.sender("r"));
        let all = [0, 1, 2, 3, 0xb8, 0xb9, 0xfc];
        let packets = all.map(|tos| pushed(&mut sender, Datagram::new(to.local_addr()).tos(tos), &[tos; 20]));
        let _ = sender.xmit_batch(&mut packets.into_iter().collect());
        let mut batch = PacketList::new();
        while batch.len() < all.len() {
            assert!(receiver.wait(Some(Duration::from_secs(20))).unwrap(), "a datagram");
            receiver.receive(64, &mut pool, &mut batch).unwrap();
        }
        for (packet, tos) in batch.iter().zip(all) {
            let (datagram, payload) = Datagram::parse(packet.data()).unwrap();
            assert_eq!((datagram.traffic_class(), payload), (tos, &[tos; 20][..]), "{local} to {at}");
            assert_eq!(datagram.destination(), to.local_addr());
            assert_eq!(packet.dissect().tos, tos);
        }
    }
}

/// A program's own socket: its duplicate sends through the device, and the program receives the answers.
#[test]
fn a_socket_can_be_shared() {
    let (endpoint, peer) = (peer(V4), peer(V4));
    let dev = builder(Udp::from_socket(endpoint.try_clone().unwrap()).unwrap()).start().unwrap();
    let mut sender = dev.sender("s");
    let packet = udp::packet(&mut sender, address(&peer), b"ping").unwrap();
    let _ = sender.xmit(packet);
    let (n, from) = peer.recv_from(&mut [0; 9]).unwrap();
    assert_eq!((n, from), (4, address(&endpoint)));
    peer.send_to(b"pong", from).unwrap();
    assert_eq!(receive(&endpoint), b"pong");
    assert_conserved(&dev);
}

#[test]
fn each_txq_can_have_a_socket() {
    let peer = peer(V4);
    let sockets = [UdpSocket::bind(V4).unwrap(), UdpSocket::bind(V4).unwrap()];
    let ports = [0, 1].map(|i: usize| address(&sockets[i]).port());
    let udp = Udp::from_sockets(sockets).unwrap().name("wan0");
    assert_eq!(udp.receivers().unwrap().len(), 2);
    let dev = builder(udp).qdisc("mq").default_qdisc("pfifo").start().unwrap();
    let mut sender = dev.sender("s");
    let mut seen = [0; 2];
    // A flow has one txq, so one source port.
    for flow in 1..100_u16 {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, flow));
        for _ in 0..2 {
            let packet = pushed(&mut sender, Datagram::new(address(&peer)).from(from), b"x");
            let _ = sender.xmit(packet);
        }
        let [a, b] = [(); 2].map(|()| peer.recv_from(&mut [0; 9]).unwrap().1.port());
        assert_eq!(a, b);
        seen[ports.iter().position(|&port| port == a).unwrap()] += 1;
    }
    assert!(seen.iter().all(|&n| n > 10), "{seen:?}");
    assert!(Udp::from_sockets([]).is_err());
}

/// The kernel takes a departure time only of a socket that has asked for it. Without fq on the interface it sends at once.
#[test]
fn departure_times_are_handed_down() {
    let peer = peer(V4);
    let udp = Udp::bind(V4).unwrap();
    let horizon = |udp: &Udp| Driver::pacing_horizon(udp);
    assert_eq!(
        (horizon(&udp), horizon(&udp.clone().horizon(Duration::from_secs(5)))),
        (Duration::ZERO, Duration::from_secs(5))
    );
    let udp = udp.txtime(true);
    assert_eq!(horizon(&udp), Duration::from_secs(10));
    let counters = udp.counters();
    let dev = builder(udp).start().unwrap();
    let mut sender = dev.sender("s");
    let at = txq::Instant::now() + Duration::from_millis(2);
    let after = at + Duration::from_nanos(1);
    let mut batch = PacketList::new();
    for (number, departure) in [(0, txq::Instant::ZERO), (1, at), (2, at), (3, after)] {
        let mut packet = udp::packet(&mut sender, address(&peer), &payload(number, 50)).unwrap();
        packet.set_departure(departure);
        batch.push_back(packet);
    }
    let _ = sender.xmit_batch(&mut batch);
    (0..4).for_each(|number| assert_eq!(receive(&peer), payload(number, 50)));
    assert_eq!(assert_conserved(&dev).sent, 4);
    // Packets of one time are one message.
    assert_eq!(sent(counters.read()), (3, 1, 4));
}
