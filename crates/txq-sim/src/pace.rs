//! How fast cores work: what their threads share, and the clock that the cores of a socket have.

use crate::machine::{Core, Picos};
use crate::os::Mode;
use crate::topology::{Place, Topology};

/// The factor on the time of work that changes nothing.
pub(crate) const UNIT: Picos = 1024;

/// The work of all cores, and the resulting factors on the time of work, in parts of [`UNIT`].
pub(crate) struct Pace {
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

impl Pace {
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
    use super::*;
    use crate::testing::machine;

    /// The pace of [`machine`], whose socket has CPUs 0 to 3, and 8 to 11 on the same cores.
    fn pace(turbo: &[f64]) -> (Pace, Topology) {
        let machine = machine();
        let topology = Topology::new(&machine.topology);
        let core = Core { shared: 1.5, turbo: turbo.to_vec(), ..machine.core };
        (Pace::new(&core, &topology), topology)
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
}
