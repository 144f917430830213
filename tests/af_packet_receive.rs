//! Receiving through AF_PACKET on a veth pair: each frame once, byte for byte, tags included, each flow in order.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support {
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
}

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::netns::Netns;
use support::skip::{require_root, require_tools};
use txq::NetDev;
use txq::packet::PacketList;
use txq::receive::{BusyPoll, Receive, RxStats};
use txq_device::af_packet::Receiver;
use txq_device::{AfPacket, Null};

const FLOWS: u16 = 16;
const PACKETS: u16 = 1600;

/// Returns a UDP frame of one of several flows, every third one with a VLAN tag.
fn frame(number: u16) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    if number.is_multiple_of(3) {
        frame.extend([0x81, 0, 0x60, 5]);
    }
    let payload = 8 + usize::from(number) * 7 % 1300;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((1000 + number % FLOWS).to_be_bytes());
    frame.extend([0, 9]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(frame.len() + payload - 2, number as u8);
    frame
}

/// The number of a frame, behind all its headers.
fn number(frame: &[u8]) -> u16 {
    let at = if frame[12] == 0x81 { 46 } else { 42 };
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

struct Bench {
    near: Netns,
    far: Netns,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip"])) {
            return None;
        }
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", 1);
        Some(Self { near, far })
    }

    /// Opens receivers of the other end, whose frames come in blocks or by messages.
    fn receivers(&self, n: u16, blocks: bool) -> Vec<Receiver> {
        let receivers: Vec<Receiver> =
            self.far.call(move || AfPacket::open("rx0", 1).unwrap().blocks(blocks).receivers(n).unwrap());
        assert!(receivers.iter().all(|receiver| receiver.has_blocks() == blocks));
        receivers
    }

    fn sender(&self) -> NetDev {
        self.near.call(|| {
            NetDev::builder(AfPacket::open("tx0", 1).unwrap()).qdisc("pfifo limit 10000").start().unwrap()
        })
    }

    fn send(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let dev = self.sender();
        let mut sender = dev.sender("near");
        for bytes in frames {
            let packet = loop {
                match sender.packet(&bytes) {
                    Ok(packet) => break packet,
                    Err(_) => std::thread::yield_now(),
                }
            };
            let _ = sender.xmit(packet);
        }
        drop(sender);
        assert!(dev.drain(Duration::from_secs(30)));
        assert_eq!(dev.audit().unwrap().dropped.total(), 0);
    }
}

/// Receives until `n` frames have arrived at the receivers together or were missed; returns the frames of each, and its counters.
fn receive(mut receivers: Vec<impl Receive>, n: usize) -> Vec<(Vec<Vec<u8>>, RxStats)> {
    // Its sender lends the buffers.
    let dev = NetDev::builder(Null::new(1)).start().unwrap();
    let mut sender = dev.sender("far");
    let mut frames: Vec<Vec<Vec<u8>>> = receivers.iter().map(|_| Vec::new()).collect();
    let end = Instant::now() + Duration::from_secs(30);
    let missed =
        |receivers: &[_]| receivers.iter().map(|receiver| Receive::stats(receiver).missed).sum::<u64>();
    while frames.iter().map(Vec::len).sum::<usize>() + (missed(&receivers) as usize) < n
        && Instant::now() < end
    {
        for (queue, (receiver, frames)) in receivers.iter_mut().zip(&mut frames).enumerate() {
            let mut batch = PacketList::new();
            let got = receiver.receive(50, &mut sender, &mut batch).unwrap();
            assert_eq!(got, batch.len());
            assert!(got <= 50);
            for packet in batch.iter() {
                assert_eq!(packet.rx_queue(), Some(queue as u16));
                frames.push(packet.data().to_vec());
            }
        }
    }
    let stats: Vec<RxStats> = receivers.iter().map(Receive::stats).collect();
    drop((receivers, sender));
    assert_eq!(dev.pool().in_use(), Default::default());
    frames.into_iter().zip(stats).collect()
}

