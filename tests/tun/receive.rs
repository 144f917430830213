//! Packets of the kernel.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use txq::Flow;
use txq::packet::PacketList;
use txq::receive::Receive;
use txq_device::Tun;

use crate::support::netns::Netns;
use crate::support::process::{run, wait_until};
use crate::wire::{UDP, byte_at, packet, parse};
use crate::{PATIENCE, builder, counters, long_buffers, namespace, open, receive, settle};

/// Gives the interface an address and returns a socket there that sends through it.
fn socket(netns: &Netns, interface: &str) -> UdpSocket {
    netns.ip(&format!("addr add 10.0.0.1/24 dev {interface}"));
    // Of a TUN, the command fails: it needs no neighbours.
    let neighbour = format!("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev {interface}");
    let _ = netns.command("ip").args(neighbour.split(' ')).output();
    let socket = netns.call(|| UdpSocket::bind("10.0.0.1:9").unwrap());
    socket.connect("10.0.0.2:7").unwrap();
    socket
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(byte_at).collect()
}

#[test]
fn packets_of_a_socket_arrive_byte_for_byte() {
    let Some(netns) = namespace("packets_of_a_socket_arrive_byte_for_byte") else { return };
    for (config, header) in [(Tun::create("t0"), 0), (Tun::create_tap("t0"), 14)] {
        for (has_header, gro) in [(true, false), (false, false), (true, true)] {
            let tun = open(config.clone().vnet_header(has_header).gro(gro), &netns);
            let mut queue = tun.receivers().pop().unwrap();
            let dev = builder(tun).pool_config(long_buffers(64)).start().unwrap();
            let mut sender = dev.sender("s");
            let socket = socket(&netns, "t0");
            let before = counters(&netns, "t0");
            let sizes = [0, 1, 2, 3, 63, 64, 65, 1000, 1471, 1472];
            for len in sizes {
                assert_eq!(socket.send(&payload(len)).unwrap(), len);
            }
            let packets = receive(&mut queue, &mut sender, sizes.len());
            for (packet, len) in packets.iter().zip(sizes) {
                if header > 0 {
                    assert_eq!((&packet[..6], &packet[12..14]), (&[2, 0, 0, 0, 0, 2][..], &[8, 0][..]));
                }
                let parsed = parse(&packet[header..]);
                assert_eq!((parsed.payload, parsed.source), (payload(len), 9), "gro: {gro}");
            }
            let (stats, tx) = (queue.stats(), &counters(&netns, "t0")["tx"]);
            let counted = |key: &str| tx[key].as_u64().unwrap() - before["tx"][key].as_u64().unwrap();
            assert_eq!((stats.packets, stats.bytes), (counted("packets"), counted("bytes")));
            assert_eq!((stats.malformed, stats.too_long, stats.missed), (0, 0, 0));
        }
    }
}

/// One send of many datagrams reaches the receiver as one packet, with the size of a segment.
#[test]
fn with_gro_packets_stay_whole() {
    let Some(netns) = namespace("with_gro_packets_stay_whole") else { return };
    for (gro, sizes) in [(true, vec![(1000, 10_001)]), (false, [vec![(0, 1000); 10], vec![(0, 1)]].concat())]
    {
        let tun = open(Tun::create("t0").gro(gro), &netns);
        let mut queue = tun.receivers().pop().unwrap();
        let dev = builder(tun).pool_config(long_buffers(64)).start().unwrap();
        let mut sender = dev.sender("s");
        let socket = socket(&netns, "t0");
        let size: libc::c_int = 1000;
        // SAFETY: the kernel reads an integer, which `size` is.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                4,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(socket.send(&payload(10_001)).unwrap(), 10_001);
        let mut batch = PacketList::new();
        let all = || {
            queue.receive(16, &mut sender, &mut batch).unwrap();
            batch.len() == sizes.len()
        };
        assert!(wait_until(PATIENCE, all), "{} packets", batch.len());
        for (packet, &(size, len)) in batch.iter().zip(&sizes) {
            assert_eq!(packet.len(), 28 + len);
            let segs = if size > 0 { len.div_ceil(size) } else { 1 };
            assert_eq!(packet.gso(), (size as u16, segs as u16));
            assert_eq!((packet.rx_queue(), packet.link()), (Some(0), txq::driver::Link::Ip));
            if size == 0 {
                parse(packet.data());
            }
        }
    }
}

