//! A device on a UDP socket in a namespace of its own, whose loopback interface is slow, narrow or without a route.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support {
    pub(crate) mod home;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
}

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use support::home::assert_home;
use support::netns::Netns;
use support::skip::{require_root, require_tools};
use txq::NetDev;
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};
use txq::stats::device::DeviceStats;
use txq_device::Udp;
use txq_device::udp::{self, Counts};

const LOCAL: &str = "127.0.0.1:0";
const SECONDS_20: Duration = Duration::from_secs(20);

/// Runs a test in a namespace that `prepare` has changed; prints the skip if the machine cannot run it.
fn inside(test: &str, prepare: impl Fn(&Netns), work: impl FnOnce() + Send + 'static) {
    if require_root(test) && require_tools(test, &["ip", "tc"]) {
        let namespace = Netns::new();
        prepare(&namespace);
        namespace.call(work);
    }
}

fn start(udp: Udp) -> NetDev {
    let pool = PoolConfig { buffers: 1000, room: 70_000, backing: Backing::Heap, ..Default::default() };
    NetDev::builder(udp).qdisc("pfifo limit 10000").pool_config(pool).start().unwrap()
}

fn peer() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(LOCAL).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let n = socket.recv(&mut bytes).expect("a datagram");
    bytes.truncate(n);
    bytes
}

/// Sends `packets` payloads of one length, each full of its number, in one batch.
fn send(dev: &NetDev, to: SocketAddr, packets: u8, len: usize) {
    let mut sender = dev.sender("s");
    let packet = |n| udp::packet(&mut sender, to, &vec![n; len]).unwrap();
    let mut batch: PacketList = (0..packets).map(packet).collect();
    let _ = sender.xmit_batch(&mut batch);
}

