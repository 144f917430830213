//! The native work, on a machine of one or two simulated CPUs.
//!
//! The device is the native one, and the senders write no packets on either side. Nothing is fitted to the compared times.
//! A line's transfer time is the one measured beside the native point. The cost of plain code comes from one native
//! measurement, one sender through `spinlock`: the part of the simulated atomics is subtracted, and the rest is the same
//! for each of a packet's steps. Two senders, and the other disciplines, are predicted.

use toml::{Table, Value};
use txq::Discipline;
use txq_bench::NATIVE;
use txq_sim::Prices;
use txq_sim::machine::Machine;
use txq_sim::scenario::{Setup, set};

use crate::sweep::plain;

/// The machine whose fields are all replaced.
const BASE: &str = "vm-2";
/// Steps of a packet with a price: each of [`Prices`], except the doorbell, which the null device does not have.
const STEPS: f64 = 7.0;
/// Lines of the null device's own state, on either side of its ring. The ring is charged by its accesses.
const DRIVER_LINES: u64 = 1;
/// How often prices are corrected.
const CORRECTIONS: u32 = 8;
/// The cheapest hit, in nanoseconds, and the number of halvings in the search for the right hit.
const LEAST_HIT: f64 = 0.01;
const HALVINGS: u32 = 12;
/// Virtual time of the measurement, and of the warm-up before, in milliseconds.
const TIME: (f64, f64) = (2.0, 0.5);

/// The machine, and the cost of its plain code.
pub(super) struct Simulated {
    machine: Machine,
    prices: Prices,
}

impl Simulated {
    /// Finds prices with which one sender through `discipline` takes `ns` for a packet. A native core overlaps operations
    /// and may hide the time of atomics. If the simulated atomics alone take longer than `ns`, prices are 0 and a hit is
    /// made cheaper.
    pub(super) fn priced(machine: &Machine, discipline: Discipline, ns: f64) -> anyhow::Result<Self> {
        let mut simulated = Self { machine: machine.clone(), prices: each(0.0) };
        let free = simulated.cpu_ns_per_packet(discipline, 1, None)?;
        if free <= ns {
            let mut price = 0.0;
            let mut is = free;
            // Not every packet takes every step by itself, so the remaining error shrinks each time.
            for _ in 0..CORRECTIONS {
                price += (ns - is) / STEPS;
                simulated.prices = each(price.max(0.0));
                is = simulated.cpu_ns_per_packet(discipline, 1, None)?;
            }
            return Ok(simulated);
        }
        let whole = machine.access.clone();
        let (mut low, mut high) = (LEAST_HIT / whole.hit, 1.0);
        for _ in 0..HALVINGS {
            let part = (low + high) / 2.0;
            simulated.machine.access.hit = whole.hit * part;
            simulated.machine.access.hit_gap = whole.hit_gap * part;
            match simulated.cpu_ns_per_packet(discipline, 1, None)? > ns {
                true => high = part,
                false => low = part,
            }
        }
        Ok(simulated)
    }

    /// Returns the time of a hit, in nanoseconds.
    pub(super) fn hit(&self) -> f64 {
        self.machine.access.hit
    }

    /// Returns a step's price, in nanoseconds.
    pub(super) fn price(&self) -> f64 {
        self.prices.alloc
    }

    /// Simulates the CPU time of a packet, with the given transfer time of a line between the CPUs.
    pub(super) fn cpu_ns_per_packet(
        &self,
        discipline: Discipline,
        threads: u64,
        line_ns: Option<f64>,
    ) -> anyhow::Result<f64> {
        let setup = self.setup(discipline, threads, line_ns)?;
        let figures = plain(&setup).map_err(anyhow::Error::msg)?;
        Ok(figures.get("cpu_ns_per_packet").copied().unwrap_or(f64::INFINITY))
    }

    fn setup(&self, discipline: Discipline, threads: u64, line_ns: Option<f64>) -> anyhow::Result<Setup> {
        let mut table = Table::new();
        let text = |text: &str| Value::String(text.to_owned());
        let whole = |n: u64| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        for (path, value) in [
            ("machine", text(BASE)),
            ("tune", Value::Table(Table::try_from(near(&self.machine, threads as u32, line_ns))?)),
            ("milliseconds", Value::Float(TIME.0)),
            ("warmup", Value::Float(TIME.1)),
            ("device.ring", whole(NATIVE.ring.into())),
            ("device.null", Value::Boolean(true)),
            ("device.completions", text("inline")),
            ("lines.driver", whole(DRIVER_LINES)),
            ("path.qdisc", text(NATIVE.qdisc)),
            ("path.discipline", text(discipline.name())),
            ("workload.kind", text("udp-stream")),
            ("workload.senders", whole(threads)),
            ("workload.bytes", whole(NATIVE.bytes.into())),
            ("workload.credit", whole(NATIVE.limit)),
            ("workload.private", Value::Float(0.0)),
            ("workload.write", Value::Boolean(false)),
            ("workload.pinned", Value::Boolean(true)),
        ] {
            set(&mut table, path, value).map_err(anyhow::Error::msg)?;
        }
        let setup = Setup::of(table).map_err(anyhow::Error::msg)?;
        Ok(Setup { prices: self.prices.clone(), ..setup })
    }
}

fn each(ns: f64) -> Prices {
    let doorbell = 0.0;
    Prices { alloc: ns, free: ns, xmit: ns, enqueue: ns, dequeue: ns, doorbell, drive: ns, reap: ns }
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
    fn the_price_makes_one_sender_take_what_it_took() {
        let machine = Machine::named(BASE).unwrap();
        let simulated = Simulated::priced(&machine, Discipline::Spinlock, 300.0).unwrap();
        let ns = simulated.cpu_ns_per_packet(Discipline::Spinlock, 1, None).unwrap();
        assert!((ns - 300.0).abs() < 3.0 && simulated.price() > 0.0, "{ns} {}", simulated.price());
    }

    #[test]
    fn where_atomics_alone_take_longer_a_hit_is_cheaper() {
        let machine = Machine::named(BASE).unwrap();
        let free = Simulated { machine: machine.clone(), prices: each(0.0) };
        let free = free.cpu_ns_per_packet(Discipline::Spinlock, 1, None).unwrap();
        let simulated = Simulated::priced(&machine, Discipline::Spinlock, 0.9 * free).unwrap();
        let ns = simulated.cpu_ns_per_packet(Discipline::Spinlock, 1, None).unwrap();
        assert!((ns / free - 0.9).abs() < 0.02 && simulated.hit() < machine.access.hit, "{ns} {free}");
        assert_eq!(simulated.price(), 0.0);
    }

    #[test]
    fn two_senders_take_longer_the_longer_a_line_takes() {
        let machine = Machine::named(BASE).unwrap();
        let simulated = Simulated::priced(&machine, Discipline::Spinlock, 300.0).unwrap();
        let [short, long] =
            [20.0, 120.0].map(|way| simulated.cpu_ns_per_packet(Discipline::Spinlock, 2, Some(way)).unwrap());
        assert!(long > 1.2 * short, "{short} {long}");
    }

    #[test]
    fn a_line_takes_the_measured_way() {
        let machine = Machine::named(BASE).unwrap();
        let near = near(&machine, 2, Some(100.0));
        assert_eq!((near.access.same_core, near.access.other_socket), (100.0, 100.0));
        near.check("near").unwrap();
    }
}