#[test]
fn packets_longer_than_a_buffer_are_counted() {
    let Some(netns) = namespace("packets_longer_than_a_buffer_are_counted") else { return };
    let tun = open(Tun::create("t0").mtu(9000), &netns);
    let mut queue = tun.receivers().pop().unwrap();
    let dev = builder(tun).start().unwrap();
    let mut sender = dev.sender("s");
    let socket = socket(&netns, "t0");
    // A buffer has 1920 bytes, headers included.
    for len in [100, 1892, 1893, 8972, 200] {
        socket.send(&payload(len)).unwrap();
    }
    let packets = receive(&mut queue, &mut sender, 3);
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [128, 1920, 228]);
    assert_eq!((queue.stats().too_long, queue.stats().packets), (2, 3));
}

#[test]
fn gro_needs_long_buffers_and_says_so() {
    let Some(netns) = namespace("gro_needs_long_buffers_and_says_so") else { return };
    let tun = open(Tun::create("t0").gro(true), &netns);
    let mut queue = tun.receivers().pop().unwrap();
    let dev = builder(tun).start().unwrap();
    let error = queue.receive(1, &mut dev.sender("s"), &mut PacketList::new()).unwrap_err().to_string();
    assert!(error.contains("set PoolConfig::room to 65553"), "{error}");
}

