//! The place of each CPU, and the distance between two.

use std::ops::Range;

use crate::sim::machine;

/// How far apart two CPUs are; it determines what a line's transfer between them costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Distance {
    /// The same hardware thread.
    Same,
    /// The other thread of a core.
    Core,
    /// Another core of the complex, which shares a last-level cache.
    Complex,
    /// Another complex of the die.
    Die,
    /// Another die of the socket.
    Socket,
    /// Another socket.
    Far,
}

/// The place of a CPU. Each number counts through the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The core.
    pub core: u32,
    /// The complex.
    pub complex: u32,
    /// The die.
    pub die: u32,
    /// The socket, which is a NUMA node.
    pub socket: u32,
}

/// All CPUs of a machine.
#[derive(Debug, Clone)]
pub struct Topology {
    places: Box<[Place]>,
    cores: u32,
    /// Number of cores in a complex, a die, a socket.
    sizes: [u32; 3],
}

impl Topology {
    /// Creates the topology of a machine's description, each number of which is at least 1.
    pub fn new(machine: &machine::Topology) -> Self {
        let n = |count: u32| count.max(1);
        let complex = n(machine.cores);
        let die = complex * n(machine.complexes);
        let socket = die * n(machine.dies);
        let cores = socket * n(machine.sockets);
        let place = |cpu: u32| {
            let core = cpu % cores;
            Place { core, complex: core / complex, die: core / die, socket: core / socket }
        };
        let places = (0..cores * n(machine.threads)).map(place).collect();
        Self { places, cores, sizes: [complex, die, socket] }
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Returns the core of a CPU.
    #[inline]
    pub fn core(&self, cpu: u32) -> u32 {
        if cpu < self.cores { cpu } else { cpu % self.cores }
    }

    /// Returns the place of a CPU.
    pub fn place(&self, cpu: u32) -> Place {
        self.places[cpu as usize]
    }

    /// Returns how far apart two CPUs are.
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        let (p, q) = (self.place(a), self.place(b));
        if p.core == q.core {
            if a == b { Distance::Same } else { Distance::Core }
        } else if p.complex == q.complex {
            Distance::Complex
        } else if p.die == q.die {
            Distance::Die
        } else if p.socket == q.socket {
            Distance::Socket
        } else {
            Distance::Far
        }
    }

    /// Returns the cores that are at most `distance` from a CPU; for `Far`, all cores.
    pub fn within(&self, cpu: u32, distance: Distance) -> Range<u32> {
        let core = self.place(cpu).core;
        let size = match distance {
            Distance::Same | Distance::Core => 1,
            Distance::Complex => self.sizes[0],
            Distance::Die => self.sizes[1],
            Distance::Socket => self.sizes[2],
            Distance::Far => self.cores,
        };
        let first = core - core % size;
        first..first + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two dies of two complexes of three cores of two threads.
    #[test]
    fn each_distance_is_where_linux_numbers_it() {
        let t = Topology::new(&machine::Topology { sockets: 2, dies: 2, complexes: 2, cores: 3, threads: 2 });
        assert_eq!((t.cpus(), t.cores()), (48, 24));
        use Distance::*;
        let of =
            [(0, Same), (24, Core), (2, Complex), (26, Complex), (3, Die), (6, Socket), (12, Far), (47, Far)];
        for (cpu, distance) in of {
            assert_eq!(t.distance(0, cpu), distance, "{cpu}");
            assert_eq!(t.distance(cpu, 0), distance, "{cpu}");
            assert!(t.within(0, distance).contains(&t.place(cpu).core));
        }
        assert_eq!(t.within(16, Die), 12..18);
    }
}
