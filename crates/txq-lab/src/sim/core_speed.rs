//! How fast cores work: what their threads share, and the clock that the cores of a socket have.

use crate::sim::machine::{Core, Picos};
use crate::sim::os::Mode;
use crate::sim::topology::{Place, Topology};

/// The factor on the time of work that changes nothing.
pub(crate) const UNIT: Picos = 1024;

/// The work of all cores, and the resulting factors on the time of work, in parts of [`UNIT`].
pub(crate) struct CoreSpeed {
    /// The factor beside a busy thread of the same core.
    shared: Picos,
    /// The factors by the number of the socket's cores that are awake, from one; the last holds for more.
    turbo: Box<[Picos]>,
    cores: Box<[Threads]>,
    /// For each socket, the number of cores that are awake.
    awake: Box<[u32]>,
}

/// The threads of a core.
#[derive(Debug, Clone, Copy, Default)]
struct Threads {
    /// Number of threads that work. One that spins leaves the core's units to the others.
    busy: u32,
    /// Number of threads that work or spin.
    awake: u32,
}

impl CoreSpeed {
    pub(crate) fn new(core: &Core, topology: &Topology) -> Self {
        let unit = UNIT as f64;
        let last = core.turbo.last().copied().unwrap_or(1.0);
        let sockets = topology.place(topology.cpus() - 1).socket + 1;
        Self {
            shared: (core.shared * unit).round() as Picos,
            turbo: core.turbo.iter().map(|clock| (last / clock * unit).round() as Picos).collect(),
            cores: vec![Threads::default(); topology.cores() as usize].into(),
            awake: vec![0; sockets as usize].into(),
        }
    }

    /// Notes that a CPU at `place` does something else.
    pub(crate) fn change(&mut self, place: Place, from: Mode, to: Mode) {
        let core = &mut self.cores[place.core as usize];
        let was_awake = core.awake > 0;
        let step = |count: &mut u32, before: bool, after: bool| match (before, after) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        };
        step(&mut core.busy, from == Mode::Busy, to == Mode::Busy);
        step(&mut core.awake, from != Mode::Idle, to != Mode::Idle);
        step(&mut self.awake[place.socket as usize], was_awake, core.awake > 0);
    }

    /// Returns the factor on the time of work of a CPU at `place`.
    #[inline]
    pub(crate) fn slowness(&self, place: Place) -> Picos {
        let clock = match &*self.turbo {
            [] => UNIT,
            turbo => {
                let awake = self.awake[place.socket as usize] as usize;
                turbo[awake.clamp(1, turbo.len()) - 1]
            }
        };
        let beside = self.shared > UNIT && self.cores[place.core as usize].busy > 1;
        if beside { clock * self.shared / UNIT } else { clock }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::sim::machine::Machine;
    use crate::sim::sim;
    use crate::sim::testing::machine;
    use crate::sim::world::{Task, World};

    /// The pace of [`machine`], whose socket has CPUs 0 to 3, and 8 to 11 on the same cores.
    fn pace(turbo: &[f64]) -> (CoreSpeed, Topology) {
        let machine = machine();
        let topology = Topology::new(&machine.topology);
        let core = Core { shared: 1.5, turbo: turbo.to_vec(), ..machine.core };
        (CoreSpeed::new(&core, &topology), topology)
    }

    #[test]
    fn the_clock_falls_with_each_core_that_is_awake() {
        let (mut pace, topology) = pace(&[4.0, 4.0, 2.5, 2.0]);
        let mut slowness = |cpu: u32, from: Mode, to: Mode| {
            pace.change(topology.place(cpu), from, to);
            [0, 4].map(|cpu| pace.slowness(topology.place(cpu)))
        };
        let idle_socket = 512;
        assert_eq!(slowness(0, Mode::Idle, Mode::Busy), [512, idle_socket]);
        // The other thread of the core: it is awake already, and shares its units.
        assert_eq!(slowness(8, Mode::Idle, Mode::Spinning), [512, idle_socket]);
        assert_eq!(slowness(8, Mode::Spinning, Mode::Busy), [768, idle_socket]);
        assert_eq!(slowness(8, Mode::Busy, Mode::Idle), [512, idle_socket]);
        assert_eq!(slowness(1, Mode::Idle, Mode::Spinning), [512, idle_socket]);
        assert_eq!(slowness(2, Mode::Idle, Mode::Busy), [819, idle_socket]);
        assert_eq!(slowness(3, Mode::Idle, Mode::Busy), [1024, idle_socket]);
        assert_eq!(slowness(2, Mode::Busy, Mode::Idle), [819, idle_socket]);
    }

    #[test]
    fn a_clock_that_never_changes_leaves_the_time_of_work() {
        let (mut pace, topology) = pace(&[]);
        for cpu in 0..8 {
            pace.change(topology.place(cpu), Mode::Idle, Mode::Busy);
            assert_eq!(pace.slowness(topology.place(cpu)), UNIT);
        }
        pace.change(topology.place(8), Mode::Idle, Mode::Busy);
        assert_eq!(pace.slowness(topology.place(0)), UNIT * 3 / 2);
    }

    /// Returns how long the slowest of tasks on `cpus` takes for the same work, in parts of the time that one takes alone on a
    /// machine of one clock.
    fn took(core: &Core, cpus: &[u32]) -> f64 {
        let machine = Machine { core: core.clone(), ..machine() };
        let (mut world, most) = (World::new(&machine, 1), Rc::new(Cell::new(0)));
        for &cpu in cpus {
            let most = most.clone();
            world.spawn(Task { cpu: Some(cpu), ..Task::default() }, move || {
                let start = sim::now();
                for _ in 0..100 {
                    sim::work(1_000_000);
                    sim::yield_now();
                }
                most.set(most.get().max(sim::now() - start));
            });
        }
        world.run(10_000_000_000);
        most.get() as f64 / 100e6
    }

    #[test]
    fn tasks_work_at_the_pace_of_their_cores() {
        let core = Core { shared: 1.5, turbo: vec![2.0, 1.0], ..machine().core };
        let near = |cpus: &[u32], time: f64| {
            let took = took(&core, cpus);
            assert!((took / time - 1.0).abs() < 0.05, "{cpus:?}: {took}, not {time}");
        };
        near(&[0], 0.5);
        // The other socket has a clock of its own.
        near(&[0, 4], 0.5);
        near(&[0, 1], 1.0);
        // Two threads of a core.
        near(&[0, 8], 0.75);
        // And another core beside them, which is done after 1: two thirds of their work take 1, and the rest 0.25.
        near(&[0, 8, 1], 1.25);
    }
}