#[test]
fn waiting_ends_with_a_packet_a_timeout_or_the_interface() {
    let Some(netns) = namespace("waiting_ends_with_a_packet_a_timeout_or_the_interface") else { return };
    let tun = open(Tun::create("t0"), &netns);
    let mut queue = tun.receivers().pop().unwrap();
    let dev = builder(tun).start().unwrap();
    let mut sender = dev.sender("s");
    let socket = socket(&netns, "t0");
    let began = Instant::now();
    assert!(!queue.wait(Some(Duration::from_millis(50))).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(queue.receive(8, &mut sender, &mut PacketList::new()).unwrap(), 0);
    assert!(queue.as_fd().as_raw_fd() >= 0);
    socket.send(b"x").unwrap();
    assert!(queue.wait(None).unwrap());
    assert_eq!(receive(&mut queue, &mut sender, 1).len(), 1);
    // No packets come while it is down, and afterwards they do.
    netns.ip("link set t0 down");
    assert!(socket.send(b"x").is_err());
    assert!(!queue.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(queue.receive(8, &mut sender, &mut PacketList::new()).unwrap(), 0);
    netns.ip("link set t0 up");
    socket.send(b"x").unwrap();
    assert_eq!(receive(&mut queue, &mut sender, 1).len(), 1);
    // A thread that waits learns that the interface is removed.
    let waiting = std::thread::spawn(move || {
        assert!(queue.wait(Some(PATIENCE)).unwrap());
        queue.receive(8, &mut sender, &mut PacketList::new()).unwrap_err().to_string()
    });
    std::thread::sleep(Duration::from_millis(20));
    netns.ip("link del t0");
    let error = waiting.join().unwrap();
    assert!(error.starts_with("interface \"t0\" is gone ("), "{error}");
}

/// Without a buffer, packets stay with the kernel.
#[test]
fn without_buffers_packets_wait() {
    let Some(netns) = namespace("without_buffers_packets_wait") else { return };
    let tun = open(Tun::create("t0"), &netns);
    let mut queue = tun.receivers().pop().unwrap();
    let dev = builder(tun).start().unwrap();
    let mut sender = dev.sender("s");
    let socket = socket(&netns, "t0");
    sender.set_limit(3);
    for _ in 0..5 {
        socket.send(b"x").unwrap();
    }
    let mut batch = PacketList::new();
    assert_eq!(queue.receive(8, &mut sender, &mut batch).unwrap(), 3);
    assert_eq!(queue.receive(8, &mut sender, &mut batch).unwrap(), 0);
    drop(batch);
    assert_eq!(queue.receive(8, &mut sender, &mut PacketList::new()).unwrap(), 2);
    assert_eq!(queue.stats().packets, 5);
}

/// The kernel sends a flow through the queue that the device last sent the flow through.
#[test]
fn answers_come_to_the_queue_of_the_flow() {
    let Some(netns) = namespace("answers_come_to_the_queue_of_the_flow") else { return };
    let tun = open(Tun::create("t0").queues(4), &netns);
    let mut queues = tun.receivers();
    let dev = builder(tun).qdisc("mq").xps(None).start().unwrap();
    let socket = socket(&netns, "t0");
    let mut used = std::collections::BTreeSet::new();
    for port in 1000..1032 {
        let mut sender = dev.sender_on("s", u32::from(port) % 4);
        socket.connect(("10.0.0.2", port)).unwrap();
        let before = dev.stats();
        let hello = packet(UDP, &format!("10.0.0.2:{port}"), "10.0.0.1:9", 4);
        let mut flow = Flow::new();
        let hello = sender.packet(&hello).unwrap();
        let _ = sender.xmit_on(&mut flow, hello);
        assert!(dev.drain(PATIENCE));
        let after = dev.stats();
        let mut pairs = (0..).zip(before.queues.iter().zip(&after.queues));
        let (index, _) = pairs.find(|(_, (before, after))| before.counters != after.counters).unwrap();
        used.insert(index);
        socket.send(b"answer").unwrap();
        let packets = receive(&mut queues[index], &mut sender, 1);
        assert_eq!(parse(&packets[0]).payload, b"answer");
    }
    assert_eq!(used.len(), 4, "{used:?}");
}

/// `ping` is answered by a program that exchanges the addresses of each packet and sends it back.
#[test]
fn an_echo_responder_answers_ping() {
    let test = "an_echo_responder_answers_ping";
    let Some(netns) = namespace(test).filter(|_| crate::support::skip::require_tools(test, &["ping"])) else {
        return;
    };
    let tun = open(Tun::create("t0"), &netns);
    netns.ip("addr add 10.0.0.1/24 dev t0");
    let mut queue = tun.receivers().pop().unwrap();
    let dev = builder(tun).qdisc("fq_codel").start().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = dev.sender("responder");
            let mut batch = PacketList::new();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if queue.receive(64, &mut sender, &mut batch).unwrap() == 0 {
                    queue.wait(Some(Duration::from_millis(10))).unwrap();
                    continue;
                }
                batch.for_each_mut(|packet| {
                    let data = packet.data_mut();
                    assert_eq!((data[9], data[20]), (1, 8), "an echo request");
                    let (from, to) = data[12..20].split_at_mut(4);
                    from.swap_with_slice(to);
                    // A reply has type 0, so its checksum is greater by 8 in the first byte.
                    data[20] = 0;
                    let checksum = u16::from_be_bytes([data[22], data[23]]);
                    let (sum, carry) = checksum.overflowing_add(0x0800);
                    data[22..24].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
                });
                let _ = sender.xmit_batch(&mut batch);
            }
        });
        let out = std::panic::catch_unwind(|| {
            let mut ping = netns.command("ping");
            run(ping.args(["-c", "20", "-i", "0.01", "-s", "1000", "-W", "5", "10.0.0.2"]))
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let out = out.unwrap();
        assert!(out.contains("20 received, 0% packet loss"), "{out}");
    });
    assert_eq!(settle(&dev, &netns).sent, 20);
}
