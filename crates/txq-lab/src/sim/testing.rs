//! Machines for tests.

use crate::sim::machine::{Access, Core, Line, Machine, Os, Topology};

/// Two sockets of one die of two complexes of two cores of two threads: CPUs 0 to 3 and 8 to 11 are in the first socket.
pub(crate) fn machine() -> Machine {
    Machine {
        name: "test".into(),
        topology: Topology { sockets: 2, dies: 1, complexes: 2, cores: 2, threads: 2 },
        access: Access {
            hit: 1.0,
            hit_gap: 0.0,
            rmw: 5.0,
            same_core: 4.0,
            same_complex: 20.0,
            same_die: 45.0,
            same_socket: 60.0,
            other_socket: 180.0,
            memory: 90.0,
            other_memory: 140.0,
        },
        line: Line { snoop: 0.5, hold: 0.5, read_gap: 8.0, stores: 0, loads: 0, crowd: 0.0, ahead: 0 },
        core: Core { pause: 0.0, shared: 1.0, window: 0.0, turbo: Vec::new() },
        os: Os {
            clock: 20.0,
            switch: 1000.0,
            interrupt: 500.0,
            wake: 500.0,
            wakeup: 3000.0,
            slice: 1_000_000.0,
            spin: 1000.0,
        },
    }
}
