//! The AF_PACKET driver on a veth pair: the kernel's counters, the frames that arrive and the library's counters must
//! agree, also while interfaces go down, come back and disappear.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support {
    pub(crate) mod home;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod receiver;
    pub(crate) mod skip;
}

use std::time::Duration;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::home::assert_home;
use support::netns::{Counters, Netns};
use support::process::wait_until;
use support::receiver::Receiver;
use support::skip::{require_root, require_tools};
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::stats::device::DeviceStats;
use txq::{NetDev, Sender};
use txq_device::AfPacket;

const SECONDS_5: Duration = Duration::from_secs(5);

/// A veth pair: tx0 here and rx0 there.
struct Bench {
    near: Netns,
    far: Netns,
    before: Counters,
}

impl Bench {
    /// Returns `None` if the machine cannot run the test.
    fn new(test: &str) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip", "tc"])) {
            return None;
        }
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", 4);
        let before = near.counters("tx0");
        Some(Self { near, far, before })
    }

    fn start(&self, txqs: u16, set: impl Fn(AfPacket) -> Builder + Send + 'static) -> NetDev {
        self.near.call(move || set(AfPacket::open("tx0", txqs).unwrap()).start().unwrap())
    }

    /// Checks that the counters add up, and that the sent packets and bytes equal those that left the interface.
    #[track_caller]
    fn check(&self, dev: &NetDev) -> DeviceStats {
        let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
        let counted = self.near.counters("tx0").since(self.before);
        assert_eq!((stats.sent, stats.bytes_sent), (counted.tx_packets, counted.tx_bytes), "{stats:?}");
        stats
    }

    /// Checks the same at the end, and that no packet is outstanding and every buffer is home.
    #[track_caller]
    fn check_idle(&self, dev: &NetDev) -> DeviceStats {
        assert!(dev.drain(SECONDS_5), "packets do not leave: {:?}", dev.stats());
        assert_home(dev);
        self.check(dev)
    }
}

/// Returns a frame of an experimental protocol that carries its sender and its number.
fn frame(sender: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    let head =
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, sender], &[0x88, 0xb5, sender], &number.to_be_bytes()].concat();
    let n = head.len().min(len);
    frame[..n].copy_from_slice(&head[..n]);
    frame
}

fn send(sender: &mut Sender, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let packet = sender.packet(&frame(0, number, 100)).unwrap();
        let _ = sender.xmit(packet);
    }
}

/// Returns the numbers of the frames of `sender`, in order of arrival.
fn numbers(frames: &[Vec<u8>], sender: u8) -> Vec<u32> {
    let number = |frame: &&Vec<u8>| u32::from_be_bytes(frame[15..19].try_into().unwrap());
    frames.iter().filter(|frame| frame[14] == sender).map(|frame| number(&frame)).collect()
}

#[test]
fn several_txqs_send_everything_in_order() {
    const EACH: u32 = 5000;
    let Some(bench) = Bench::new("several_txqs_send_everything_in_order") else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let dev =
        bench.start(4, |device| NetDev::builder(device).qdisc("mq").default_qdisc("pfifo limit 100000"));
    std::thread::scope(|scope| {
        for id in 0..4_u8 {
            let mut sender = dev.sender(&format!("s{id}"));
            // All together no more than the list in front of a queue holds: an owner may lack a CPU for long.
            sender.set_limit(250);
            scope.spawn(move || {
                for number in 0..EACH {
                    let packet = loop {
                        match sender.packet(&frame(id, number, 60 + number as usize % 1000)) {
                            Ok(packet) => break packet,
                            Err(_) => std::thread::yield_now(),
                        }
                    };
                    let _ = sender.xmit(packet);
                }
            });
        }
    });
    let stats = bench.check_idle(&dev);
    assert_eq!(stats.sent, u64::from(4 * EACH));
    assert!(wait_until(Duration::from_secs(5), || receiver.count() >= stats.sent));
    let frames = receiver.finish();
    for id in 0..4 {
        assert_eq!(numbers(&frames, id), (0..EACH).collect::<Vec<_>>(), "sender {id}");
    }
}

#[test]
fn an_interface_that_goes_down_loses_nothing() {
    let Some(bench) = Bench::new("an_interface_that_goes_down_loses_nothing") else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let dev = bench.start(1, |device| NetDev::builder(device).qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0..100);
    bench.near.ip("link set tx0 down");
    send(&mut sender, 100..200);
    std::thread::sleep(Duration::from_millis(50));
    let stats = bench.check(&dev);
    assert_eq!((stats.sent, stats.queued), (100, 100));
    bench.near.ip("link set tx0 up");
    assert_eq!(bench.check_idle(&dev).sent, 200);
    send(&mut sender, 200..300);
    assert_eq!(bench.check_idle(&dev).sent, 300);
    assert!(wait_until(Duration::from_secs(5), || receiver.count() >= 300));
    assert_eq!(numbers(&receiver.finish(), 0), (0..300).collect::<Vec<_>>());
}

