//! Who sends what: the tasks of a scenario's workload.

mod answers;
mod pktgen;
mod proxy;
mod rr;
mod trace;
mod udp;

use std::cell::Cell;
use std::rc::Rc;

use txq::packet::PacketList;
use txq::{NetDev, Sender};

use crate::arch::{Sim, write_packet};
use crate::machine::Picos;
use crate::scenario::setup::{Device, Setup, Workload};
use crate::sim;
use crate::world::{Task, World};

pub(crate) use answers::Answers;
use trace::Trace;
pub(crate) use trace::TraceError;

/// Buffers of a pool, at most.
const MOST_BUFFERS: u32 = 1 << 20;
/// Bytes of a packet that its headers are in.
const HEAD: usize = 128;

/// Transactions or requests that are done, and how late packets are, of all tasks. It costs nothing: nobody counts so in
/// what is simulated.
#[derive(Debug, Default)]
pub(crate) struct Done {
    done: Cell<u64>,
    /// Packets that had a time, and how late they were handed in, all together.
    late: Cell<(u64, Picos)>,
}

impl Done {
    pub(crate) fn get(&self) -> u64 {
        self.done.get()
    }

    /// Packets that had a time to be handed in at, and how late they were, all together.
    pub(crate) fn late(&self) -> (u64, Picos) {
        self.late.get()
    }

    fn one(&self) {
        self.done.set(self.done.get() + 1);
    }

    fn handed_in(&self, late: Picos) {
        let (packets, all) = self.late.get();
        self.late.set((packets + 1, all + late));
    }
}

impl Workload {
    /// Tasks that send.
    pub fn senders(&self) -> u32 {
        match *self {
            Self::UdpStream { senders, .. } | Self::Trace { senders, .. } => senders,
            Self::TcpRr { pairs, .. } => pairs,
            Self::Pktgen { threads, .. } => threads,
            Self::Proxy { connections, .. } => connections,
        }
    }

    /// Whether its tasks stay where they are.
    pub(crate) fn is_pinned(&self) -> bool {
        match *self {
            Self::UdpStream { pinned, .. } | Self::Trace { pinned, .. } => pinned,
            Self::Pktgen { .. } => true,
            Self::TcpRr { .. } | Self::Proxy { .. } => false,
        }
    }

    /// As many buffers as can be in use: what senders may have on their way, their stocks, and what rings and queues keep.
    pub(crate) fn buffers(&self, device: &Device) -> u32 {
        let credit = match *self {
            Self::UdpStream { credit, .. } | Self::Trace { credit, .. } => {
                u32::try_from(credit).unwrap_or(MOST_BUFFERS)
            }
            Self::Pktgen { .. } => 2 * device.ring,
            Self::TcpRr { .. } | Self::Proxy { .. } => 4,
        };
        let tasks = self.senders() + u32::from(device.txqs);
        let stock = (2 * txq::pool::CACHE_SIZE) as u32 + 2 * txq::pool::DEFER_MAX;
        self.senders().saturating_mul(credit).saturating_add(tasks.saturating_mul(stock)).min(MOST_BUFFERS)
    }
}

/// What is sent, read before anything is made.
pub(crate) struct Load {
    /// The longest packet, in bytes.
    pub(crate) room: u32,
    trace: Option<Rc<Trace>>,
}

impl Load {
    pub(crate) fn of(setup: &Setup) -> Result<Self, TraceError> {
        let (room, trace) = match &setup.workload {
            &(Workload::UdpStream { bytes, .. }
            | Workload::TcpRr { bytes, .. }
            | Workload::Pktgen { bytes, .. }
            | Workload::Proxy { bytes, .. }) => (bytes, None),
            Workload::Trace { file, .. } => {
                let trace = Trace::open(file)?;
                trace.check_memory(file, setup.workload.buffers(&setup.device))?;
                (trace.longest(), Some(Rc::new(trace)))
            }
        };
        Ok(Self { room, trace })
    }
}

/// Who answers, if the workload has somebody.
pub(crate) fn answers(setup: &Setup, cpus: u32) -> Option<Answers> {
    match setup.workload {
        Workload::TcpRr { pairs, private, round_trip_us, .. } => {
            Some(Answers::new(pairs, cpus, private * rr::ANSWER, round_trip_us * 1e3))
        }
        _ => None,
    }
}

