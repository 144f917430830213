use txq::pool::{Backing, Cache, Pool, PoolConfig};

use super::*;

/// A packet: the port it goes to, its payload's length, and its type of service.
type Sent = (u16, usize, u8);

const RULES: Rules = Rules {
    is_v6: false,
    peer: None,
    local: None,
    tos: [0; 2],
    scope: 0,
    txtime: false,
    joins: true,
    longest_segment: 65_535,
};

fn cache() -> Cache {
    let config = PoolConfig { room: 70_000, buffers: 300, backing: Backing::Heap, ..Default::default() };
    Pool::new(&config).unwrap().cache("test", 0)
}

fn packet(cache: &mut Cache, (port, len, tos): Sent) -> Packet {
    let mut packet = cache.alloc(len).unwrap();
    packet.data_mut().fill(port as u8);
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    Datagram::new(to).tos(tos).push(&mut packet).unwrap();
    packet
}

/// Returns the packets and the datagrams of each message that the packets are joined to.
fn joined(rules: &Rules, sent: &[Sent]) -> Vec<(usize, usize)> {
    let mut cache = cache();
    let packets: Vec<_> = sent.iter().map(|&sent| packet(&mut cache, sent)).collect();
    let mut messages = Messages::new();
    match messages.fill(packets.iter(), rules) {
        Fill::Ready(filled) => filled.messages.iter().map(|m| (m.packets, m.datagrams)).collect(),
        _ => panic!("packets that can be sent"),
    }
}

fn alike(n: usize, len: usize) -> Vec<Sent> {
    vec![(1, len, 0); n]
}

#[test]
fn packets_that_are_alike_are_one_message() {
    assert_eq!(joined(&RULES, &alike(5, 100)), [(5, 5)]);
    assert_eq!(joined(&RULES, &alike(1, 100)), [(1, 1)]);
    // The last may be shorter, and is the last then.
    assert_eq!(joined(&RULES, &[(1, 100, 0), (1, 100, 0), (1, 99, 0), (1, 99, 0)]), [(3, 3), (1, 1)]);
    assert_eq!(joined(&RULES, &[(1, 99, 0), (1, 100, 0)]), [(1, 1), (1, 1)]);
    // Another destination or type of service is another message.
    assert_eq!(joined(&RULES, &[(1, 9, 0), (2, 9, 0), (2, 9, 1), (2, 9, 1)]), [(1, 1), (1, 1), (2, 2)]);
    // The kernel cannot cut a message into datagrams without a byte.
    assert_eq!(joined(&RULES, &alike(3, 0)), [(1, 1); 3]);
    assert_eq!(joined(&RULES, &[(1, 5, 0), (1, 0, 0)]), [(1, 1); 2]);
    // At most 64 datagrams, and one IP packet's bytes.
    assert_eq!(joined(&RULES, &alike(130, 100)), [(64, 64), (64, 64), (2, 2)]);
    assert_eq!(joined(&RULES, &alike(100, 1200)), [(54, 54), (46, 46)]);
    assert_eq!(joined(&RULES, &alike(3, 40_000)), [(1, 1); 3]);
}

#[test]
fn packets_are_joined_only_where_the_kernel_cuts() {
    assert_eq!(joined(&Rules { joins: false, ..RULES }, &alike(3, 100)), [(1, 1); 3]);
    let rules = Rules { longest_segment: 99, ..RULES };
    assert_eq!(joined(&rules, &[alike(2, 100), alike(2, 99)].concat()), [(1, 1), (1, 1), (2, 2)]);
    assert_eq!(joined(&Rules { longest_segment: 0, ..RULES }, &alike(3, 1)), [(1, 1); 3]);
}

#[test]
fn a_call_has_as_many_messages_as_fit() {
    let many: Vec<Sent> = (0..100).map(|n| (n + 1, 10, 0)).collect();
    assert_eq!(joined(&RULES, &many), [(1, 1); MAX_MESSAGES]);
    assert_eq!(joined(&RULES, &alike(300, 10)).iter().map(|m| m.0).sum::<usize>(), MAX_CALL_PACKETS);
}

