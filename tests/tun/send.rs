//! Packets to the kernel.

use std::time::Duration;

use txq::NetDev;
use txq::drop::DropReason;
use txq_device::Tun;

use crate::support::netns::Netns;
use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::wire::{UDP, frame, packet};
use crate::{PATIENCE, builder, namespace, open, send, settle};

const BROADCAST: [u8; 6] = [0xff; 6];

/// Returns a UDP packet that carries its sender and its number.
fn numbered(sender: u8, number: u32, len: usize) -> Vec<u8> {
    let mut packet = packet(UDP, &format!("10.0.0.2:{}", 1000 + u16::from(sender)), "10.0.0.9:9", len.max(8));
    packet[28] = sender;
    packet[29..33].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Returns the numbers of the IP packets of `sender`, in order of arrival.
fn numbers(packets: &[Vec<u8>], sender: u8) -> Vec<u32> {
    let number = |packet: &&Vec<u8>| u32::from_be_bytes(packet[29..33].try_into().unwrap());
    packets.iter().filter(|packet| packet[28] == sender).map(|packet| number(&packet)).collect()
}

#[test]
fn packets_arrive_byte_for_byte() {
    let Some(netns) = namespace("packets_arrive_byte_for_byte") else { return };
    for (config, is_tap) in [(Tun::create("t0"), false), (Tun::create_tap("t0"), true)] {
        for has_header in [true, false] {
            let dev = builder(open(config.clone().vnet_header(has_header), &netns)).start().unwrap();
            let receiver = Receiver::start(&netns, "t0");
            let sizes = [0, 1, 2, 63, 64, 65, 700, 1471, 1472];
            let ipv6 = |len| packet(UDP, "[fd00::2]:7", "[fd00::1]:9", len);
            let mut packets: Vec<Vec<u8>> =
                sizes.iter().map(|&len| packet(UDP, "10.0.0.2:7", "10.0.0.9:9", len)).collect();
            packets.extend(sizes[..7].iter().map(|&len| ipv6(len)));
            if is_tap {
                packets = packets.iter().map(|packet| frame(packet, BROADCAST)).collect();
                // ARP and a frame with an unknown ethertype.
                packets.push([&BROADCAST[..], &[2, 0, 0, 0, 0, 9, 8, 6], &[3; 46]].concat());
                packets.push([&BROADCAST[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5]].concat());
            }
            let mut sender = dev.sender("s");
            send(&mut sender, packets.iter().cloned());
            assert_eq!(settle(&dev, &netns).sent, packets.len() as u64);
            assert!(wait_until(PATIENCE, || receiver.count() >= packets.len() as u64));
            assert_eq!(receiver.finish(), packets, "header: {has_header}");
        }
    }
}

#[test]
fn each_flow_keeps_its_order_over_one_to_four_queues() {
    const EACH: u32 = 3000;
    let Some(netns) = namespace("each_flow_keeps_its_order_over_one_to_four_queues") else { return };
    for queues in 1..=4 {
        let tun = open(Tun::create("t%d").queues(queues), &netns);
        let name = tun.name().to_owned();
        assert_eq!(tun.receivers().len(), usize::from(queues));
        let receiver = Receiver::start(&netns, &name);
        let qdisc = if queues == 1 { "pfifo limit 100000" } else { "mq" };
        let dev = builder(tun).qdisc(qdisc).default_qdisc("pfifo limit 100000").xps(None).start().unwrap();
        std::thread::scope(|scope| {
            for id in 0..4_u8 {
                let mut sender = dev.sender(&format!("s{id}"));
                sender.set_limit(300);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let bytes = numbered(id, number, number as usize % 1000);
                        let packet = loop {
                            match sender.packet(&bytes) {
                                Ok(packet) => break packet,
                                Err(_) => std::thread::yield_now(),
                            }
                        };
                        let _ = sender.xmit(packet);
                    }
                });
            }
        });
        let stats = settle(&dev, &netns);
        assert_eq!((stats.sent, stats.dropped.total()), (u64::from(4 * EACH), 0));
        assert_eq!(stats.queues.len(), usize::from(queues));
        assert!(wait_until(PATIENCE, || receiver.count() >= stats.sent));
        let packets = receiver.finish();
        for id in 0..4 {
            assert_eq!(numbers(&packets, id), (0..EACH).collect::<Vec<_>>(), "sender {id}, {queues} queues");
        }
    }
}

#[test]
fn an_interface_that_goes_down_loses_nothing() {
    let Some(netns) = namespace("an_interface_that_goes_down_loses_nothing") else { return };
    let dev = builder(open(Tun::create("t0").up(false), &netns)).start().unwrap();
    let mut sender = dev.sender("s");
    let numbers_from = |range: std::ops::Range<u32>| range.map(|number| numbered(0, number, 100));
    // A new interface is down.
    send(&mut sender, numbers_from(0..100));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!((dev.stats().sent, dev.stats().queued), (0, 100));
    netns.ip("link set t0 up");
    assert_eq!(settle(&dev, &netns).sent, 100);
    netns.ip("link set t0 down");
    send(&mut sender, numbers_from(100..200));
    std::thread::sleep(Duration::from_millis(30));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.queued), (100, 100));
    let receiver = started(&netns, "t0");
    netns.ip("link set t0 up");
    assert_eq!(settle(&dev, &netns).sent, 200);
    send(&mut sender, numbers_from(200..300));
    assert_eq!(settle(&dev, &netns).sent, 300);
    assert!(wait_until(PATIENCE, || receiver.count() >= 200));
    assert_eq!(numbers(&receiver.finish(), 0), (100..300).collect::<Vec<_>>());
}

