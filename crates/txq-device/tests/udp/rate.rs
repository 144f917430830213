//! Shapers over a UDP socket, as in a VPN server: four threads offer more than the rate.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::common::assert_conserved;
use txq::packet::PacketList;
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::Udp;
use txq_device::udp::{self, Datagram};

/// 20 Mbit/s.
const BYTES_PER_SECOND: f64 = 2.5e6;
const BURST: f64 = 20.0 * 1024.0;
const PAYLOAD: usize = 1172;

/// Sends four packets of two flows.
fn offer(sender: &mut Sender, client: u16, to: SocketAddr) {
    let mut batch = PacketList::new();
    for flow in [0, 0, 1, 1] {
        let from = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1000 + client * 2 + flow));
        let Ok(mut packet) = sender.packet(&[flow as u8; PAYLOAD]) else { break };
        Datagram::new(to).from(from).push(&mut packet).unwrap();
        batch.push_back(packet);
    }
    let _ = sender.xmit_batch(&mut batch);
}

/// Checks that no more arrives than the rate and the burst allow, however busy the machine, and that every packet is sent or
/// dropped. How much arrives depends on the machine; `--example udp_rate` measures it.
fn check(root: &str, below: impl Fn(&NetDev)) {
    let to = Udp::bind("127.0.0.1:0").unwrap().receive_buffer(4 << 20).unwrap();
    let (mut receiver, end) = (to.receiver().unwrap(), AtomicBool::new(false));
    let receiving = NetDev::builder(to.clone()).build().unwrap();
    let mut buffers = receiving.sender("r");
    let udp = Udp::bind("127.0.0.1:0").unwrap();
    let counters = udp.counters();
    let dev = NetDev::builder(udp).qdisc(root).start().unwrap();
    below(&dev);
    let began = Instant::now();
    let (mut packets, mut bytes) = (0, 0);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (mut sender, to, end) = (dev.sender("client"), to.local_addr(), &end);
            scope.spawn(move || {
                while !end.load(Relaxed) {
                    offer(&mut sender, client, to);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let mut idle = 0;
        while idle < 5 {
            end.fetch_or(began.elapsed() >= Duration::from_secs(1), Relaxed);
            receiver.wait(Some(Duration::from_millis(50))).unwrap();
            let mut batch = PacketList::new();
            receiver.receive(64, &mut buffers, &mut batch).unwrap();
            packets += batch.len() as u64;
            bytes += batch.bytes();
            let may = began.elapsed().as_secs_f64() * BYTES_PER_SECOND + BURST + 2400.0;
            assert!(bytes as f64 <= may, "{root}: {bytes} bytes, not {may:.0}, in {:?}", began.elapsed());
            idle = if batch.is_empty() && end.load(Relaxed) && dev.is_idle() { idle + 1 } else { 0 };
        }
    });
    let stats = assert_conserved(&dev);
    assert_eq!(stats.sent + stats.dropped.total(), stats.accepted, "{root}");
    // A socket counts the datagrams that it has lost with the next one.
    for _ in 0..100 {
        let mut sender = receiving.sender("last");
        let packet = udp::packet(&mut sender, to.local_addr(), b"last").unwrap();
        let _ = sender.xmit(packet);
        receiver.wait(Some(Duration::from_millis(200))).unwrap();
        let mut batch = PacketList::new();
        if receiver.receive(64, &mut buffers, &mut batch).unwrap() > 0 {
            break;
        }
    }
    assert_eq!(packets + receiver.stats().missed, stats.sent, "{root}");
    assert_eq!(counters.read().datagrams, stats.sent);
}

#[test]
fn tbf_keeps_the_rate() {
    check("tbf rate 20mbit burst 20k latency 50ms", |_| {});
}

#[test]
fn tbf_over_fq_codel_keeps_the_rate() {
    check("handle 1: tbf rate 20mbit burst 20k latency 50ms", |dev| {
        dev.tc("qdisc add parent 1:1 handle 10: fq_codel limit 200").unwrap();
    });
}

#[test]
fn htb_over_fq_codel_keeps_the_rate() {
    check("handle 1: htb default 10", |dev| {
        dev.tc("class add parent 1: classid 1:10 htb rate 20mbit burst 20k cburst 20k").unwrap();
        dev.tc("qdisc add parent 1:10 handle 10: fq_codel limit 200").unwrap();
    });
}

#[test]
fn cake_keeps_the_rate() {
    check("cake bandwidth 20mbit", |_| {});
}