#[test]
fn departure_times_keep_packets_apart() {
    let mut cache = cache();
    let mut packets: Vec<_> = (0..4).map(|_| packet(&mut cache, (1, 10, 0))).collect();
    packets[2].set_departure(5);
    packets[3].set_departure(5);
    let mut messages = Messages::new();
    for (txtime, expected) in [(false, 1), (true, 2)] {
        let Fill::Ready(filled) = messages.fill(packets.iter(), &Rules { txtime, ..RULES }) else {
            panic!("packets that can be sent")
        };
        assert_eq!(filled.messages.len(), expected);
    }
}

#[test]
fn packets_with_segments_are_messages_of_their_own() {
    let mut cache = cache();
    let mut sent = [(1, 100, 0), (1, 250, 0), (1, 100, 0)].map(|sent| packet(&mut cache, sent));
    sent[1].set_gso(100, 3);
    let mut messages = Messages::new();
    let Fill::Ready(filled) = messages.fill(sent.iter(), &RULES) else { panic!("packets that can be sent") };
    let numbers = filled.messages.iter().map(|m| (m.packets, m.datagrams, m.segment));
    assert_eq!(numbers.collect::<Vec<_>>(), [(1, 1, 100), (1, 3, 100), (1, 1, 100)]);
    // Without the kernel, the packets before are sent, and then this one by itself.
    let rules = Rules { longest_segment: 50, ..RULES };
    let Fill::Ready(filled) = messages.fill(sent.iter(), &rules) else { panic!("a first packet") };
    assert_eq!(filled.messages.len(), 1);
    assert!(matches!(messages.fill(sent[1..].iter(), &rules), Fill::Apart));
}

#[test]
fn a_packet_that_cannot_be_sent_is_named_when_it_is_the_first() {
    let mut cache = cache();
    let mut sent = [(1, 100, 0), (1, 100, 0)].map(|sent| packet(&mut cache, sent));
    sent[1].data_mut()[9] = 6;
    let mut messages = Messages::new();
    let Fill::Ready(filled) = messages.fill(sent.iter(), &RULES) else { panic!("a first packet") };
    assert_eq!(filled.messages.len(), 1);
    let bad = messages.fill(sent[1..].iter(), &RULES);
    assert!(matches!(bad, Fill::Bad(DropReason::UnhandledProto)));
    let mut to_v6 = cache.alloc(5).unwrap();
    Datagram::new("[::1]:5".parse().unwrap()).push(&mut to_v6).unwrap();
    assert!(matches!(messages.fill([&to_v6].into_iter(), &RULES), Fill::Bad(DropReason::IpOutnoroutes)));
}

/// Messages move, from the stack to a box and to another thread, and are filled several times: each part still points to its
/// packet's payload, and each address is right. Under Miri a pointer that the move invalidated is an error.
#[test]
fn parts_lead_to_the_payloads_wherever_the_messages_lie() {
    let mut cache = cache();
    let packets: Vec<_> = (1..=90).map(|n| packet(&mut cache, (n / 3 + 1, usize::from(n), 4))).collect();
    let mut messages = Box::new(Messages::new());
    for n in [3, 90, 1] {
        messages = std::thread::spawn(move || messages).join().unwrap();
        let Fill::Ready(filled) = messages.fill(packets.iter().take(n), &RULES) else {
            panic!("packets that can be sent")
        };
        let mut at = 0;
        for header in filled.headers.iter().map(|header| &header.msg_hdr) {
            #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
            // SAFETY: just filled.
            let parts = unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen as usize) };
            // SAFETY: as above.
            let address = unsafe { &*header.msg_name.cast::<Address>() };
            for part in parts {
                // SAFETY: the part is that of a payload, which is alive.
                let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
                let (datagram, payload) = Datagram::parse(packets[at].data()).unwrap();
                assert_eq!((bytes, address.read()), (payload, Some(datagram.destination())));
                at += 1;
            }
        }
        assert_eq!(at, n.min(MAX_MESSAGES));
    }
}
