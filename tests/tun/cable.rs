//! Two interfaces in two namespaces, connected by a program: the kernel's TCP on both ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use txq::packet::PacketList;
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::Tun;
use txq_device::tun::{Config, Receiver};

use crate::support::netns::Netns;
use crate::wire::byte_at;
use crate::{PATIENCE, builder, long_buffers, namespace, open};

const BYTES: usize = 20_000_000;

/// Sends what `queue` receives through `sender` until `done`; counts packets with segments.
fn forward(queue: &mut Receiver, mut sender: Sender, done: &AtomicBool, whole: &AtomicU64) {
    let mut batch = PacketList::new();
    while !done.load(Ordering::Relaxed) {
        if queue.receive(64, &mut sender, &mut batch).unwrap() == 0 {
            queue.wait(Some(Duration::from_millis(5))).unwrap();
            continue;
        }
        whole.fetch_add(batch.iter().filter(|packet| packet.segs() > 1).count() as u64, Ordering::Relaxed);
        let _ = sender.xmit_batch(&mut batch);
    }
}

/// A stream arrives as it was sent, uncut by packets of 64 KiB, or cut; over TUN and TAP.
#[test]
fn a_stream_of_tcp_arrives_as_it_was_sent() {
    let Some(near) = namespace("a_stream_of_tcp_arrives_as_it_was_sent") else { return };
    for (create, is_tap) in [(Tun::create as fn(&str) -> Config, false), (Tun::create_tap, true)] {
        for gro in [true, false] {
            let far = Netns::new();
            let ends = [(&*near, "10.0.0.1"), (&far, "10.0.0.2")];
            let tuns = ends.map(|(netns, address)| {
                let tun = open(create("t0").gro(gro), netns);
                netns.ip(&format!("addr add {address}/24 dev t0"));
                tun
            });
            let queues = tuns.each_ref().map(|tun| tun.receivers().pop().unwrap());
            let device = |tun| builder(tun).qdisc("pfifo limit 1000").pool_config(long_buffers(1000)).start();
            let devs: [NetDev; 2] = tuns.map(|tun| device(tun).unwrap());
            let (done, whole) = (AtomicBool::new(false), AtomicU64::new(0));
            let [mut queue_near, mut queue_far] = queues;
            std::thread::scope(|scope| {
                let [dev_near, dev_far] = devs.each_ref();
                scope.spawn(|| forward(&mut queue_near, dev_far.sender("to far"), &done, &whole));
                scope.spawn(|| forward(&mut queue_far, dev_near.sender("to near"), &done, &whole));
                let result = std::panic::catch_unwind(|| transfer(&near, &far));
                done.store(true, Ordering::Relaxed);
                result.unwrap();
            });
            let whole = whole.load(Ordering::Relaxed);
            assert_eq!(whole > 0, gro, "{whole} packets with segments, TAP: {is_tap}");
            for (dev, queue) in devs.iter().zip([&queue_far, &queue_near]) {
                assert!(dev.drain(PATIENCE));
                let (stats, received) = (dev.audit().unwrap(), queue.stats());
                assert_eq!((stats.accepted, received.malformed, received.too_long), (received.packets, 0, 0));
            }
        }
    }
}

fn transfer(near: &Netns, far: &Netns) {
    let listener = far.call(|| TcpListener::bind("10.0.0.2:80").unwrap());
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = Vec::with_capacity(BYTES);
        stream.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), BYTES);
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == byte_at(at)), "bytes differ");
    });
    let mut stream = near.call(|| TcpStream::connect("10.0.0.2:80").unwrap());
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&(0..BYTES).map(byte_at).collect::<Vec<u8>>()).unwrap();
    drop(stream);
    reader.join().unwrap();
}
