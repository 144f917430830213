//! A transmit of several datagrams is split by the qdisc, and joined by the device.

use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::AsyncUdpSocket;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use txq_quinn::Socket;

use crate::shaped::{Device, LONG, pattern, run};

fn transmit(to: SocketAddr, contents: &[u8], segment: usize) -> Transmit<'_> {
    let ecn = Some(EcnCodepoint::Ect0);
    Transmit { destination: to, ecn, contents, segment_size: Some(segment), src_ip: None }
}

/// Receives `len` bytes in datagrams of `segment` bytes; returns them.
async fn receive(socket: &Socket, len: usize, segment: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let mut buffer = vec![0; 65_536];
        let mut meta = [RecvMeta::default()];
        poll_fn(|cx| socket.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)).await.unwrap();
        let [meta] = meta;
        assert_eq!(meta.ecn, Some(EcnCodepoint::Ect0));
        assert!(meta.stride == segment || bytes.len() + meta.len == len, "{meta:?}");
        bytes.extend_from_slice(&buffer[..meta.len]);
    }
    bytes
}

/// Sends a transmit of ten datagrams, of which the last is shorter, and receives it.
fn exchange(near: &Device, far: &Device) -> Arc<Socket> {
    run(2, async {
        let (from, to) = (near.socket(|b| b), far.socket(|b| b));
        let bytes = pattern(1, 9 * 1200 + 700);
        from.try_send(&transmit(to.local_addr().unwrap(), &bytes, 1200)).unwrap();
        assert!(receive(&to, bytes.len(), 1200).await == bytes);
        from
    })
}

#[test]
fn a_bundle_stays_one_message_where_no_gap_is_due() {
    let (near, far) = (Device::new("127.0.0.1:0", "pfifo", 512), Device::new("127.0.0.1:0", "pfifo", 512));
    let socket = exchange(&near, &far);
    // The counters follow the call that sends.
    assert!(near.dev.drain(LONG));
    let counts = near.counters.read();
    assert_eq!((counts.datagrams, counts.messages, counts.joined), (10, 1, 1), "{counts:?}");
    assert_eq!((near.dev.stats().sent, socket.counts().datagrams), (10, 10));
    drop(socket);
    near.finish();
}

/// At 400 kbit/s, packets are 24 ms apart. fq makes up for 1 ms of a late wake, so no two leave together.
#[test]
fn a_bundle_is_split_where_a_gap_is_due() {
    let (near, far) =
        (Device::new("127.0.0.1:0", "fq maxrate 400kbit", 512), Device::new("127.0.0.1:0", "pfifo", 512));
    let socket = exchange(&near, &far);
    // The counters follow the call that sends.
    assert!(near.dev.drain(LONG));
    let counts = near.counters.read();
    assert_eq!((counts.datagrams, counts.messages, counts.joined), (10, 10, 0), "{counts:?}");
    drop(socket);
    near.finish();
}

/// A datagram that no buffer holds is dropped and counted, as one that the system refuses.
#[test]
fn a_datagram_longer_than_a_buffer_is_dropped() {
    let device = Device::new("127.0.0.1:0", "pfifo", 512);
    run(1, async {
        let socket = device.socket(|b| b);
        let to = socket.local_addr().unwrap();
        let long = Transmit { segment_size: None, ..transmit(to, &[0; 3000], 0) };
        socket.try_send(&long).unwrap();
        assert_eq!((socket.counts().too_long, socket.counts().datagrams), (1, 0));
    });
    device.finish();
}
