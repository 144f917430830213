//! A driver over memory that belongs to someone else. A "card" sends frames from its own memory, as a card reads them by DMA,
//! AF_XDP from a UMEM and DPDK from its mbufs. txq puts its packets into that memory, so nothing is copied: the driver hands
//! the card offsets, and the card returns them when the frames are out.
//! `cargo run -p txq-device --example lent_memory`

use std::cell::UnsafeCell;
use std::error::Error;
use std::io;
use std::net::UdpSocket;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Link, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::{LentMemory, Pool, PoolConfig};
use txq::{Instant, NetDev};

/// The card's frames: how many there are, and their size.
const FRAMES: usize = 64;
const SIZE: usize = 2048;
/// Frames that the card has at a time.
const RING: usize = 16;

/// The card's memory.
struct Memory(Box<[UnsafeCell<u8>]>);

// SAFETY: each byte belongs to one side at a time: to txq, and from the offset's way to the card until its way back to the card.
unsafe impl Sync for Memory {}

/// The card: sends what lies at the offsets that it gets, here as datagrams.
struct Card {
    memory: Arc<Memory>,
    socket: UdpSocket,
    to_do: Receiver<(usize, usize)>,
    done: SyncSender<usize>,
}

impl Card {
    fn run(self) -> io::Result<()> {
        for (offset, len) in &self.to_do {
            let frame = self.memory.0[offset..offset + len].as_ptr().cast();
            // SAFETY: within the memory, and the card's until it returns the offset.
            self.socket.send(unsafe { std::slice::from_raw_parts(frame, len) })?;
            let _ = self.done.send(offset);
        }
        Ok(())
    }
}

/// The device. It has one txq, whose two halves share the pool, and not more.
struct CardDriver(Option<(Tx, Done)>);

struct Tx {
    pool: Pool,
    card: SyncSender<(usize, usize)>,
}

struct Done {
    pool: Pool,
    card: Receiver<usize>,
}

impl Driver for CardDriver {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("card").link(Link::Ip)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        let (tx, done) = self.0.take().ok_or(io::ErrorKind::NotFound)?;
        Ok(DriverQueue::new(tx, done).ring(RING as u32))
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            // A packet of another pool, from a forwarder, would have to be copied into one of this pool.
            if !self.pool.owns(&packet) {
                cx.drop(packet, DropReason::NotSpecified);
                continue;
            }
            let len = packet.len();
            // The txq hands over no more than the ring holds, so this does not wait. The packet is now the card's.
            let _ = self.card.send((self.pool.take_offset(packet), len));
        }
        Status::Ok
    }
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        for offset in self.card.try_iter().take(budget) {
            // SAFETY: the card returns each offset once.
            done.push_back(unsafe { self.pool.packet_at(offset) });
        }
        // The card has no interrupt: poll again in 50 us.
        Some(clock.now() + Duration::from_micros(50))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;

    let memory = Arc::new(Memory((0..FRAMES * SIZE).map(|_| UnsafeCell::new(0)).collect()));
    let base = NonNull::new(memory.0[0].get()).ok_or("memory at address 0")?;
    // SAFETY: zeroed above, and kept by its last owner; the card accesses a frame only between the two channels.
    let lent = unsafe { LentMemory::new(base, FRAMES * SIZE, memory.clone()) }.stride(SIZE);
    let config = PoolConfig { buffers: FRAMES as u32, room: 1500, ..PoolConfig::default() };
    let pool = Pool::on(&config, lent)?;

    let (card, to_do) = sync_channel(RING);
    let (done, completed) = sync_channel(RING);
    let card_runs = thread::spawn(|| Card { memory, socket, to_do, done }.run());
    let driver =
        CardDriver(Some((Tx { pool: pool.clone(), card }, Done { pool: pool.clone(), card: completed })));

    let mut dev = NetDev::builder(driver).pool(pool).qdisc("tbf rate 50mbit burst 10k latency 1s").start()?;
    let mut sender = dev.sender("main");
    let mut datagram = [0; 1500];
    for round in 0..5 {
        let numbers = round * 32..(round + 1) * 32;
        for number in numbers.clone() {
            let packet = sender.packet(&[number; 1000])?;
            let _ = sender.xmit(packet);
        }
        for number in numbers {
            let len = receiver.recv(&mut datagram)?;
            assert_eq!(datagram[..len], [number; 1000]);
        }
    }
    drop(sender);
    // Until the card has returned all frames: the pool must not end before.
    assert!(dev.drain(Duration::from_secs(10)));
    dev.shutdown()?;
    let stats = dev.audit()?;
    println!("{} frames sent from the card's memory, {} dropped", stats.sent, stats.dropped.total());
    drop(dev);
    card_runs.join().expect("the card does not panic")?;
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
