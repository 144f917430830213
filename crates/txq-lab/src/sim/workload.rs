//! The tasks of a scenario's workload: which of them send, and what.

mod answers;
mod pktgen;
mod proxy;
mod rr;
mod shares;
mod trace;
mod udp;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use txq::generic::qdisc::Verdict;
use txq::generic::{NetDev, Sender};
use txq_core::packet::{Packet, PacketList};

use crate::sim::arch::{Sim, write_packet};
use crate::sim::machine::Picos;
use crate::sim::scenario::setup::{Device, Setup, Workload};
use crate::sim::sim;
use crate::sim::times::Times;
use crate::sim::world::{Task, World};
use crate::tree::Tree;

pub(crate) use answers::Answers;
pub(crate) use shares::Shares;
use trace::Trace;
pub(crate) use trace::TraceError;

/// Maximum number of buffers in a pool.
const MOST_BUFFERS: u32 = 1 << 20;
/// Number of buffers that a program of a proxied request starts with.
const PROGRAM_STOCK: u32 = 8;
/// Length of the packet's part that holds its headers, in bytes.
const HEAD: usize = 128;

/// Completed transactions or requests and delays of packets, over all tasks. Counting costs no virtual time, because the
/// simulated programs do not count.
#[derive(Debug, Default)]
pub(crate) struct Done {
    done: Cell<u64>,
    /// Number of packets that had a due time, and the sum of their delays.
    late: Cell<(u64, Picos)>,
    /// Number of sleeps until a packet is due.
    sleeps: Cell<u64>,
}

impl Done {
    pub(crate) fn get(&self) -> u64 {
        self.done.get()
    }

    /// Returns the number of packets that had a due time, and the sum of their delays.
    pub(crate) fn late(&self) -> (u64, Picos) {
        self.late.get()
    }

    /// Returns the number of sleeps until a packet is due.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.get()
    }

    /// Sleeps until `wake`, because no packet is due before.
    fn sleep_until(&self, wake: Picos) {
        self.sleeps.set(self.sleeps.get() + 1);
        sim::sleep_until(wake);
    }

    fn one(&self) {
        self.done.set(self.done.get() + 1);
    }

    fn handed_in(&self, late: Picos) {
        let (packets, all) = self.late.get();
        self.late.set((packets + 1, all + late));
    }
}

/// A task's handle on the device, and the times of its packets.
pub(crate) struct Port {
    sender: Sender<Sim>,
    times: Arc<Times>,
    /// The priority of its packets; 0 is not written.
    priority: u32,
}

impl Port {
    /// Notes that a packet is handed in now, if the time counts.
    fn note(&self, packet: &Packet<Sim>) {
        self.times.hand_in(packet.data(), sim::now(), sim::is_counting());
    }

    /// Calls `xmit`, and notes how long it takes. Verdicts are counted where they occur.
    fn xmit(&mut self, xmit: impl FnOnce(&mut Sender<Sim>) -> Verdict) {
        let (from, counts) = (sim::now(), sim::is_counting());
        let _verdict = xmit(&mut self.sender);
        if counts {
            self.times.xmit(sim::now() - from);
        }
    }
}

impl Workload {
    /// Returns the number of tasks that send.
    pub fn senders(&self) -> u32 {
        match *self {
            Self::UdpStream { senders, .. } | Self::Trace { senders, .. } => senders,
            Self::TcpRr { pairs, .. } => pairs,
            Self::Pktgen { threads, .. } => threads,
            Self::Proxy { passes, .. } => proxy::programs(passes),
        }
    }

    /// Returns whether its tasks stay on their CPUs.
    pub(crate) fn is_pinned(&self) -> bool {
        match *self {
            Self::UdpStream { pinned, .. } | Self::Trace { pinned, .. } => pinned,
            Self::Pktgen { .. } => true,
            Self::TcpRr { .. } | Self::Proxy { .. } => false,
        }
    }

    /// Returns the maximum number of buffers in use: packets in flight, the senders' stocks, and the packets in rings and
    /// queues.
    pub(crate) fn buffers(&self, device: &Device) -> u32 {
        let credit = match *self {
            Self::UdpStream { credit, .. } | Self::Trace { credit, .. } => {
                u32::try_from(credit).unwrap_or(MOST_BUFFERS)
            }
            Self::Pktgen { .. } => 2 * device.ring,
            Self::TcpRr { .. } => 4,
            Self::Proxy { .. } => PROGRAM_STOCK,
        };
        let tasks = self.senders() + u32::from(device.txqs);
        let stock = (2 * txq_core::pool::CACHE_SIZE) as u32 + 2 * txq_core::pool::DEFER_MAX;
        self.senders().saturating_mul(credit).saturating_add(tasks.saturating_mul(stock)).min(MOST_BUFFERS)
    }
}