/// Waits until all packets have left and checks that the counters add up.
#[track_caller]
fn finish(dev: &NetDev) -> DeviceStats {
    assert!(dev.drain(SECONDS_20), "packets do not leave: {:?}", dev.stats());
    assert_home(dev);
    dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// The kernel's tbf keeps datagrams, so the socket's buffer fills: the packets wait in txq's qdisc, and none is lost.
#[test]
fn a_full_socket_buffer_costs_no_packet() {
    let slow = |ns: &Netns| drop(ns.tc("qdisc add dev lo root tbf rate 16mbit burst 20k limit 1000000"));
    inside("a_full_socket_buffer_costs_no_packet", slow, || {
        let (peer, to) = peer();
        for gso in [false, true] {
            let udp = Udp::bind(LOCAL).unwrap().join(gso).send_buffer(20_000).unwrap();
            let counters = udp.counters();
            let dev = start(udp);
            if gso {
                let mut sender = dev.sender("s");
                for n in 0..10 {
                    let mut packet = udp::packet(&mut sender, to, &[n; 10_000]).unwrap();
                    packet.set_gso(1000, 10);
                    let _ = sender.xmit(packet);
                }
            } else {
                send(&dev, to, 100, 1000);
            }
            for n in 0..100 {
                assert_eq!(receive(&peer), [if gso { n / 10 } else { n }; 1000]);
            }
            let stats = finish(&dev);
            assert_eq!(stats.dropped.total(), 0);
            let Counts { full, datagrams, .. } = counters.read();
            assert!(full > 0 && stats.requeues > 0, "the buffer was never full: {stats:?}");
            assert_eq!(datagrams, 100);
        }
    });
}

/// Segments that the kernel does not cut, sent one by one, of which only some fit into the socket's buffer: the packet stays
/// with the segments that are left.
#[test]
fn a_packet_that_is_cut_by_the_driver_can_be_sent_in_parts() {
    let slow = |ns: &Netns| {
        ns.ip("link set lo mtu 1500");
        ns.tc("qdisc add dev lo root tbf rate 16mbit burst 20k limit 1000000");
    };
    inside("a_packet_that_is_cut_by_the_driver_can_be_sent_in_parts", slow, || {
        let (peer, to) = peer();
        let udp = Udp::bind(LOCAL).unwrap().send_buffer(5000).unwrap();
        let counters = udp.counters();
        let dev = start(udp);
        let mut sender = dev.sender("s");
        // Longer than the MTU: the kernel refuses to cut, but sends the fragments of single datagrams.
        let whole: Vec<u8> = (0..40_000_u32).map(|n| (n / 2000) as u8 ^ n as u8).collect();
        let mut packet = udp::packet(&mut sender, to, &whole).unwrap();
        packet.set_gso(2000, 20);
        packet.set_mark(7);
        let _ = sender.xmit(packet);
        for segment in whole.chunks(2000) {
            assert_eq!(receive(&peer), segment);
        }
        let (stats, counts) = (finish(&dev), counters.read());
        assert_eq!((stats.sent, stats.dropped.total()), (1, 0));
        assert!(counts.full > 0, "the buffer was never full: {counts:?}");
        assert_eq!((counts.uncut, counts.datagrams, counts.joined), (1, 20, 0));
    });
}

/// Datagrams longer than the interface's MTU cannot be cut from a message, only sent one by one, in fragments.
#[test]
fn what_the_kernel_does_not_cut_is_sent_one_by_one() {
    let narrow = |ns: &Netns| drop(ns.ip("link set lo mtu 1500"));
    inside("what_the_kernel_does_not_cut_is_sent_one_by_one", narrow, || {
        let (peer, to) = peer();
        let udp = Udp::bind(LOCAL).unwrap();
        let counters = udp.counters();
        let dev = start(udp);
        for (len, uncut, joined) in [(1400, 0, 1), (3000, 1, 1), (3000, 1, 1), (1400, 1, 2)] {
            send(&dev, to, 8, len);
            for n in 0..8 {
                assert_eq!(receive(&peer), vec![n; len]);
            }
            finish(&dev);
            let counts = counters.read();
            assert_eq!((counts.uncut, counts.joined), (uncut, joined), "{len} bytes: {counts:?}");
        }
        assert_eq!(finish(&dev).sent, 32);
        // After a second the kernel is asked again.
        std::thread::sleep(Duration::from_millis(1100));
        send(&dev, to, 8, 3000);
        (0..8).for_each(|n| assert_eq!(receive(&peer), [n; 3000]));
        assert_eq!(counters.read().uncut, 2);
    });
}

#[test]
fn a_datagram_that_may_not_be_fragmented_is_dropped() {
    let narrow = |ns: &Netns| drop(ns.ip("link set lo mtu 1500"));
    inside("a_datagram_that_may_not_be_fragmented_is_dropped", narrow, || {
        let (peer, to) = peer();
        let udp = Udp::bind(LOCAL).unwrap().dont_fragment(true).unwrap();
        let counters = udp.counters();
        let dev = start(udp);
        for len in [1473, 1472] {
            send(&dev, to, 3, len);
        }
        (0..3).for_each(|n| assert_eq!(receive(&peer), [n; 1472]));
        let stats = finish(&dev);
        assert_eq!((stats.sent, stats.dropped.get(DropReason::PktTooBig)), (3, 3));
        let counts = counters.read();
        // Their length was not wrong for the message alone, so the next message is joined at once.
        assert_eq!((counts.too_long, counts.joined, counts.datagrams), (3, 1, 3), "{counts:?}");
    });
}

#[test]
fn packets_without_a_route_are_dropped_and_others_are_sent() {
    let routes = |ns: &Netns| {
        ns.ip("route add unreachable 192.0.2.0/24");
        ns.ip("route add prohibit 198.51.100.0/24");
    };
    inside("packets_without_a_route_are_dropped_and_others_are_sent", routes, || {
        let (peer, to) = peer();
        let udp = Udp::bind("0.0.0.0:0").unwrap();
        let counters = udp.counters();
        let mut dev = start(udp);
        for lost in ["192.0.2.1:5", "198.51.100.1:5", "203.0.113.1:5"] {
            send(&dev, lost.parse().unwrap(), 3, 100);
            send(&dev, to, 3, 100);
            (0..3).for_each(|n| assert_eq!(receive(&peer), [n; 100]));
        }
        let stats = finish(&dev);
        assert_eq!((stats.sent, stats.dropped.get(DropReason::IpOutnoroutes)), (9, 9), "{stats:?}");
        assert_eq!(counters.read().unreachable, 9);
        dev.shutdown().expect("a missing route is no error of the device");
    });
}