/// Starts a receiver on an interface that is down.
fn started(netns: &Netns, interface: &str) -> Receiver {
    Receiver::start(netns, interface)
}

#[test]
fn an_interface_that_is_removed_is_an_error_and_a_new_one_is_another() {
    let Some(netns) = namespace("an_interface_that_is_removed_is_an_error") else { return };
    let tun = open(Tun::create("t0").queues(2), &netns);
    let mut dev = builder(tun).qdisc("mq").start().unwrap();
    let mut sender = dev.sender("s");
    send(&mut sender, (0..10).map(|number| numbered(0, number, 100)));
    assert_eq!(settle(&dev, &netns).sent, 10);
    netns.ip("link del t0");
    send(&mut sender, (10..20).map(|number| numbered(0, number, 100)));
    let other = open(Tun::create("t0").queues(2), &netns);
    send(&mut sender, (20..30).map(|number| numbered(0, number, 100)));
    assert!(dev.drain(PATIENCE));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::DevReady)), (10, 20));
    let error = dev.shutdown().unwrap_err().to_string();
    assert!(error.starts_with("interface \"t0\" is gone: its packets are dropped ("), "{error}");
    drop(dev);
    // The new interface has a device of its own.
    let dev = builder(other).qdisc("mq").start().unwrap();
    let mut sender = dev.sender("s");
    send(&mut sender, (0..10).map(|number| numbered(0, number, 100)));
    assert_eq!(settle(&dev, &netns).sent, 10);
}

/// Interfaces are removed and created while threads send: nothing panics, and every packet is accounted for.
#[test]
fn interfaces_come_and_go_while_threads_send() {
    let Some(netns) = namespace("interfaces_come_and_go_while_threads_send") else { return };
    for round in 0..10 {
        let mut dev = builder(open(Tun::create("t0").queues(2), &netns)).qdisc("mq").start().unwrap();
        std::thread::scope(|scope| {
            for id in 0..2 {
                let mut sender = dev.sender("s");
                sender.set_limit(200);
                scope.spawn(move || {
                    for number in 0..2000 {
                        if let Ok(packet) = sender.packet(&numbered(id, number, 100)) {
                            let _ = sender.xmit(packet);
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(round));
            netns.ip("link set t0 down");
            netns.ip("link set t0 up");
            netns.ip("link del t0");
        });
        assert!(dev.drain(PATIENCE));
        let stats = dev.audit().unwrap();
        assert_eq!(stats.accepted, stats.sent + stats.dropped.total(), "{stats:?}");
        assert_eq!(stats.dropped.total(), stats.dropped.get(DropReason::DevReady), "{stats:?}");
        assert_eq!(dev.shutdown().is_err(), stats.dropped.total() > 0);
    }
}

#[test]
fn packets_that_cannot_be_are_dropped_and_the_others_go() {
    let Some(netns) = namespace("packets_that_cannot_be_are_dropped") else { return };
    let mut dev = builder(open(Tun::create("t0").mtu(1000), &netns)).start().unwrap();
    assert_eq!((dev.info().mtu, dev.info().name.as_str(), dev.info().gso), (1000, "t0", true));
    let mut sender = dev.sender("s");
    let neither = |first: u8, len: usize| [vec![first], vec![0; len]].concat();
    let mut packets = vec![numbered(0, 0, 972), numbered(0, 1, 973), numbered(0, 2, 1800), vec![]];
    packets.extend([neither(0x50, 60), neither(0, 60), neither(0xff, 0), numbered(0, 3, 10)]);
    send(&mut sender, packets);
    let drops = |dev: &NetDev| {
        use DropReason::{HdrTrunc, PktTooBig, UnhandledProto};
        [PktTooBig, HdrTrunc, UnhandledProto].map(|reason| dev.stats().dropped.get(reason))
    };
    let stats = settle(&dev, &netns);
    assert_eq!((stats.sent, drops(&dev)), (2, [2, 1, 3]));
    // The MTU of another program's doing holds at once.
    netns.ip("link set t0 mtu 1500 name t1");
    send(&mut sender, [numbered(0, 4, 1472), numbered(0, 5, 1473)]);
    assert!(dev.drain(PATIENCE));
    assert_eq!((dev.stats().sent, drops(&dev)), (3, [3, 1, 3]));
    // A frame is no packet of this link.
    let mut other = sender.packet(&frame(&numbered(0, 6, 10), [0x45; 6])).unwrap();
    other.set_link(txq::driver::Link::Ethernet);
    let _ = sender.xmit(other);
    assert!(dev.drain(PATIENCE));
    assert_eq!(drops(&dev), [3, 1, 4]);
    dev.shutdown().unwrap();

    let dev = builder(open(Tun::create_tap("t2"), &netns)).start().unwrap();
    assert_eq!(dev.info().mtu, 1500);
    let mut sender = dev.sender("s");
    let tagged =
        |len: usize| [&BROADCAST[..], &[2, 0, 0, 0, 0, 9, 0x81, 0, 0, 5, 8, 0], &vec![0x45; len]].concat();
    let long = frame(&numbered(0, 0, 1472), BROADCAST);
    send(&mut sender, [long.clone(), [&long[..], &[0]].concat(), tagged(1500), tagged(1501), vec![1; 13]]);
    assert_eq!((settle(&dev, &netns).sent, drops(&dev)), (2, [2, 1, 0]));
}