#[test]
fn while_the_peer_is_down_packets_wait() {
    let Some(bench) = Bench::new("while_the_peer_is_down_packets_wait") else { return };
    let dev = bench.start(1, |device| NetDev::builder(device).qdisc("pfifo limit 150"));
    let mut sender = dev.sender("s");
    bench.far.ip("link set rx0 down");
    send(&mut sender, 0..200);
    std::thread::sleep(Duration::from_millis(20));
    let stats = bench.check(&dev);
    assert_eq!(stats.sent, 0);
    // The limit is the qdisc's; the batch that the driver refused waits beside it, and has one packet or more.
    let dropped = stats.dropped.get(DropReason::QdiscOverlimit);
    assert!((1..=50).contains(&dropped) && stats.queued == 200 - dropped, "{stats:?}");
    bench.far.ip("link set rx0 up");
    assert_eq!(bench.check_idle(&dev).sent, 200 - dropped);
}

#[test]
fn an_interface_that_is_deleted_drops_packets_and_is_told() {
    let Some(bench) = Bench::new("an_interface_that_is_deleted_drops_packets_and_is_told") else { return };
    let mut dev = bench.start(2, |device| NetDev::builder(device).qdisc("mq"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0..10);
    assert_eq!(bench.check_idle(&dev).sent, 10);
    bench.near.ip("link del tx0");
    send(&mut sender, 10..30);
    assert!(dev.drain(SECONDS_5));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::DevReady)), (10, 20));
    let told = dev.shutdown().unwrap_err().to_string();
    assert!(told.starts_with("interface \"tx0\" is gone: its packets are dropped ("), "{told}");
    dev.shutdown().unwrap();
}

#[test]
fn frames_that_cannot_be_are_dropped_and_the_others_go() {
    let Some(bench) = Bench::new("frames_that_cannot_be_are_dropped_and_the_others_go") else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    for txqs in [1, 2] {
        let dev = bench.start(txqs, NetDev::builder);
        assert_eq!((dev.info().mtu, dev.info().name.as_str()), (1500, "tx0"));
    }
    let dev = bench.start(1, |device| NetDev::builder(device).qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    let mut batch = txq::packet::PacketList::new();
    for (number, len) in (0..).zip([60, 1900, 1514, 5, 13, 60, 1800]) {
        batch.push_back(sender.packet(&frame(0, number, len)).unwrap());
    }
    let mut gso = sender.packet(&frame(0, 7, 1000)).unwrap();
    gso.set_gso(400, 3);
    batch.push_back(gso);
    batch.push_back(sender.packet(&frame(0, 8, 60)).unwrap());
    let _ = sender.xmit_batch(&mut batch);
    let stats = bench.check_idle(&dev);
    let dropped = [DropReason::PktTooBig, DropReason::HdrTrunc].map(|reason| stats.dropped.get(reason));
    assert_eq!((stats.sent, dropped), (4, [3, 2]));
    assert!(wait_until(Duration::from_secs(5), || receiver.count() >= 4));
    assert_eq!(numbers(&receiver.finish(), 0), [0, 2, 5, 8]);
}

/// A full kernel qdisc refuses packets; txq's qdisc keeps them.
#[test]
fn through_a_full_qdisc_of_the_kernel_nothing_is_lost() {
    let Some(bench) = Bench::new("through_a_full_qdisc_of_the_kernel_nothing_is_lost") else { return };
    bench.near.tc("qdisc replace dev tx0 root tbf rate 2mbit burst 5kb limit 5kb");
    let dev = bench.start(1, |device| NetDev::builder(device.bypass(false)).qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    // A machine that is slow enough never fills the kernel's qdisc by the first packets.
    let mut n = 0;
    while dev.stats().requeues == 0 {
        assert!(n < 50_000, "the kernel's qdisc was never full");
        send(&mut sender, n..n + 500);
        n += 500;
        assert!(dev.drain(Duration::from_secs(30)));
    }
    // The last packets are still in the kernel's qdisc.
    let gone = || bench.near.counters("tx0").since(bench.before).tx_packets;
    assert!(wait_until(Duration::from_secs(5), || gone() == u64::from(n)));
    let stats = bench.check_idle(&dev);
    assert_eq!((stats.sent, stats.dropped.total()), (n.into(), 0));
}

#[test]
fn an_interface_that_cannot_be_used_is_told_at_once() {
    let test = "an_interface_that_cannot_be_used_is_told_at_once";
    if !(require_root(test) && require_tools(test, &["ip"])) {
        return;
    }
    let open = |name: &str| AfPacket::open(name, 1).err().map(|error| error.to_string()).unwrap_or_default();
    let absent = open("nowhere0");
    assert!(absent.starts_with("there is no interface \"nowhere0\": `ip link`"), "{absent}");
    let long = open("a-name-longer-than-any-interface-has");
    assert!(long.starts_with("there is no interface \"a-name-longer"), "{long}");
    let namespace = Netns::new();
    assert!(namespace.call(|| AfPacket::open("lo", 1).is_ok()));
    if !std::path::Path::new("/dev/net/tun").exists() {
        return;
    }
    namespace.ip("tuntap add dev tun0 mode tun");
    let tun = namespace.call(|| AfPacket::open("tun0", 1).err().unwrap().to_string());
    assert!(tun.starts_with("interface \"tun0\" is not Ethernet (its link type is 65534)"), "{tun}");
}

#[test]
fn without_permission_the_remedy_is_told() {
    if !require_root("without_permission_the_remedy_is_told") {
        return;
    }
    // Capabilities belong to a thread.
    let thread = std::thread::spawn(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        AfPacket::open("lo", 1).err().unwrap()
    });
    let error = thread.join().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let text = error.to_string();
    assert!(
        text.contains("interface \"lo\" is not permitted") && text.contains("setcap cap_net_raw"),
        "{text}"
    );
}
