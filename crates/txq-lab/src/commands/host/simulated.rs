//! The native work, on a machine of one or two simulated CPUs.
//!
//! The device is the native one, and the senders write no packets on either side. Nothing is fitted to the compared times.
//! A line's transfer time is the one measured beside the native point. So are two prices of plain code, with senders through
//! `spinlock` and `combine` that have a queue each, on the same CPUs. Each access takes the same time, with the code around it,
//! and so does the rest of a call, which works in registers and on the stack. Batches, two senders of one queue, and the other
//! disciplines are predicted.

use crate::bench::{NATIVE, Native, Point};
use crate::sim::Prices;
use crate::sim::machine::Machine;
use crate::sim::moves::Known;
use crate::sim::scenario::{Setup, set};
use crate::sim::state::States;
use toml::{Table, Value};
use txq::Discipline;

use crate::commands::sweep::plain;

/// The machine whose fields are all replaced.
const BASE_MACHINE: &str = "vm-2";
/// Lines of the null device's own state, on either side of its ring. The ring is charged by its accesses.
const DRIVER_LINES: u64 = 1;
/// The shortest and the longest time of an access, in nanoseconds.
const HIT: (f64, f64) = (0.01, 100.0);
/// How near a price must come to what was measured, as a part of it, and after how many trials the search ends anyway.
const CONVERGED_WITHIN: f64 = 0.002;
const TRIALS: u32 = 20;
/// Virtual time of the measurement, and of the warm-up before, in milliseconds. With several senders the warm-up ends when
/// they know that they are busy.
const MEASURED_MS: f64 = 2.0;
const WARM_UP_MS: [f64; 2] = [0.5, 8.0];
/// The virtual time of senders that share CPUs.
const TIME_OF_MANY: f64 = 12.0;
/// The transfer times of a line that are simulated, as parts of the measured one: it changes by as much during a measurement that
/// counts.
const WAYS: [f64; 5] = [0.875, 0.9375, 1.0, 1.0625, 1.125];
/// The CPUs that native senders have, at most.
const NATIVE_CPUS: u64 = 2;

/// What senders do.
pub(super) struct Work {
    qdisc: String,
    flows: u64,
    discipline: Discipline,
    threads: u64,
    batch: u64,
    /// Bits per second of the link below the qdisc.
    link: Option<u64>,
}

/// What a simulation of the work shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// CPU time of a packet handed in, in nanoseconds.
    pub(super) cpu_ns_per_packet: f64,
    /// The part of the packets handed in that the qdisc dropped.
    pub(super) dropped: f64,
}

impl Work {
    /// Returns what the senders of a native configuration do.
    pub(super) fn of(native: &Native) -> Self {
        let Native { ref qdisc, flows, discipline, threads, batch, link, .. } = *native;
        Self { qdisc: qdisc.clone(), flows, discipline, threads, batch, link }
    }

    /// Returns senders of packets through the plain qdisc.
    fn plain(discipline: Discipline, threads: u64, batch: u64) -> Self {
        Self { qdisc: NATIVE.qdisc.to_owned(), flows: 1, discipline, threads, batch, link: None }
    }
}

/// The machine, with the prices of its plain code.
pub(super) struct Simulated {
    machine: Machine,
    /// The price of a call of xmit beside its accesses, in nanoseconds.
    call: f64,
    /// How long code takes, as a multiple of its time where the qdiscs were measured.
    code: f64,
}

impl Simulated {
    /// Finds the prices of an access to a line in the core's cache and of a call with which one sender through each of
    /// `NATIVE.priced` takes `ns` for a packet. A call costs nothing where it would have to cost less: then the first one alone
    /// decides.
    pub(super) fn priced(machine: &Machine, ns: [f64; 2]) -> anyhow::Result<Self> {
        // The call takes as long in both, so their difference depends on the accesses alone.
        let apart = |hit| {
            let machine = Self::with(machine, hit, 0.0);
            Ok(machine.of_one(NATIVE.priced[0])? - machine.of_one(NATIVE.priced[1])?)
        };
        let first = |hit| Self::with(machine, hit, 0.0).of_one(NATIVE.priced[0]);
        let hit = solve(ns[0] - ns[1], CONVERGED_WITHIN * ns[0], apart)?;
        let priced = match ns[0] - first(hit)? {
            call if call > 0.0 => Self::with(machine, hit, call),
            _ => Self::with(machine, solve(ns[0], CONVERGED_WITHIN * ns[0], first)?, 0.0),
        };
        let there = States::known().path_ns;
        Ok(Self { code: (ns[0] / there[0] + ns[1] / there[1]) / 2.0, ..priced })
    }

