//! Many senders of small datagrams through one device on a machine of 480 hardware threads, for the tests and the example.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use txq::cpumask::CpuMask;
use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::netdev::Builder;
use txq::generic::{Discipline, NetDev};
use txq::xps::XpsMap;
use txq_core::packet::PacketList;
use txq_core::pool::{Backing, PoolConfig};
use txq_lab::sim::machine::{Access as Costs, Core, Line, Machine, Os, Topology};
use txq_lab::sim::{Outcome, Picos, Sim, Task, World, sim};

/// A millisecond.
pub(crate) const MS: Picos = 1_000_000_000;

/// Two sockets of 120 cores of two threads, with round numbers for the costs of lines.
pub(crate) fn machine() -> Machine {
    Machine {
        name: "two sockets, 480 threads".into(),
        topology: Topology { sockets: 2, dies: 1, complexes: 1, cores: 120, threads: 2 },
        access: Costs {
            hit: 1.0,
            hit_gap: 0.0,
            rmw: 5.0,
            same_core: 4.0,
            same_complex: 45.0,
            same_die: 45.0,
            same_socket: 45.0,
            other_socket: 180.0,
            memory: 90.0,
            other_memory: 150.0,
        },
        line: Line { snoop: 0.55, hold: 0.45, read_gap: 8.0, stores: 16, loads: 0, crowd: 0.0, ahead: 0 },
        core: Core { pause: 36.0, shared: 1.5, window: 0.0, turbo: Vec::new() },
        os: Os {
            clock: 20.0,
            switch: 1000.0,
            interrupt: 500.0,
            wake: 500.0,
            wakeup: 2000.0,
            slice: 3_000_000.0,
            spin: 1000.0,
        },
    }
}

/// A device that completes every packet at once.
struct Sink(u16, Arc<AtomicU64>);
/// Counts packets while the world runs. The counter is the host's, so it costs no virtual time.
struct SinkQueue(Arc<AtomicU64>);

impl Driver<Sim> for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink").txqs(self.0)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue<Sim>> {
        Ok(DriverQueue { tx: Box::new(SinkQueue(self.1.clone())), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit<Sim> for SinkQueue {
    fn start_xmit(&mut self, batch: &mut PacketList<Sim>, cx: &mut TxCx<'_, Sim>) -> Status {
        if sim::is_counting() {
            self.0.fetch_add(batch.len() as u64, Relaxed);
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

/// A case to run.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) discipline: Discipline,
    pub(crate) qdisc: &'static str,
    pub(crate) senders: u32,
    pub(crate) txqs: u16,
    /// Whether the CPUs of a txq are neighbours; otherwise they are spread over the machine.
    pub(crate) local: bool,
    /// Whether senders are pinned to their CPUs.
    pub(crate) pinned: bool,
    /// The sender's own work for a packet.
    pub(crate) private: Picos,
    pub(crate) time: Picos,
}

/// 240 senders and 30 txqs.
pub(crate) const P0: Case = Case {
    discipline: Discipline::Llist,
    qdisc: "pfifo",
    senders: 240,
    txqs: 30,
    local: false,
    pinned: true,
    private: 600_000,
    time: MS,
};

/// The result of a case.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) sent: u64,
    /// How long the run took in real time.
    pub(crate) wall: Duration,
}

impl Ran {
    pub(crate) fn mpps(&self) -> f64 {
        self.sent as f64 / ((self.outcome.now - self.outcome.from) as f64 / 1e6)
    }

    /// Returns the CPU time of a packet in nanoseconds, and how much of it was spinning.
    pub(crate) fn per_packet(&self) -> (f64, f64) {
        let all = self.outcome.total();
        let each = |time: Picos| time as f64 / 1000.0 / self.sent as f64;
        (each(all.busy + all.spinning), each(all.spinning))
    }
}

fn device(case: &Case, cpus: u32, sent: &Arc<AtomicU64>) -> NetDev<Sim> {
    let share = cpus.min(case.senders).div_ceil(case.txqs.into());
    let txq_of =
        |cpu: u32| if case.local { cpu / share % u32::from(case.txqs) } else { cpu % u32::from(case.txqs) };
    let masks: Vec<_> = (0..u32::from(case.txqs))
        .map(|txq| {
            let mut mask = CpuMask::new();
            (0..cpus).filter(|&cpu| txq_of(cpu) == txq).for_each(|cpu| mask.set(cpu as usize));
            mask
        })
        .collect();
    let map = XpsMap::from_masks(&masks, case.txqs.into(), cpus as usize).expect("a txq for each CPU");
    let pool = PoolConfig {
        buffers: case.senders * 192 + 4096,
        room: 128,
        headroom: 64,
        backing: Backing::Heap,
        ..PoolConfig::default()
    };
    Builder::new(Box::new(Sink(case.txqs, sent.clone())))
        .pool_config(pool)
        .qdisc("mq")
        .default_qdisc(case.qdisc)
        .discipline(case.discipline)
        .workers(case.txqs.into())
        .xps(map)
        .build()
        .expect("a device")
}

/// Runs a case. A sender has at most 64 packets in flight, and sleeps at that limit.
pub(crate) fn run(case: &Case) -> Ran {
    let machine = machine();
    let mut world = World::new(&machine, 1);
    if !case.pinned {
        world.rehome(MS);
    }
    let cpus = world.cpus();
    let sent = Arc::default();
    let dev = Rc::new(device(case, cpus, &sent));
    for i in 0..case.senders {
        let at = i % cpus;
        let cpu = case.pinned.then_some(at);
        let private = case.private;
        let name = format!("sender {i}");
        let mut sender = match cpu {
            Some(cpu) => dev.sender_on(&name, cpu),
            None => sim::on_cpu(at, || dev.sender(&name)),
        };
        sender.set_limit(64);
        // As if it had been at work for a while: its buffers are in its own stock.
        let mut list = PacketList::new();
        sender.alloc_batch(64, 64, &mut list).expect("the pool is large enough");
        drop(list);
        let task = Task { name, cpu, at: Some(at), ..Task::default() };
        world.spawn(task, move || {
            // Senders start at different times.
            sim::work(sim::random() % 20_000_000);
            loop {
                sim::work(private);
                match sender.alloc(64) {
                    Ok(mut packet) => {
                        packet.data_mut()[..6].copy_from_slice(&[2; 6]);
                        let _ = sender.xmit(packet);
                    }
                    Err(_) => drop(sender.wait_credit(None)),
                }
            }
        });
    }
    for i in 0..usize::from(case.txqs) {
        let worker = dev.worker(i);
        let task = Task { name: format!("worker {i}"), ..Task::default() };
        world.spawn(task, move || worker.run());
    }
    world.warm_up(case.time / 5);
    let begin = Instant::now();
    let outcome = world.run(case.time);
    let wall = begin.elapsed();
    dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    Ran { outcome, sent: sent.load(Relaxed), wall }
}
