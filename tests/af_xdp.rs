//! The AF_XDP driver on a veth pair, in copy mode: the frames that arrive, the kernel's counters and the library's counters
//! must agree, and every buffer must return to the pool, also while interfaces go down, disappear or lose their program.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support {
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod receiver;
    pub(crate) mod skip;
}

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::netns::Netns;
use support::process::{Running, wait_until};
use support::receiver::Receiver;
use support::skip::{require_af_xdp, require_root, require_tools};
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::pool::{Pool, PoolConfig};
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::af_xdp::{self, Attach, Mode};
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

#[test]
fn one_and_two_queues_send_everything_in_order() {
    const EACH: u32 = 5000;
    let Some(bench) = Bench::new("one_and_two_queues_send_everything_in_order", 2) else { return };
    let mut sent = 0;
    for queues in [1, 2] {
        let receiver = Receiver::start(&bench.far, "rx0");
        let qdisc = if queues == 1 { "pfifo limit 100000" } else { "mq" };
        let dev = bench.start(config(queues), |b| b.qdisc(qdisc).default_qdisc("pfifo limit 100000"));
        thread::scope(|scope| {
            for id in 0..3_u8 {
                let mut sender = dev.sender(&format!("s{id}"));
                sender.set_limit(500);
                scope.spawn(move || send(&mut sender, id, 0..EACH));
            }
        });
        assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
        let stats = dev.audit().unwrap();
        assert_eq!(stats.sent, u64::from(3 * EACH));
        sent += stats.sent;
        assert_eq!(counters(&bench.near)[0] - bench.before[0], sent);
        assert!(wait_until(WITHIN, || receiver.count() >= u64::from(3 * EACH)));
        let frames = receiver.finish();
        (0..3).for_each(|id| check_frames(&frames, id, 0..EACH));
        drop(dev);
        bench.check_pool();
    }
}

#[test]
fn an_interface_that_goes_down_fills_the_ring_and_loses_nothing() {
    let test = "an_interface_that_goes_down_fills_the_ring_and_loses_nothing";
    let Some(bench) = Bench::new(test, 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let ring = AfXdpConfig { ring: 64, ..config(1) };
    let dev = bench.start(ring, |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..100);
    assert_eq!(bench.check_idle(&dev), 100);
    bench.near.ip("link set tx0 down");
    send(&mut sender, 0, 100..400);
    thread::sleep(Duration::from_millis(50));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.dropped.total(), stats.accepted), (0, 400));
    // The ring has 64 of them, and is full; the others are in the qdisc.
    assert_eq!(stats.sent + stats.queued, 400);
    assert!(stats.queued >= 236, "{stats:?}");
    bench.near.ip("link set tx0 up");
    assert_eq!(bench.check_idle(&dev), 400);
    assert!(wait_until(WITHIN, || receiver.count() >= 400));
    check_frames(&receiver.finish(), 0, 0..400);
    drop(sender);
    drop(dev);
    bench.check_pool();
}

#[test]
fn without_a_carrier_packets_wait_after_the_first() {
    let Some(bench) = Bench::new("without_a_carrier_packets_wait_after_the_first", 1) else { return };
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    bench.far.ip("link set rx0 down");
    send(&mut sender, 0, 0..200);
    thread::sleep(Duration::from_millis(100));
    let dropped = counters(&bench.near)[2] - bench.before[2];
    assert!(dropped <= 2, "{dropped} are lost");
    bench.far.ip("link set rx0 up");
    assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
    let now = counters(&bench.near);
    let [packets, _, dropped] = [0, 1, 2].map(|i| now[i] - bench.before[i]);
    assert_eq!((dev.audit().unwrap().sent, packets + dropped), (200, 200));
    assert!(dropped <= 2, "{dropped} are lost");
}