#[test]
fn receivers_share_the_flows() {
    let Some(bench) = Bench::new("receivers_share_the_flows") else { return };
    for (n, blocks) in [(1, false), (3, false), (1, true), (3, true)] {
        let receivers = bench.receivers(n, blocks);
        bench.send((0..PACKETS).map(frame));
        let found = receive(receivers, PACKETS.into());
        let mut owners = BTreeMap::new();
        let (mut seen, mut missed) = (Vec::new(), 0);
        for (queue, (frames, stats)) in found.iter().enumerate() {
            let bytes: usize = frames.iter().map(Vec::len).sum();
            assert_eq!((stats.packets, stats.bytes), (frames.len() as u64, bytes as u64));
            // The kernel misses frames while another CPU closes a block.
            assert!(blocks || stats.missed == 0, "{} were missed", stats.missed);
            missed += stats.missed;
            assert_eq!((stats.too_long, stats.malformed), (0, 0));
            let mut last = BTreeMap::new();
            for bytes in frames {
                let number = number(bytes);
                assert_eq!(bytes, &frame(number), "frame {number}");
                // The kernel distinguishes flows with a tag from those without.
                let flow = (number % FLOWS, number.is_multiple_of(3));
                assert_eq!(*owners.entry(flow).or_insert(queue), queue, "a flow has one receiver");
                assert!(last.insert(flow, number).is_none_or(|last| last < number), "order of {flow:?}");
                seen.push(number);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen.len() as u64 + missed, u64::from(PACKETS));
        seen.dedup();
        assert_eq!(seen.len() as u64 + missed, u64::from(PACKETS), "none comes twice");
    }
}

/// A frame of a jumbo interface that no buffer holds is counted, and the next one is received.
#[test]
fn a_frame_longer_than_a_buffer_is_counted() {
    for blocks in [false, true] {
        let Some(bench) = Bench::new("a_frame_longer_than_a_buffer_is_counted") else { return };
        a_frame_longer_than_a_buffer_is_counted_by(blocks, &bench);
    }
}

fn a_frame_longer_than_a_buffer_is_counted_by(blocks: bool, bench: &Bench) {
    for (namespace, name) in [(&bench.near, "tx0"), (&bench.far, "rx0")] {
        namespace.ip(&format!("link set {name} mtu 9000"));
    }
    let receivers = bench.receivers(1, blocks);
    let mut sent = bench.near.call(|| {
        let pool = txq::pool::PoolConfig { room: 9100, ..Default::default() };
        NetDev::builder(AfPacket::open("tx0", 1).unwrap()).pool_config(pool).start().unwrap()
    });
    let mut sender = sent.sender("near");
    for bytes in [vec![0xff; 8000], frame(1)] {
        let packet = sender.packet(&bytes).unwrap();
        let _ = sender.xmit(packet);
    }
    drop(sender);
    sent.shutdown().unwrap();
    let found = receive(receivers, 1);
    if blocks && found[0].1.missed > 0 {
        // The kernel may miss the second frame while it closes the block of the first.
        return;
    }
    assert_eq!((found[0].0.as_slice(), found[0].1.too_long), (&[frame(1)][..], 1));
}

/// A frame with segments that no buffer holds is cut into more packets than one call may return: the next calls return the
/// others, and `wait` says that they are there.
#[test]
fn a_call_returns_no_more_packets_than_its_budget() {
    for blocks in [false, true] {
        let Some(bench) = Bench::new("a_call_returns_no_more_packets_than_its_budget") else { return };
        a_call_returns_no_more_packets_than_its_budget_by(blocks, &bench);
    }
}

fn a_call_returns_no_more_packets_than_its_budget_by(blocks: bool, bench: &Bench) {
    const SEGMENTS: u16 = 25;
    const SIZE: u16 = 1000;
    let mut receiver = bench.receivers(1, blocks).remove(0);
    let mut sent = bench.near.call(|| {
        let pool = txq::pool::PoolConfig { room: 32_000, ..Default::default() };
        let device = AfPacket::open("tx0", 1).unwrap().gso(true);
        NetDev::builder(device).pool_config(pool).start().unwrap()
    });
    let mut sender = sent.sender("near");
    let bytes = segments(SEGMENTS, SIZE);
    let mut packet = sender.packet(&bytes).unwrap();
    packet.set_gso(SIZE, SEGMENTS);
    let _ = sender.xmit(packet);
    drop(sender);
    sent.shutdown().unwrap();

    let dev = NetDev::builder(Null::new(1)).start().unwrap();
    let mut sender = dev.sender("far");
    let mut payload = Vec::new();
    let mut received = 0;
    while received < usize::from(SEGMENTS) {
        let mut batch = PacketList::new();
        assert!(receiver.wait(Some(Duration::from_secs(30))).unwrap());
        // On a busy machine not all of them have arrived yet.
        let got = receiver.receive(10, &mut sender, &mut batch).unwrap();
        assert!(got <= 10 && batch.len() == got, "{got} packets, {} in the batch", batch.len());
        received += got;
        batch.iter().for_each(|packet| payload.extend_from_slice(&packet.data()[HEADERS..]));
    }
    assert_eq!(payload, bytes[HEADERS..]);
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
    assert_eq!(Receive::stats(&receiver).packets, u64::from(SEGMENTS));
}

/// Length of the headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Returns a frame of UDP datagrams that are to be cut.
fn segments(n: u16, size: u16) -> Vec<u8> {
    let mut bytes = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 0, 0x45, 0]].concat();
    bytes.extend((28 + n * size).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9]);
    bytes.extend((8 + n * size).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((0..n * size).map(|byte| (byte % 251) as u8));
    bytes
}

