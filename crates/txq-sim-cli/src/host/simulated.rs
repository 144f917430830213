//! The native work, on a machine of one or two simulated CPUs.
//!
//! The device is the native one, and the senders write no packets on either side. Nothing is fitted to the compared times.
//! A line's transfer time is the one measured beside the native point. So is the cost of plain code: senders through `spinlock`
//! that have a queue each, on the same CPUs. Each access takes the same time, with the code around it. Batches, two senders of
//! one queue, and the other disciplines are predicted.

use toml::{Table, Value};
use txq::Discipline;
use txq_bench::NATIVE;
use txq_sim::Prices;
use txq_sim::machine::Machine;
use txq_sim::scenario::{Setup, set};

use crate::sweep::plain;

/// The machine whose fields are all replaced.
const BASE: &str = "vm-2";
/// Lines of the null device's own state, on either side of its ring. The ring is charged by its accesses.
const DRIVER_LINES: u64 = 1;
/// The shortest and the longest time of an access, in nanoseconds.
const HIT: (f64, f64) = (0.01, 100.0);
/// How near the price must come to what was measured, as a part of it, and after how many trials the search ends anyway.
const NEAR: f64 = 0.002;
const TRIALS: u32 = 20;
/// Virtual time of the measurement, and of the warm-up before, in milliseconds. With several senders the warm-up ends when the
/// queue's owners have found out whether leases send more.
const TIME: f64 = 2.0;
const WARM_UP: [f64; 2] = [0.5, 8.0];

/// The machine, with the cost of its plain code.
pub(super) struct Simulated(Machine);

impl Simulated {
    /// Finds the time of an access to a line in the core's cache with which one sender through `NATIVE.priced` takes `ns` for a
    /// packet.
    pub(super) fn priced(machine: &Machine, ns: f64) -> anyhow::Result<Self> {
        // Two times of an access, and the times of a packet with them. The one is nearly proportional to the other.
        let (mut a, mut b) = (1.0, 2.0);
        let mut of_a = Self::with(machine, a).of_one(1)?;
        for _ in 0..TRIALS {
            let of_b = Self::with(machine, b).of_one(1)?;
            if (of_b / ns - 1.0).abs() < NEAR || of_a == of_b {
                break;
            }
            let next = b + (ns - of_b) * (b - a) / (of_b - of_a);
            (a, of_a) = (b, of_b);
            b = next.clamp(HIT.0, HIT.1);
        }
        Ok(Self::with(machine, b))
    }

    /// Returns the machine where an access takes `hit` nanoseconds, with the code around it.
    fn with(machine: &Machine, hit: f64) -> Self {
        let mut machine = machine.clone();
        let access = &mut machine.access;
        (access.hit, access.hit_gap, access.rmw) = (hit, hit, access.rmw.max(hit));
        Self(machine)
    }

    /// Returns the time of a packet from one sender through `NATIVE.priced`, with batches of `batch`.
    fn of_one(&self, batch: u64) -> anyhow::Result<f64> {
        self.cpu_ns_per_packet(NATIVE.priced, 1, batch, None)
    }

    /// Returns the time of an access, in nanoseconds.
    pub(super) fn hit(&self) -> f64 {
        self.0.access.hit
    }

    /// Simulates the CPU time of a packet, with the given transfer time of a line between the CPUs.
    pub(super) fn cpu_ns_per_packet(
        &self,
        discipline: Discipline,
        threads: u64,
        batch: u64,
        line_ns: Option<f64>,
    ) -> anyhow::Result<f64> {
        let setup = self.setup(discipline, threads, batch, line_ns)?;
        let figures = plain(&setup).map_err(anyhow::Error::msg)?;
        Ok(figures.get("cpu_ns_per_packet").copied().unwrap_or(f64::INFINITY))
    }

    fn setup(
        &self,
        discipline: Discipline,
        threads: u64,
        batch: u64,
        line_ns: Option<f64>,
    ) -> anyhow::Result<Setup> {
        let mut table = Table::new();
        let text = |text: &str| Value::String(text.to_owned());
        let whole = |n: u64| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        for (path, value) in [
            ("machine", text(BASE)),
            ("tune", Value::Table(Table::try_from(near(&self.0, threads as u32, line_ns))?)),
            ("milliseconds", Value::Float(TIME)),
            ("warmup", Value::Float(WARM_UP[usize::from(threads > 1)])),
            ("overlap", Value::Boolean(true)),
            ("device.ring", whole(NATIVE.ring.into())),
            ("device.null", Value::Boolean(true)),
            ("device.completions", text("inline")),
            ("lines.driver", whole(DRIVER_LINES)),
            ("path.qdisc", text(NATIVE.qdisc)),
            ("path.discipline", text(discipline.name())),
            ("path.defer_completions", Value::Boolean(true)),
            ("path.leases", Value::Boolean(true)),
            ("workload.kind", text("udp-stream")),
            ("workload.senders", whole(threads)),
            ("workload.bytes", whole(NATIVE.bytes.into())),
            ("workload.credit", whole(NATIVE.limit)),
            ("workload.batch", whole(batch)),
            ("workload.private", Value::Float(0.0)),
            ("workload.write", Value::Boolean(false)),
            ("workload.pinned", Value::Boolean(true)),
        ] {
            set(&mut table, path, value).map_err(anyhow::Error::msg)?;
        }
        let setup = Setup::of(table).map_err(anyhow::Error::msg)?;
        // An access has the price of the code around it.
        Ok(Setup { prices: Prices::FREE, ..setup })
    }
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
        for goal in [40.0, 300.0] {
            let simulated = Simulated::priced(&machine, goal).unwrap();
            let ns = simulated.of_one(1).unwrap();
            assert!((ns / goal - 1.0).abs() < 0.01, "{ns} {}", simulated.hit());
            assert!(simulated.of_one(NATIVE.batch).unwrap() < ns / 4.0);
        }
    }

    #[test]
    fn two_senders_take_longer_the_longer_a_line_takes() {
        let machine = Machine::named(BASE).unwrap();
        let simulated = Simulated::priced(&machine, 100.0).unwrap();
        let [short, long] = [20.0, 1200.0]
            .map(|way| simulated.cpu_ns_per_packet(Discipline::Spinlock, 2, 1, Some(way)).unwrap());
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