/// Makes the tasks that send. Their handles are made before the world runs, and have buffers: they have been at work for a
/// while.
pub(crate) fn spawn(setup: &Setup, load: &Load, world: &mut World, dev: &Rc<NetDev<Sim>>, done: &Rc<Done>) {
    let (cpus, of) = (world.cpus(), setup.workload.senders());
    let handle = |n: u32, stock: u64| {
        sim::on_cpu(n % cpus, || {
            let mut sender = dev.sender(&format!("sender {n}"));
            let mut list = PacketList::new();
            // Those that find none in the pool begin without.
            let _ = sender.alloc_batch(stock as usize, load.room as usize, &mut list);
            drop(list);
            sender
        })
    };
    let mut dealt = load.trace.as_ref().map(|trace| trace.deal(of)).unwrap_or_default().into_iter();
    for n in 0..of {
        let done = done.clone();
        match setup.workload {
            Workload::UdpStream { bytes, credit, batch, private, pinned, .. } => {
                let mut sender = handle(n, credit);
                sender.set_limit(credit);
                let udp = udp::Udp { number: n, bytes: bytes as usize, batch: batch as usize, private };
                world.spawn(task("udp", n, of, cpus, pinned), move || udp.run(&mut sender));
            }
            Workload::TcpRr { bytes, private, .. } => {
                let mut sender = handle(n, 2);
                let rr = rr::Pair { number: n, bytes: bytes as usize, private };
                world.spawn(task("rr", n, of, cpus, false), move || rr.run(&mut sender, &done));
            }
            Workload::Pktgen { bytes, private, .. } => {
                let mut sender = handle(n, setup.device.ring.into());
                let pktgen = pktgen::Pktgen { number: n, bytes: bytes as usize, private };
                world.spawn(task("pktgen", n, of, cpus, true), move || pktgen.run(&mut sender));
            }
            Workload::Proxy { bytes, passes, private, .. } => {
                let mut sender = handle(n, 8);
                let proxy = proxy::Proxy { number: n, bytes: bytes as usize, passes, private };
                world.spawn(task("request", n, of, cpus, false), move || proxy.run(&mut sender, &done));
            }
            Workload::Trace { speed, credit, private, pinned, .. } => {
                let (Some(trace), Some(frames)) = (load.trace.clone(), dealt.next()) else { continue };
                let mut sender = handle(n, credit);
                sender.set_limit(credit);
                let replay = trace::Replay { trace, frames, speed, private };
                world.spawn(task("trace", n, of, cpus, pinned), move || replay.run(&mut sender, &done));
            }
        }
    }
}

/// The time in which tasks begin, one after the other: those that began together would stay in step.
const BEGINNING: Picos = 50_000_000;

fn task(kind: &str, number: u32, of: u32, cpus: u32, pinned: bool) -> Task {
    let start = BEGINNING * u64::from(number) / u64::from(of);
    let at = number % cpus;
    Task {
        name: format!("{kind} {number}"),
        cpu: pinned.then_some(at),
        at: Some(at),
        start,
        ..Task::default()
    }
}

/// Private work of about `nanos`, up to a tenth more or less: tasks that all do the same would stay in step.
fn work(nanos: f64) {
    let part = 0.9 + 0.2 * (sim::random() >> 11) as f64 / (1_u64 << 53) as f64;
    sim::work((nanos * part * 1e3) as Picos);
}

/// A frame of the sender's flow: Ethernet, IPv4 and UDP headers that differ by the flow's number.
fn send(sender: &mut Sender<Sim>, flow: u32, bytes: usize) -> bool {
    send_frame(sender, bytes, &frame(flow))
}

/// Up to `n` frames of the sender's flow in one call; none if there is no buffer. Tells how many.
fn send_batch(sender: &mut Sender<Sim>, flow: u32, bytes: usize, n: usize) -> usize {
    sim::enter();
    let mut list = PacketList::new();
    let Ok(got) = sender.alloc_batch(n, bytes, &mut list) else { return 0 };
    let head = frame(flow);
    list.for_each_mut(|packet| fill(packet.data_mut(), &head));
    // What becomes of them is counted where it happens.
    let _verdict = sender.xmit_batch(&mut list);
    got
}

/// Writes a frame that begins with `head`.
fn fill(data: &mut [u8], head: &[u8]) {
    let kept = data.len().min(HEAD);
    data[..kept].fill(0);
    let kept = kept.min(head.len());
    data[..kept].copy_from_slice(&head[..kept]);
    write_packet(data);
}

/// A frame that begins with `head`, of which no more than [`HEAD`] bytes count. What follows in them is 0, and not what
/// another packet left there. Tells whether there was a buffer for it.
fn send_frame(sender: &mut Sender<Sim>, bytes: usize, head: &[u8]) -> bool {
    sim::enter();
    let Ok(mut packet) = sender.alloc(bytes) else { return false };
    fill(packet.data_mut(), head);
    // What becomes of it is counted where it happens.
    let _verdict = sender.xmit(packet);
    true
}

/// Headers of a flow: its number is the source's address and port.
fn frame(flow: u32) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&28_u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&(0x0A00_0000 | flow).to_be_bytes());
    frame[30..34].copy_from_slice(&0x0AFF_0001_u32.to_be_bytes());
    frame[34..36].copy_from_slice(&(flow as u16 | 0x8000).to_be_bytes());
    frame[36..38].copy_from_slice(&9_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&8_u16.to_be_bytes());
    frame
}

/// The flow of a frame.
pub(crate) fn flow_of(frame: &[u8]) -> Option<u32> {
    let address = frame.get(26..30)?;
    Some(u32::from_be_bytes(address.try_into().ok()?) & 0x00FF_FFFF)
}