#[test]
fn an_interface_that_goes_down_says_so_and_comes_back() {
    for blocks in [false, true] {
        let Some(bench) = Bench::new("an_interface_that_goes_down_says_so_and_comes_back") else { return };
        an_interface_that_goes_down_says_so_and_comes_back_by(blocks, &bench);
    }
}

fn an_interface_that_goes_down_says_so_and_comes_back_by(blocks: bool, bench: &Bench) {
    let mut receiver = bench.receivers(1, blocks).remove(0);
    let dev = NetDev::builder(Null::new(1)).start().unwrap();
    let (mut sender, mut batch) = (dev.sender("far"), PacketList::new());
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
    assert_eq!(receiver.receive(10, &mut sender, &mut batch).unwrap(), 0);
    bench.far.ip("link set rx0 down");
    assert!(receiver.wait(Some(Duration::from_secs(10))).unwrap());
    let error = receiver.receive(10, &mut sender, &mut batch).unwrap_err().to_string();
    assert_eq!(error, "interface \"rx0\" is down: `ip link set rx0 up` starts it");
    bench.far.ip("link set rx0 up");
    bench.near.wait_carrier("tx0");
    bench.send([frame(7)]);
    assert!(receiver.wait(Some(Duration::from_secs(10))).unwrap());
    assert_eq!(receiver.receive(10, &mut sender, &mut batch).unwrap(), 1);
    assert_eq!(batch.front().unwrap().data(), frame(7));
}

/// Each frame carries the time at which the kernel received it, tags or not, also in a receiver that polls before it sleeps.
#[test]
fn frames_carry_the_time_at_which_they_came() {
    for blocks in [false, true] {
        let Some(bench) = Bench::new("frames_carry_the_time_at_which_they_came") else { return };
        frames_carry_the_time_at_which_they_came_by(blocks, &bench);
    }
}

fn frames_carry_the_time_at_which_they_came_by(blocks: bool, bench: &Bench) {
    let receiver = bench.receivers(1, blocks).remove(0);
    let mut receiver: Box<dyn Receive> = Box::new(BusyPoll::new(receiver, Duration::from_micros(100)));
    receiver.record_times().unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let dev = NetDev::builder(Null::new(1)).start().unwrap();
    let (mut sender, mut batch) = (dev.sender("far"), PacketList::new());
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
    let mut last = now();
    for number in 0..30 {
        bench.send([frame(number)]);
        let arrived = now();
        while batch.is_empty() {
            assert!(receiver.wait(Some(Duration::from_secs(30))).unwrap());
            receiver.receive(10, &mut sender, &mut batch).unwrap();
        }
        let packet = batch.pop_front().unwrap();
        assert_eq!(packet.data(), frame(number));
        let time = packet.cookie();
        // The kernel may begin to take times a little after it was asked to.
        assert!((last..=now()).contains(&time), "{time} is not within {last} and {arrived}");
        last = time;
    }
}