#[test]
fn an_interface_that_is_deleted_under_traffic_is_reported() {
    let Some(bench) = Bench::new("an_interface_that_is_deleted_under_traffic_is_reported", 2) else { return };
    let mut dev = bench.start(config(2), |b| b.qdisc("mq").default_qdisc("pfifo limit 10000"));
    thread::scope(|scope| {
        for id in 0..2_u8 {
            let mut sender = dev.sender(&format!("s{id}"));
            sender.set_limit(500);
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_millis(300);
                for number in (0..).step_by(50).take_while(|_| Instant::now() < end) {
                    send(&mut sender, id, number..number + 50);
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        bench.near.ip("link del tx0");
    });
    assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
    let stats = dev.audit().unwrap();
    assert!(stats.sent > 0 && stats.dropped.get(DropReason::DevReady) > 0, "{stats:?}");
    let told = dev.shutdown().unwrap_err().to_string();
    assert!(told.contains("of interface \"tx0\" is gone: its packets are dropped ("), "{told}");
    drop(dev);
    bench.check_pool();
}

#[test]
fn an_interface_that_is_deleted_while_idle_drops_packets() {
    let Some(bench) = Bench::new("an_interface_that_is_deleted_while_idle_drops_packets", 1) else { return };
    let mut dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..10);
    assert_eq!(bench.check_idle(&dev), 10);
    bench.near.ip("link del tx0");
    send(&mut sender, 0, 10..30);
    assert!(dev.drain(WITHIN));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::DevReady)), (10, 20));
    let told = dev.shutdown().unwrap_err().to_string();
    assert!(told.starts_with("queue 0 of interface \"tx0\" is gone: its packets are dropped ("), "{told}");
    dev.shutdown().unwrap();
}

#[test]
fn packets_in_the_ring_return_to_the_pool_when_the_device_ends() {
    let test = "packets_in_the_ring_return_to_the_pool_when_the_device_ends";
    let Some(bench) = Bench::new(test, 1) else { return };
    bench.near.ip("link set tx0 down");
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..500);
    assert!(bench.pool.in_use().values().sum::<usize>() == 500 || cfg!(not(debug_assertions)));
    drop(sender);
    drop(dev);
    bench.check_pool();
}

#[test]
fn packets_of_another_pool_are_copied() {
    let Some(bench) = Bench::new("packets_of_another_pool_are_copied", 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let other = Pool::new(&PoolConfig { buffers: 2000, ..PoolConfig::default() }).unwrap();
    let device = bench.open(AfXdpConfig { ring: 128, ..config(1) });
    let dev = NetDev::builder(device).pool(other.clone()).qdisc("pfifo limit 10000").start().unwrap();
    let mut sender = dev.sender("s");
    sender.set_limit(500);
    send(&mut sender, 0, 0..3000);
    assert_eq!(bench.check_idle(&dev), 3000);
    assert!(wait_until(WITHIN, || receiver.count() >= 3000));
    check_frames(&receiver.finish(), 0, 0..3000);
    bench.near.ip("link set tx0 down");
    send(&mut sender, 0, 0..200);
    drop(sender);
    drop(dev);
    assert_eq!(other.in_use(), BTreeMap::new());
    bench.check_pool();
}

#[test]
fn frames_that_cannot_be_sent_are_dropped_and_the_others_go() {
    let test = "frames_that_cannot_be_sent_are_dropped_and_the_others_go";
    let Some(bench) = Bench::new(test, 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    assert_eq!((dev.info().mtu, dev.info().name.as_str()), (1500, "tx0"));
    let mut sender = dev.sender("s");
    let mut batch = PacketList::new();
    for (number, len) in (0..).zip([60, 1800, 1514, 5, 0, 60, 1515, 14]) {
        batch.push_back(sender.packet(&frame(0, number, len)).unwrap());
    }
    let _ = sender.xmit_batch(&mut batch);
    assert_eq!(bench.check_idle(&dev), 4);
    let stats = dev.stats();
    let dropped = [DropReason::PktTooBig, DropReason::HdrTrunc].map(|reason| stats.dropped.get(reason));
    assert_eq!(dropped, [2, 2]);
    assert!(wait_until(WITHIN, || receiver.count() >= 4));
    let lengths: Vec<usize> = receiver.finish().iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, 1514, 60, 14]);
}