/// The packets to send, read before the world is created.
pub(crate) struct Load {
    /// Length of the longest packet, in bytes.
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

/// Returns the peers that answer, if the workload has any.
pub(crate) fn answers(setup: &Setup, cpus: u32) -> Option<Answers> {
    match setup.workload {
        Workload::TcpRr { pairs, private, round_trip_us, .. } => {
            Some(Answers::new(pairs, cpus, private * rr::ANSWER_PART, round_trip_us * 1e3))
        }
        _ => None,
    }
}

/// Returns the counters of the senders' classes, if they have any.
pub(crate) fn shares(setup: &Setup) -> Option<Shares> {
    match &setup.workload {
        Workload::UdpStream { senders, classes, .. } if !classes.is_empty() => {
            Some(Shares::new(*senders, classes))
        }
        _ => None,
    }
}

/// Spawns the tasks that send, each on one of `cpus` if it is pinned. Their handles are created before the world runs, and
/// have buffers, as if they had been at work for a while.
pub(crate) fn spawn(
    setup: &Setup,
    load: &Load,
    cpus: &[u32],
    world: &mut World,
    (dev, times): (&Rc<NetDev<Sim>>, &Arc<Times>),
    done: &Rc<Done>,
) {
    let of = setup.workload.senders();
    let handle = |cpu: u32, n: u32, stock: u64| {
        sim::on_cpu(cpu, || {
            let mut sender = dev.sender(&format!("sender {n}"));
            let mut list = PacketList::new();
            // A sender starts without buffers if the pool has none left.
            let _ = sender.alloc_batch(stock as usize, load.room as usize, &mut list);
            drop(list);
            Port { sender, times: times.clone(), priority: 0 }
        })
    };
    let way = match setup.workload {
        Workload::Proxy { connections, passes, private, .. } => {
            Some(proxy::Way::new(connections, passes, private))
        }
        _ => None,
    };
    let mut dealt = load.trace.as_ref().map(|trace| trace.deal(of)).unwrap_or_default().into_iter();
    let tree = Tree::new(&setup.path.qdisc);
    for n in 0..of {
        let done = done.clone();
        let cpu = cpus[n as usize % cpus.len()];
        let handle = |stock| handle(cpu, n, stock);
        match setup.workload {
            Workload::UdpStream {
                bytes,
                credit,
                batch,
                private,
                pinned,
                offered_mpps,
                write,
                flows,
                ref classes,
                ..
            } => {
                let mut port = handle(credit);
                port.sender.set_limit(credit);
                let class = classes.get(shares::part_of(n, of, classes.len())).copied();
                port.priority = class.or_else(|| tree.class_of(n)).map_or(0, |class| class.0);
                // A sender's calls per microsecond, times the packets of a call, are its part of the rate.
                let gap = f64::from(of) * f64::from(batch) / offered_mpps * MICROSECOND;
                let gap = (offered_mpps > 0.0).then_some(gap as Picos);
                let (bytes, batch) = (bytes as usize, batch as usize);
                let udp = udp::Udp { number: n, flows, bytes, batch, private, write, gap };
                world.spawn(task("udp", n, of, cpu, pinned), move || udp.run(&mut port, &done));
            }
            Workload::TcpRr { bytes, private, .. } => {
                let mut port = handle(2);
                let rr = rr::Pair { number: n, bytes: bytes as usize, private };
                world.spawn(task("rr", n, of, cpu, false), move || rr.run(&mut port, &done));
            }
            Workload::Pktgen { bytes, private, .. } => {
                let mut port = handle(setup.device.ring.into());
                let pktgen = pktgen::Pktgen { number: n, bytes: bytes as usize, private };
                world.spawn(task("pktgen", n, of, cpu, true), move || pktgen.run(&mut port));
            }
            Workload::Proxy { bytes, .. } => {
                let Some(way) = way.clone() else { continue };
                let mut port = handle(PROGRAM_STOCK.into());
                let run = move || way.run(n, bytes as usize, &mut port, &done);
                world.spawn(task("program", n, of, cpu, false), run);
            }
            Workload::Trace { speed, credit, private, pinned, .. } => {
                let (Some(trace), Some(frames)) = (load.trace.clone(), dealt.next()) else { continue };
                let mut port = handle(credit);
                port.sender.set_limit(credit);
                let replay = trace::Replay { trace, frames, speed, private };
                world.spawn(task("trace", n, of, cpu, pinned), move || replay.run(&mut port, &done));
            }
        }
    }
}

/// Picoseconds in a microsecond.
const MICROSECOND: f64 = 1e6;
/// The time over which the tasks' starts are spread: tasks that start together would stay in step.
const BEGINNING: Picos = 50_000_000;

fn task(kind: &str, number: u32, of: u32, cpu: u32, pinned: bool) -> Task {
    let start = BEGINNING * u64::from(number) / u64::from(of);
    Task {
        name: format!("{kind} {number}"),
        cpu: pinned.then_some(cpu),
        at: Some(cpu),
        start,
        ..Task::default()
    }
}

/// Does private work of about `nanos`, a tenth more or less: tasks that all do the same would stay in step.
fn work(nanos: f64) {
    let part = 0.9 + 0.2 * (sim::random() >> 11) as f64 / (1_u64 << 53) as f64;
    sim::work((nanos * part * 1e3) as Picos);
}

/// Sends a frame of the sender's flow, with Ethernet, IPv4 and UDP headers that differ by the flow's number. Returns whether
/// there was a buffer for it.
fn send(port: &mut Port, flow: u32, bytes: usize) -> bool {
    send_frame(port, bytes, &frame(flow))
}

/// Sends up to `n` frames of the sender's next flows in one call; returns how many: 0 if there is no buffer.
fn send_batch(port: &mut Port, flows: impl Fn(u32) -> u32, bytes: usize, n: usize) -> usize {
    sim::enter();
    let mut list = PacketList::new();
    let Ok(got) = port.sender.alloc_batch(n, bytes, &mut list) else { return 0 };
    let mut turns = 0..;
    list.for_each_mut(|packet| fill(port, packet, &frame(flows(turns.next().unwrap_or(0)))));
    list.iter().for_each(|packet| port.note(packet));
    port.xmit(|sender| sender.xmit_batch(&mut list));
    got
}

/// Sends up to `n` packets as they were allocated, in one call; returns how many: 0 if there is no buffer. The packets of several
/// flows have their hashes, and headers that cost no time.
fn send_bare(port: &mut Port, flows: Option<impl Fn(u32) -> u32>, bytes: usize, n: usize) -> usize {
    sim::enter();
    let mut list = PacketList::new();
    let Ok(got) = port.sender.alloc_batch(n, bytes, &mut list) else { return 0 };
    if let Some(flows) = flows {
        let mut turns = 0..;
        list.for_each_mut(|packet| {
            let flow = flows(turns.next().unwrap_or(0));
            packet.set_hash((flow + 1).wrapping_mul(0x9e37_79b1) | 1);
            if port.priority != 0 {
                packet.set_priority(port.priority);
            }
            let head = frame(flow);
            let (data, most) = (packet.data_mut(), head.len().min(bytes));
            data[..most].copy_from_slice(&head[..most]);
        });
    }
    port.xmit(|sender| sender.xmit_batch(&mut list));
    got
}

/// Writes a frame that begins with `head`, and the priority of the port's packets.
fn fill(port: &Port, packet: &mut Packet<Sim>, head: &[u8]) {
    if port.priority != 0 {
        packet.set_priority(port.priority);
    }
    let data = packet.data_mut();
    let kept = data.len().min(HEAD);
    data[..kept].fill(0);
    let kept = kept.min(head.len());
    data[..kept].copy_from_slice(&head[..kept]);
    write_packet(data);
}

/// Sends a frame that begins with the first [`HEAD`] bytes of `head`; zeros fill the rest of them, not another packet's
/// bytes. Returns whether there was a buffer for it.
fn send_frame(port: &mut Port, bytes: usize, head: &[u8]) -> bool {
    sim::enter();
    let Ok(mut packet) = port.sender.alloc(bytes) else { return false };
    fill(port, &mut packet, head);
    port.note(&packet);
    port.xmit(|sender| sender.xmit(packet));
    true
}

/// Returns a flow's headers: its number determines the source's address and port.
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

/// Returns the flow of a frame.
pub(crate) fn flow_of(frame: &[u8]) -> Option<u32> {
    let address = frame.get(26..30)?;
    Some(u32::from_be_bytes(address.try_into().ok()?) & 0x00FF_FFFF)
}
