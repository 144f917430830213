//! The tunnel with txq: a device whose driver encrypts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result};
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::udp::{self, Datagram};
use txq_device::{Tun, Udp, tun};

use crate::Options;
use crate::peer::{MTU, Peer, State};

/// Time until encrypted packets have left, as a rule, when all buffers of the UDP device hold them.
const RETRY: Duration = Duration::from_micros(100);
const BATCH: usize = 64;

/// Carries packets until the process ends.
pub(crate) fn run(options: &Options, peer: &Arc<Peer>) -> Result<()> {
    let interface = Tun::create(&options.tun).mtu(MTU).open()?;
    let socket = Udp::bind(options.listen).with_context(|| format!("--listen {}", options.listen))?;
    let (mut packets, mut messages) = (interface.receivers().remove(0), socket.receiver()?);
    // Few encrypted packets: when the socket is slower than the tunnel, packets wait in the tunnel's qdisc.
    let buffers = PoolConfig { max_buffers: 256, ..PoolConfig::default() };
    let wire = NetDev::builder(socket).qdisc("pfifo limit 256").pool_config(buffers).start()?;
    let inside = NetDev::builder(interface).qdisc("pfifo limit 1000").start()?;
    let tx = EncryptQueue { peer: Arc::clone(peer), wire: wire.sender("tunnel") };
    let outside = Encrypt { name: options.tun.clone(), tx: Some(tx) };
    let outside = NetDev::builder(outside).qdisc(&options.qdisc).start().context("--qdisc")?;
    let _server = txq_control::serve(&outside, options.tun.as_str())?;
    let (peer, inner) = (Arc::clone(peer), Arc::clone(peer));
    let (mut timers, answers) = (wire.sender("timers"), wire.sender("answers"));
    thread::spawn(move || peer.keep_time(|to, message| send(&mut timers, to, message)));
    thread::spawn(move || outward(&mut packets, outside.sender("outward")));
    Ok(inward(&inner, &mut messages, inside.sender("inward"), answers)?)
}

/// Sends the packets that the kernel routes into the tunnel.
fn outward(packets: &mut tun::Receiver, mut sender: Sender) -> io::Result<()> {
    let mut batch = PacketList::new();
    loop {
        if packets.receive(BATCH, &mut sender, &mut batch)? == 0 {
            packets.wait(Some(Duration::from_secs(1)))?;
        }
        let _verdict = sender.xmit_batch(&mut batch);
    }
}

/// Hands the packets in the peer's messages to the kernel.
fn inward(peer: &Peer, udp: &mut udp::Receiver, mut sender: Sender, mut wire: Sender) -> io::Result<()> {
    let (mut batch, mut opened) = (PacketList::new(), PacketList::new());
    loop {
        if udp.receive(BATCH, &mut sender, &mut batch)? == 0 {
            udp.wait(Some(Duration::from_secs(1)))?;
        }
        let mut state = peer.lock();
        while let Some(message) = batch.pop_front() {
            let Ok((headers, payload)) = Datagram::parse(message.data()) else { continue };
            let Ok(mut packet) = sender.alloc(State::room(payload.len())) else { continue };
            let send = |to, answer: &[u8]| send(&mut wire, to, answer);
            if let Some(len) = state.decrypt(headers.source(), payload, packet.data_mut(), send) {
                packet.truncate(len);
                opened.push_back(packet);
            }
        }
        drop(state);
        let _verdict = sender.xmit_batch(&mut opened);
    }
}

/// Sends a message that carries no packet. WireGuard repeats those that are lost.
fn send(sender: &mut Sender, to: SocketAddr, message: &[u8]) {
    if let Ok(packet) = udp::packet(sender, to, message) {
        let _verdict = sender.xmit(packet);
    }
}

/// The driver of the tunnel's device: encrypts packets, and sends them through the UDP device.
struct Encrypt {
    name: String,
    tx: Option<EncryptQueue>,
}

struct EncryptQueue {
    peer: Arc<Peer>,
    wire: Sender,
}

impl Driver for Encrypt {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(&self.name).mtu(MTU).link(Link::Ip)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        let tx = Box::new(self.tx.take().ok_or(io::ErrorKind::ResourceBusy)?);
        Ok(DriverQueue::new(tx, NoCompletions))
    }
}

impl Transmit for EncryptQueue {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let (mut state, mut messages, mut status) = (self.peer.lock(), PacketList::new(), Status::Ok);
        while let Some(packet) = batch.pop_front() {
            let Ok(mut message) = self.wire.alloc(State::room(packet.len())) else {
                batch.push_front(packet);
                status = Status::Busy { retry: Some(RETRY) };
                break;
            };
            match state.encrypt(packet.data(), message.data_mut()) {
                Some((_, 0)) => cx.sent(packet),
                Some((to, len)) => {
                    message.truncate(len);
                    Datagram::new(to).push(&mut message).expect("a buffer has headroom for the headers");
                    messages.push_back(message);
                    cx.sent(packet);
                }
                None => cx.drop(packet, DropReason::DevReady),
            }
        }
        drop(state);
        let _verdict = self.wire.xmit_batch(&mut messages);
        status
    }
}
