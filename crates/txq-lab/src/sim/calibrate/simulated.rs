//! The benchmarks of line transfers on the simulated machine, with the code that measures the real one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

use txq_core::arch::{Arch, Atomic, Nanos};

use super::overlap::{Lines, Loads, Times};
use super::visits::Steps;
use crate::sim::{Machine, Picos, Sim, Task, World, sim};

/// Virtual time of a benchmark, in nanoseconds.
const BENCH_TIME: Nanos = 200_000;

fn on(cpu: u32) -> Task {
    Task { cpu: Some(cpu), ..Task::default() }
}

/// Returns the loss of an owner on CPU `a` for each visit from CPU `b`, in nanoseconds.
pub(super) fn visits(machine: &Machine, (a, b): (u32, u32), period: Nanos) -> Option<f64> {
    let mut world = World::new(machine, 1);
    let number = Arc::new(<Sim as Arch>::AtomicU64::new(0));
    let steps = Rc::new(RefCell::new(Steps::default()));
    let (own, taken) = (number.clone(), steps.clone());
    world.spawn(on(a), move || {
        let mut steps = Steps::default();
        steps.take::<Sim>(&own, BENCH_TIME);
        taken.replace(steps);
    });
    world.spawn(on(b), move || {
        while Sim::now() < BENCH_TIME {
            // A tenth more or less: otherwise the two would stay in step.
            sim::work((period * 900 + sim::random() % (period * 200)) as Picos);
            number.fetch_add(1, AcqRel);
        }
    });
    world.run(2 * BENCH_TIME * 1000);
    steps.take().loss()
}

/// Returns how long an addition takes while `cpus` add to the same number, in nanoseconds.
pub(super) fn adds(machine: &Machine, cpus: &[u32]) -> f64 {
    let mut world = World::new(machine, 1);
    let number = Arc::new(<Sim as Arch>::AtomicU64::new(0));
    for &cpu in cpus {
        let number = number.clone();
        world.spawn(on(cpu), move || {
            while !sim::is_ending() {
                number.fetch_add(1, AcqRel);
            }
        });
    }
    let outcome = world.run(BENCH_TIME * 1000);
    BENCH_TIME as f64 / outcome.accesses as f64
}

/// Returns how long CPU `a` takes for each of 64 lines that CPU `b` has written, and for each once more, in nanoseconds.
pub(super) fn loads(machine: &Machine, (a, b): (u32, u32), loads: Loads) -> [Option<f64>; 2] {
    let mut world = World::new(machine, 1);
    let lines = Arc::new(Lines::<Sim>::new(loads));
    let times = Rc::new(RefCell::new(None));
    let (read, taken) = (lines.clone(), times.clone());
    world.spawn(on(a), move || drop(taken.replace(Some(read.read(BENCH_TIME)))));
    world.spawn(on(b), move || lines.write());
    world.run(2 * BENCH_TIME * 1000);
    times.take().map_or([None; 2], Times::medians)
}