/// Sends every received frame back until `count` have come; returns them.
fn echo(receiver: &mut af_xdp::Receiver, sender: &mut Sender, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut batch) = (Vec::new(), PacketList::new());
    let end = Instant::now() + WITHIN;
    while frames.len() < count && Instant::now() < end {
        if receiver.receive(64, sender, &mut batch).unwrap() == 0 {
            receiver.wait(Some(Duration::from_millis(10))).unwrap();
        }
        frames.extend(batch.iter().map(|packet| packet.data().to_vec()));
        assert!(batch.iter().all(|packet| packet.rx_queue() == Some(0)));
        let _ = sender.xmit_batch(&mut batch);
    }
    frames
}

#[test]
fn frames_are_received_and_sent_back_without_a_copy() {
    let Some(bench) = Bench::new("frames_are_received_and_sent_back_without_a_copy", 1) else { return };
    for attach in [None, Some(Attach::Driver), Some(Attach::Generic)] {
        let config = AfXdpConfig { attach, ring: 1024, ..config(1) };
        let (dev, mut sender, mut receiver) = bench.receive(config, bench.pool.clone());
        let (injector, back) = (bench.injector(), Receiver::start(&bench.far, "rx0"));
        let mut from = injector.sender("far");
        // More than the buffers of the pool, in portions that fit into the ring.
        let mut frames = Vec::new();
        for portion in 0..40_u32 {
            send(&mut from, 7, portion * 500..(portion + 1) * 500);
            frames.extend(echo(&mut receiver, &mut sender, 500));
        }
        check_frames(&frames, 7, 0..20_000);
        assert!(wait_until(WITHIN, || back.count() >= 20_000), "{} came back", back.count());
        check_frames(&back.finish(), 7, 0..20_000);
        assert!(dev.drain(WITHIN));
        assert_eq!(dev.audit().unwrap().sent, 20_000);
        let stats = receiver.stats();
        assert_eq!((stats.packets, stats.missed, stats.too_long), (20_000, 0, 0), "{stats:?}");
        assert_eq!(stats.bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        drop((receiver, sender, dev));
        bench.check_pool();
    }
}

#[test]
fn frames_are_copied_for_a_sender_of_another_pool() {
    let Some(bench) = Bench::new("frames_are_copied_for_a_sender_of_another_pool", 1) else { return };
    let other = Pool::new(&PoolConfig { room: 1600, ..PoolConfig::default() }).unwrap();
    let (dev, mut sender, mut receiver) = bench.receive(config(1), other.clone());
    let (injector, back) = (bench.injector(), Receiver::start(&bench.far, "rx0"));
    let mut from = injector.sender("far");
    for portion in 0..20_u32 {
        send(&mut from, 7, portion * 500..(portion + 1) * 500);
        assert_eq!(echo(&mut receiver, &mut sender, 500).len(), 500);
    }
    assert!(wait_until(WITHIN, || back.count() >= 10_000), "{} came back", back.count());
    check_frames(&back.finish(), 7, 0..10_000);
    assert!(dev.drain(WITHIN));
    drop((receiver, sender, dev));
    bench.check_pool();
    assert_eq!(other.in_use(), BTreeMap::new());
}

#[test]
fn without_a_receiver_the_kernel_gets_the_frames() {
    let Some(bench) = Bench::new("without_a_receiver_the_kernel_gets_the_frames", 1) else { return };
    let mut device = bench.open(AfXdpConfig { receive: true, ..config(1) });
    let mut receiver = device.receivers().remove(0);
    let dev = NetDev::builder(device).pool(bench.pool.clone()).start().unwrap();
    let (injector, mut sender) = (bench.injector(), dev.sender("s"));
    let mut from = injector.sender("far");
    let program = || bench.near.ip("link show dev tx0").contains("prog/xdp");
    assert!(program(), "no program is attached");
    let kernel = Receiver::start(&bench.near, "tx0");
    send(&mut from, 7, 0..10);
    assert!(wait_until(WITHIN, || kernel.count() == 10));
    assert_eq!(receiver.receive(64, &mut sender, &mut PacketList::new()).unwrap(), 0);
    send(&mut from, 7, 10..20);
    assert_eq!(echo(&mut receiver, &mut sender, 10).len(), 10);
    assert_eq!(kernel.count(), 10);
    drop(receiver);
    assert!(wait_until(WITHIN, || !program()), "the program is still attached");
    send(&mut from, 7, 20..30);
    assert!(wait_until(WITHIN, || kernel.count() == 20));
    drop(kernel);
    drop((sender, dev));
    bench.check_pool();
}

#[test]
fn a_receiver_reports_that_its_interface_is_gone() {
    let Some(bench) = Bench::new("a_receiver_reports_that_its_interface_is_gone", 1) else { return };
    let (dev, sender, mut receiver) = bench.receive(config(1), bench.pool.clone());
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
    bench.near.ip("link set tx0 down");
    let error = receiver.wait(Some(Duration::from_millis(1))).unwrap_err().to_string();
    assert!(error.starts_with("queue 0 of interface \"tx0\" is down"), "{error}");
    bench.near.ip("link del tx0");
    let error = receiver.wait(Some(Duration::from_millis(1))).unwrap_err().to_string();
    assert!(error.starts_with("queue 0 of interface \"tx0\" is gone"), "{error}");
    drop((receiver, sender, dev));
    bench.check_pool();
}

/// Not a test of its own: the process that is killed below.
#[test]
fn child_that_is_killed() {
    if std::env::var_os("TXQ_AF_XDP_CHILD").is_none() {
        return;
    }
    let pool = Pool::new(&AfXdp::pool_config(4096)).unwrap();
    let mut device = AfXdpConfig { receive: true, ..config(1) }.open(&pool).unwrap();
    let mut receiver = device.receivers().remove(0);
    let dev = NetDev::builder(device).pool(pool).start().unwrap();
    let mut sender = dev.sender("child");
    receiver.receive(64, &mut sender, &mut PacketList::new()).unwrap();
    eprintln!("child is ready");
    loop {
        send(&mut sender, 0, 0..50);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_kill_the_program_is_detached_and_the_next_start_works() {
    let test = "after_a_kill_the_program_is_detached_and_the_next_start_works";
    let Some(bench) = Bench::new(test, 1) else { return };
    for _ in 0..3 {
        let exe = std::env::current_exe().unwrap();
        let mut command = bench.near.command(exe.to_str().unwrap());
        command.args(["--exact", "child_that_is_killed", "--nocapture"]).env("TXQ_AF_XDP_CHILD", "1");
        let mut child = Running::start(&mut command);
        child.wait_for_text("child is ready", WITHIN);
        assert!(bench.near.ip("link show dev tx0").contains("prog/xdp"));
        child.signal(libc::SIGKILL);
        assert_eq!(child.finish(WITHIN).status.code(), None);
        let detached = || !bench.near.ip("link show dev tx0").contains("prog/xdp");
        assert!(wait_until(WITHIN, detached), "the program is still attached");
        let (dev, mut sender, mut receiver) = bench.receive(config(1), bench.pool.clone());
        let injector = bench.injector();
        send(&mut injector.sender("far"), 7, 0..10);
        check_frames(&echo(&mut receiver, &mut sender, 10), 7, 0..10);
        drop((receiver, sender, dev));
        bench.check_pool();
    }
}

#[test]
fn a_veth_falls_back_to_copies() {
    let Some(bench) = Bench::new("a_veth_falls_back_to_copies", 1) else { return };
    let device = bench.open(AfXdpConfig { receive: true, ..config(1) });
    assert_eq!((device.mode(), device.attached()), (Mode::Copy, Some(Attach::Driver)));
    drop(device);
    let device = bench.open(AfXdpConfig { mode: Some(Mode::Copy), ..config(1) });
    assert_eq!((device.mode(), device.attached()), (Mode::Copy, None));
    drop(device);
    let pool = bench.pool.clone();
    let forced = AfXdpConfig { mode: Some(Mode::ZeroCopy), ..config(1) };
    let error = bench.near.call(move || forced.open(&pool).unwrap_err().to_string());
    assert!(error.contains("huge pages") || error.contains("has no zero-copy AF_XDP"), "{error}");
    bench.check_pool();
}

#[test]
fn a_queue_in_use_is_reported() {
    let Some(bench) = Bench::new("a_queue_in_use_is_reported", 2) else { return };
    let first = bench.open(config(1));
    let open = |config: AfXdpConfig| {
        let pool = bench.pool.clone();
        bench.near.call(move || config.open(&pool).map(drop).map_err(|error| error.to_string()))
    };
    let error = open(config(2)).unwrap_err();
    assert!(
        error
            .starts_with("queue 0 of interface \"tx0\" is in use by another AF_XDP socket: end that program"),
        "{error}"
    );
    // The other queue is free, and the failed attempt has left nothing behind.
    open(AfXdpConfig { first_queue: 1, ..config(1) }).unwrap();
    drop(first);
    open(AfXdpConfig { receive: true, ..config(2) }).unwrap();
    let held = bench.open(AfXdpConfig { receive: true, ..config(1) });
    let error = open(AfXdpConfig { receive: true, first_queue: 1, ..config(1) }).unwrap_err();
    assert!(error.starts_with("interface \"tx0\" has another XDP program: "), "{error}");
    drop(held);
    bench.check_pool();
}

#[test]
fn a_device_that_cannot_be_is_refused_at_once() {
    let Some(bench) = Bench::new("a_device_that_cannot_be_is_refused_at_once", 2) else { return };
    let small = Pool::new(&PoolConfig { room: 100, ..PoolConfig::default() }).unwrap();
    let open = |config: AfXdpConfig, pool: &Pool| {
        let pool = pool.clone();
        bench.near.call(move || config.open(&pool).unwrap_err().to_string())
    };
    for (config, pool, begin) in [
        (AfXdpConfig::new("nowhere0", 1), &bench.pool, "there is no interface \"nowhere0\": `ip link`"),
        (
            config(3),
            &bench.pool,
            "interface \"tx0\" has 2 tx and 2 rx queues, and queues 0 to 2 are asked for",
        ),
        (AfXdpConfig { first_queue: 2, ..config(1) }, &bench.pool, "interface \"tx0\" has 2 tx"),
        (config(0), &bench.pool, "interface \"tx0\" with 0 queues"),
        (AfXdpConfig { ring: 1000, ..config(1) }, &bench.pool, "a ring of 1000 packets: use a power of two"),
        (AfXdpConfig { receive: true, ..config(1) }, &small, "the pool's buffers of 320 bytes are too small"),
    ] {
        let error = open(config, pool);
        assert!(error.starts_with(begin), "{error}");
    }
    // A pool of small buffers can send.
    let device = bench.near.call(move || AfXdp::open("tx0", 2, &small));
    drop(device.unwrap());
    bench.check_pool();
}

#[test]
fn without_permission_the_remedy_is_told() {
    let Some(bench) = Bench::new("without_permission_the_remedy_is_told", 1) else { return };
    let open = |missing: CapabilitySet, receive: bool| {
        let (pool, config) = (bench.pool.clone(), AfXdpConfig { receive, ..config(1) });
        // Capabilities belong to a thread.
        bench.near.call(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(missing);
            set_capabilities(None, sets).unwrap();
            config.open(&pool).unwrap_err()
        })
    };
    let error = open(CapabilitySet::NET_RAW, false);
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("interface \"tx0\" is not permitted"), "{error}");
    assert!(error.to_string().contains("setcap cap_net_raw"), "{error}");
    let error = open(CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::SYS_ADMIN, true);
    assert!(error.to_string().contains("setcap cap_net_admin,cap_net_raw,cap_bpf"), "{error}");
    bench.check_pool();
}
