//! The AF_XDP driver on a veth pair, in copy mode: the frames that arrive, the kernel's counters and the library's counters
//! must agree, and every buffer must return to the pool, also while interfaces go down, disappear or lose their program.

#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../support"]
mod support {
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod receiver;
    pub(crate) mod skip;
}

mod errors;
mod offload;
mod receive;
mod send;

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use support::netns::Netns;
use support::skip::{require_af_xdp, require_root, require_tools};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::pool::Pool;
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::af_xdp;
use txq_device::{AfPacket, AfXdp, AfXdpConfig};

const WITHIN: Duration = Duration::from_secs(5);

/// A veth pair, tx0 here and rx0 there, and a pool.
struct Bench {
    near: Netns,
    far: Netns,
    pool: Pool,
    /// `tx_packets`, `tx_bytes` and `tx_dropped` of tx0 at the beginning.
    before: [u64; 3],
}

impl Bench {
    /// Returns `None` if the machine cannot run the test.
    fn new(test: &str, queues: u32) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip"]) && require_af_xdp(test)) {
            return None;
        }
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", queues);
        let before = counters(&near);
        Some(Self { near, far, pool: Pool::new(&AfXdp::pool_config(8192)).unwrap(), before })
    }

    /// Opens the device as configured, with its pool.
    fn open(&self, config: AfXdpConfig) -> AfXdp {
        let pool = self.pool.clone();
        self.near.call(move || config.open(&pool).unwrap())
    }

    /// Starts the device as configured, with its pool.
    fn start(&self, config: AfXdpConfig, set: impl Fn(Builder) -> Builder) -> NetDev {
        set(NetDev::builder(self.open(config)).pool(self.pool.clone())).start().unwrap()
    }

    /// Opens the device to receive on one queue; takes its frames from the kernel. Returns it with its receiver and a batch of
    /// the frames that came first.
    fn receive(&self, config: AfXdpConfig, pool: Pool) -> (NetDev, Sender, af_xdp::Receiver) {
        let mut device = self.open(AfXdpConfig { receive: true, ..config });
        let mut receiver = device.receivers().remove(0);
        assert!(device.receivers().is_empty());
        let dev = NetDev::builder(device).pool(pool).qdisc("pfifo limit 10000").start().unwrap();
        let mut sender = dev.sender("echo");
        assert!(receiver.wait(Some(Duration::ZERO)).unwrap(), "a first call is due");
        receiver.receive(64, &mut sender, &mut PacketList::new()).unwrap();
        (dev, sender, receiver)
    }

    /// Starts a device that sends at the other end.
    fn injector(&self) -> NetDev {
        // Its socket belongs to the namespace of the thread that starts the device.
        let start = || NetDev::builder(AfPacket::open("rx0", 1).unwrap()).qdisc("pfifo limit 10000").start();
        self.far.call(move || start().unwrap())
    }

    /// Checks that the counters add up, no packet is outstanding, and that the sent packets and bytes equal those that left
    /// the interface. Returns the packets sent.
    #[track_caller]
    fn check_idle(&self, dev: &NetDev) -> u64 {
        assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
        let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
        let now = counters(&self.near);
        let [packets, bytes, dropped] = [0, 1, 2].map(|i| now[i] - self.before[i]);
        assert_eq!(dropped, 0, "{stats:?}");
        assert_eq!((stats.sent, stats.bytes_sent), (packets, bytes), "{stats:?}");
        stats.sent
    }

    #[track_caller]
    fn check_pool(&self) {
        assert_eq!(self.pool.in_use(), BTreeMap::new());
    }
}

fn counters(near: &Netns) -> [u64; 3] {
    let link: serde_json::Value = serde_json::from_str(&near.ip("-s -j link show dev tx0")).unwrap();
    ["packets", "bytes", "dropped"].map(|key| link[0]["stats64"]["tx"][key].as_u64().unwrap())
}

fn config(queues: u16) -> AfXdpConfig {
    AfXdpConfig::new("tx0", queues)
}

/// Returns a frame of an experimental protocol that carries its sender, its number, and bytes that follow from both.
fn frame(sender: u8, number: u32, len: usize) -> Vec<u8> {
    let head =
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, sender], &[0x88, 0xb5, sender], &number.to_be_bytes()].concat();
    let rest = (0..).map(|i: u32| (i.wrapping_mul(31) ^ number) as u8);
    head.into_iter().chain(rest).take(len).collect()
}

/// Returns the frame of a number, of a length that follows from it.
fn nth(sender: u8, number: u32) -> Vec<u8> {
    frame(sender, number, 60 + number as usize * 7 % 1450)
}

fn send(sender: &mut Sender, id: u8, numbers: Range<u32>) {
    for number in numbers {
        let packet = loop {
            match sender.packet(&nth(id, number)) {
                Ok(packet) => break packet,
                Err(_) => thread::yield_now(),
            }
        };
        let _ = sender.xmit(packet);
    }
}

/// Checks that the frames of a sender arrived in order and byte for byte.
#[track_caller]
fn check_frames(frames: &[Vec<u8>], id: u8, numbers: Range<u32>) {
    let arrived: Vec<&Vec<u8>> = frames.iter().filter(|frame| frame[14] == id).collect();
    assert_eq!(arrived.len(), numbers.len(), "frames of sender {id}");
    for (frame, number) in arrived.into_iter().zip(numbers) {
        assert_eq!(*frame, nth(id, number), "sender {id}, frame {number}");
    }
}