    /// Returns the machine where an access takes `hit` nanoseconds, with the code around it, and the rest of a call `call`.
    fn with(machine: &Machine, hit: f64, call: f64) -> Self {
        let mut machine = machine.clone();
        let access = &mut machine.access;
        (access.hit, access.hit_gap, access.rmw) = (hit, hit, access.rmw.max(hit));
        Self { machine, call, code: 1.0 }
    }

    /// Returns the time of a packet from one sender of single packets.
    fn of_one(&self, discipline: Discipline) -> anyhow::Result<f64> {
        Ok(self.run(&Work::plain(discipline, 1, 1), 0.0, None)?.cpu_ns_per_packet)
    }

    /// Returns the time of an access, in nanoseconds.
    pub(super) fn hit(&self) -> f64 {
        self.machine.access.hit
    }

    /// Returns the time of a call beside its accesses, in nanoseconds.
    pub(super) fn call(&self) -> f64 {
        self.call
    }

    /// Simulates the work with transfer times of a line around the given one; returns the median by CPU time. The simulation has no
    /// chance: senders that meet may fall into step at one transfer time, and out of it at the next. Real ones do neither for long.
    pub(super) fn typical(&self, work: &Work, point: &Point) -> anyhow::Result<Shown> {
        let beside = point.work_ns;
        let Some(way) = point.line_ns.filter(|_| work.threads > 1) else {
            return self.run(work, beside, point.line_ns);
        };
        let run = |part: &f64| self.run(work, beside, Some(way * part));
        let mut all = WAYS.iter().map(run).collect::<anyhow::Result<Vec<_>>>()?;
        all.sort_by(|a, b| a.cpu_ns_per_packet.total_cmp(&b.cpu_ns_per_packet));
        Ok(all[all.len() / 2])
    }

    /// Simulates the work of senders that spend `beside` nanoseconds for themselves before each packet, with the given transfer time of a
    /// line between the CPUs.
    fn run(&self, work: &Work, beside: f64, line_ns: Option<f64>) -> anyhow::Result<Shown> {
        let setup = self.setup(work, beside.max(0.0), line_ns)?;
        let figures = plain(&setup).map_err(anyhow::Error::msg)?;
        let get = |name: &str, without: f64| figures.get(name).copied().unwrap_or(without);
        let dropped = get("drops_percent", 0.0) / 100.0;
        // The figure is of the packets sent.
        let whole = get("cpu_ns_per_packet", f64::INFINITY) * (1.0 - dropped);
        Ok(Shown { cpu_ns_per_packet: whole - beside.max(0.0), dropped })
    }

    fn setup(&self, work: &Work, beside: f64, line_ns: Option<f64>) -> anyhow::Result<Setup> {
        let &Work { ref qdisc, flows, discipline, threads, batch, link } = work;
        // More senders than CPUs take turns by time slices.
        let cpus = threads.min(NATIVE_CPUS);
        let time = if threads > cpus { TIME_OF_MANY } else { MEASURED_MS };
        let mut table = Table::new();
        let text = |text: &str| Value::String(text.to_owned());
        let whole = |n: u64| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        for (path, value) in [
            ("machine", text(BASE_MACHINE)),
            ("tune", Value::Table(Table::try_from(near(&self.machine, cpus as u32, line_ns))?)),
            ("milliseconds", Value::Float(time)),
            ("warmup", Value::Float(WARM_UP_MS[usize::from(threads > 1)])),
            ("overlap", Value::Boolean(true)),
            ("device.ring", whole(if link.is_some() { NATIVE.link_ring } else { NATIVE.ring }.into())),
            ("device.gbit", Value::Float(link.map_or(0.0, |bits| bits as f64 / 1e9))),
            ("device.null", Value::Boolean(true)),
            ("device.completions", text("inline")),
            ("lines.driver", whole(DRIVER_LINES)),
            ("path.qdisc", text(qdisc)),
            ("workload.flows", whole(flows)),
            ("path.discipline", text(discipline.name())),
            ("path.defer_completions", Value::Boolean(true)),
            ("workload.kind", text("udp-stream")),
            ("workload.senders", whole(threads)),
            ("workload.bytes", whole(NATIVE.bytes.into())),
            ("workload.credit", whole(NATIVE.limit)),
            ("workload.batch", whole(batch)),
            ("workload.private", Value::Float(beside)),
            ("workload.write", Value::Boolean(false)),
            ("workload.pinned", Value::Boolean(true)),
        ] {
            set(&mut table, path, value).map_err(anyhow::Error::msg)?;
        }
        let setup = Setup::of(table).map_err(anyhow::Error::msg)?;
        // An access has the price of the code around it.
        let prices = Prices { xmit: self.call, ..Prices::FREE };
        let known = setup.known.map(|known| Known { scale: self.code, ..known });
        Ok(Setup { prices, known, ..setup })
    }
}

