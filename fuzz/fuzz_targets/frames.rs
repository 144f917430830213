//! Frames through a device: filters, cuts, checksums and qdiscs that inspect packets take any bytes, and count each packet once.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use txq::NetDev;
use txq::driver::Link;
use txq::pool::{Backing, PoolConfig};
use txq_control::tc;
use txq_device::Null;

const HTB: [&str; 8] = [
    "qdisc add root handle 1: htb default 10",
    "class add parent 1: classid 1:10 htb rate 1gbit",
    "class add parent 1: classid 1:20 htb rate 1gbit",
    "filter add parent 1: protocol 802.1q pref 1 flower vlan_id 5 classid 1:20",
    "filter add parent 1: protocol ip pref 2 flower ip_proto tcp dst_port 80 classid 1:20",
    "filter add parent 1: protocol ipv6 pref 3 flower ip_proto udp src_port 53 classid 1:20",
    "filter add parent 1: protocol ip pref 4 u32 match ip dport 5060 0xffff match ip tos 0x10 0xff classid 1:20",
    "qdisc add parent 1:20 fq_codel",
];
const CAKE: [&str; 1] =
    ["qdisc add root cake bandwidth 1gbit diffserv8 wash ack-filter-aggressive split-gso"];
const FQ: [&str; 1] = ["qdisc add root fq"];
const ACTIONS: [&str; 13] = [
    "qdisc add root handle 1: prio bands 4",
    "qdisc add parent 1:1 handle 10: fq_pie",
    "qdisc add parent 1:2 handle 20: dualpi2",
    "qdisc add parent 1:3 handle 30: sfq",
    "qdisc add parent 1:4 handle 40: ets bands 3 strict 1 quanta 1500 1500",
    "qdisc add clsact",
    "filter add egress protocol all pref 1 u32 match u8 0x40 0xf0 at 0 action skbedit priority 1:2 pipe action police rate 1gbit burst 100k conform-exceed drop/continue",
    "filter add parent 1: protocol ip pref 2 handle 2: u32 divisor 256",
    "filter add parent 1: protocol ip pref 2 u32 ht 800:: match ip protocol 6 0xff hashkey mask 0x000000ff at 16 link 2:",
    "filter add parent 1: protocol ip pref 2 u32 ht 2:10: match tcp dst 80 0xffff classid 1:3",
    "filter add parent 1: protocol all pref 3 basic match cmp(u16 at 2 layer network gt 500) and not u32(u32 0x0a000000 0xff000000 at 16) classid 1:4",
    "filter add parent 1: protocol all pref 4 handle 4 flow hash keys src,dst,proto,proto-src,proto-dst divisor 4 baseclass 1:1",
    "filter add parent 30: protocol all pref 1 handle 1 flow map key proto-dst and 0xff rshift 2 addend 1 divisor 64",
];
const SETS: [(Link, &[&str]); 8] = [
    (Link::Ethernet, &HTB),
    (Link::Ethernet, &CAKE),
    (Link::Ethernet, &FQ),
    (Link::Ip, &HTB),
    (Link::Ip, &CAKE),
    (Link::Ip, &FQ),
    (Link::Ethernet, &ACTIONS),
    (Link::Ip, &ACTIONS),
];

fn device(link: Link, commands: &[&str]) -> NetDev {
    let pool = PoolConfig { buffers: 512, backing: Backing::Heap, ..PoolConfig::default() };
    let null = Null { name: "d0".to_owned(), link, ..Null::new(1) };
    let dev = NetDev::builder(null).qdisc("pfifo").pool_config(pool).build().expect("a device");
    for command in commands {
        // Not all qdiscs and filters fit all links.
        if let Err(error) = tc::apply(&dev, &command.replace("qdisc add root", "qdisc replace root")) {
            assert!(link == Link::Ip, "{command}: {error}");
        }
    }
    dev
}

thread_local! {
    static DEVICES: RefCell<Vec<NetDev>> = RefCell::new(SETS.iter().map(|(link, commands)| device(*link, commands)).collect());
}

fuzz_target!(|input: (u8, u16, bool, &[u8])| {
    let (which, size, partial, frame) = input;
    let frame = &frame[..frame.len().min(1514)];
    DEVICES.with_borrow(|devices| {
        let which = usize::from(which) % devices.len();
        let mut sender = devices[which].sender("fuzz");
        let Ok(mut packet) = sender.packet(frame) else { return };
        packet.set_link(SETS[which].0);
        if partial {
            sender.fill_checksum(&mut packet);
        }
        let size = size % 1500;
        if size > 0 && usize::from(size) < frame.len() {
            packet.set_gso(size, frame.len().div_ceil(size.into()) as u16);
        }
        let _verdict = sender.xmit(packet);
    });
});
