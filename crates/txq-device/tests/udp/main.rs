//! A device on a UDP socket, over loopback: payloads, order, joined and cut messages, errors, and the receiving half.

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod rate;
mod receive;
mod send;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::assert_conserved;
use txq::driver::Driver;
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::packet::{Packet, PacketList};
use txq::pool::{Backing, PoolConfig};
use txq::receive::{BusyPoll, Receive};
use txq::{NetDev, Sender};
use txq_device::udp::{self, Counts, Datagram, Udp};
use txq_device::{Faults, faults::Rates};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

fn pool(room: usize) -> PoolConfig {
    PoolConfig { buffers: 1000, room, backing: Backing::Heap, ..Default::default() }
}

fn builder(udp: Udp) -> Builder {
    NetDev::builder(udp).qdisc("pfifo limit 10000").pool_config(pool(70_000))
}

/// A socket that receives: up to 64 datagrams fit into its buffer, whatever the system's limits.
fn peer(local: &str) -> UdpSocket {
    let socket = UdpSocket::bind(local).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let n = socket.recv(&mut bytes).expect("a datagram");
    bytes.truncate(n);
    bytes
}

/// Checks that nothing more has arrived. Loopback delivers a datagram before the call that sends it returns, or soon after.
#[track_caller]
fn assert_silent(socket: &UdpSocket) {
    std::thread::sleep(Duration::from_millis(20));
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 65_536]).is_err(), "a datagram that nobody sent");
    socket.set_nonblocking(false).unwrap();
}

/// Returns a payload that differs from that of each other number.
fn payload(number: u32, len: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().chain((0..).map(|n: u32| (n ^ number) as u8)).take(len).collect()
}

fn number(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

/// Returns a packet with `payload` in front of which `datagram`'s headers were pushed.
fn pushed(sender: &mut Sender, datagram: Datagram, payload: &[u8]) -> Packet {
    let mut packet = sender.packet(payload).unwrap();
    datagram.push(&mut packet).expect("headroom");
    packet
}

#[track_caller]
fn sent(counts: Counts) -> (u64, u64, u64) {
    (counts.messages, counts.joined, counts.datagrams)
}