/// Returns the time of an access with which `of` returns `goal`, or comes as near as it can. `of` is nearly linear.
fn solve(goal: f64, near: f64, of: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let (mut a, mut b) = (1.0, 2.0);
    let mut of_a = of(a)?;
    for _ in 0..TRIALS {
        let of_b = of(b)?;
        if (of_b - goal).abs() < near || of_a == of_b {
            break;
        }
        let next = b + (goal - of_b) * (b - a) / (of_b - of_a);
        (a, of_a) = (b, of_b);
        b = next.clamp(HIT.0, HIT.1);
    }
    Ok(b)
}

/// Returns `cpus` cores of one complex, with that transfer time of a line between any two.
fn near(machine: &Machine, cpus: u32, line_ns: Option<f64>) -> Machine {
    let mut near = machine.clone();
    let (t, a) = (&mut near.topology, &mut near.access);
    (t.sockets, t.dies, t.complexes, t.cores, t.threads) = (1, 1, 1, cpus, 1);
    if let Some(way) = line_ns {
        let way = way.max(a.rmw);
        for access in
            [&mut a.same_core, &mut a.same_complex, &mut a.same_die, &mut a.same_socket, &mut a.other_socket]
        {
            *access = way;
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_make_one_sender_take_what_it_took() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        for goals in [[90.0, 45.0], [300.0, 140.0]] {
            let simulated = Simulated::priced(&machine, goals).unwrap();
            for (discipline, goal) in NATIVE.priced.into_iter().zip(goals) {
                let ns = simulated.of_one(discipline).unwrap();
                assert!((ns / goal - 1.0).abs() < 0.01, "{discipline}: {ns} {}", simulated.hit());
            }
            assert!(simulated.call() > 0.0);
            let batches = simulated.run(&Work::plain(NATIVE.priced[0], 1, NATIVE.batch), 0.0, None).unwrap();
            assert!(batches.cpu_ns_per_packet < goals[0] / 4.0, "{batches:?}");
        }
    }

    #[test]
    fn a_call_costs_nothing_where_its_accesses_take_all_the_time() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        let simulated = Simulated::priced(&machine, [300.0, 50.0]).unwrap();
        assert_eq!(simulated.call(), 0.0);
        assert!((simulated.of_one(NATIVE.priced[0]).unwrap() / 300.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn two_senders_take_longer_the_longer_a_line_takes() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        let simulated = Simulated::priced(&machine, [100.0, 50.0]).unwrap();
        let [short, long] = [20.0, 1200.0].map(|way| {
            simulated.run(&Work::plain(Discipline::Spinlock, 2, 1), 0.0, Some(way)).unwrap().cpu_ns_per_packet
        });
        assert!(long > 1.1 * short, "{short} {long}");
    }

    /// A packet of 120 bytes has a wire of 144: the link of 100 Mbit/s sends 86,800 packets a second.
    #[test]
    fn a_qdisc_above_a_link_drops_what_the_link_does_not_send() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        let simulated = Simulated::priced(&machine, [100.0, 50.0]).unwrap();
        let work = Work {
            qdisc: "fq limit 64".to_owned(),
            flows: 100,
            link: Some(100_000_000),
            ..Work::plain(Discipline::Spinlock, 2, 1)
        };
        let Shown { cpu_ns_per_packet, dropped } = simulated.run(&work, 0.0, Some(50.0)).unwrap();
        // Both CPUs hand in packets all the time. The queue fills at first, so a little more than the link sends is not dropped.
        let handed_in = 2.0 * 1e9 / cpu_ns_per_packet;
        let sent = handed_in * (1.0 - dropped);
        assert!((86_000.0..100_000.0).contains(&sent), "{sent} of {handed_in}");
    }

    #[test]
    fn work_between_packets_is_taken_off() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        let simulated = Simulated::priced(&machine, [100.0, 50.0]).unwrap();
        let work = Work { qdisc: "fq".to_owned(), flows: 100, ..Work::plain(Discipline::Spinlock, 1, 1) };
        let ns = |beside| simulated.run(&work, beside, None).unwrap().cpu_ns_per_packet;
        let (flood, at_work) = (ns(0.0), ns(5000.0));
        assert!((0.8..1.25).contains(&(at_work / flood)), "{flood} {at_work}");
    }

    #[test]
    fn a_line_takes_the_measured_way() {
        let machine = Machine::named(BASE_MACHINE).unwrap();
        let near = near(&machine, 2, Some(100.0));
        assert_eq!((near.access.same_core, near.access.other_socket), (100.0, 100.0));
        near.check("near").unwrap();
    }
}
