use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use txq_core::arch::{Arch, Atomic, CellApi, Event};

use crate::sim::arch::{AtomicU32, Sleep};
use crate::sim::testing::machine;
use crate::sim::{CpuUse, Machine, Outcome, Picos, Sim, Task, World, sim};

const US: Picos = 1_000_000;

/// The tasks' notes: text, time in nanoseconds, CPU.
type Log = Rc<RefCell<Vec<(&'static str, Picos, u32)>>>;

struct Lab {
    world: World,
    log: Log,
}

impl Lab {
    fn new() -> Self {
        Self::on(&machine())
    }

    fn on(machine: &Machine) -> Self {
        Self { world: World::new(machine, 7), log: Log::default() }
    }

    /// Spawns a task that can note its time and CPU.
    fn task(&mut self, cpu: Option<u32>, at: u32, f: impl FnOnce(&dyn Fn(&'static str)) + 'static) {
        let log = self.log.clone();
        let task = Task { cpu, at: Some(at), ..Task::default() };
        self.world.spawn(task, move || {
            f(&|what| log.borrow_mut().push((what, sim::now() / 1000, sim::cpu())));
        });
    }

    fn run(self, until: Picos) -> (Vec<(&'static str, Picos, u32)>, Outcome) {
        let outcome = self.world.run(until);
        (self.log.take(), outcome)
    }
}

fn word() -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(0))
}

/// Effects happen in the order of time, whichever task runs first, and each value is read when its access is complete.
#[test]
fn accesses_happen_in_the_order_of_time() {
    let mut lab = Lab::new();
    let w = word();
    for cpu in 0..8 {
        let w = w.clone();
        lab.task(Some(cpu), cpu, move |note| {
            for _ in 0..500 {
                sim::work(sim::random() % 100_000);
                assert!(w.fetch_add(1, SeqCst) < 4000);
                note("added");
            }
        });
    }
    let (log, outcome) = lab.run(1000 * US);
    assert_eq!((w.load(SeqCst), log.len()), (4000, 4000));
    assert!(log.is_sorted_by_key(|&(_, at, _)| at));
    assert_eq!(outcome.accesses, 4000);
}

/// A waiter resumes when the line is written, pays for its miss, and spins until then.
#[test]
fn a_waiter_is_woken_by_the_write() {
    let mut lab = Lab::new();
    let (w, again) = (word(), word());
    let (w2, again2) = (w.clone(), again.clone());
    lab.task(Some(0), 0, move |note| {
        assert_eq!(w.wait_until(SeqCst, |v| v == 2), 2);
        note("seen");
        assert_eq!(again.spin_until(SeqCst, |v| v == 1), None);
        note("given up");
    });
    lab.task(Some(1), 1, move |note| {
        sim::work(50 * US);
        w2.store(1, SeqCst);
        sim::work(50 * US);
        w2.store(2, SeqCst);
        note("written");
        again2.load(SeqCst);
    });
    let (log, outcome) = lab.run(200 * US);
    let at = |what| log.iter().find(|l| l.0 == what).map(|l| l.1).unwrap();
    assert_eq!(at("seen") - at("written"), 20, "the way within a complex, the hold window in it");
    // The spinning load begins with a line from memory; it gives up a microsecond later.
    assert!((1000..1300).contains(&(at("given up") - at("seen"))), "{log:?}");
    let CpuUse { busy, spinning, idle } = outcome.cpus[0];
    assert!((99 * US..103 * US).contains(&spinning), "{spinning}");
    assert!(busy < 2 * US && busy + spinning + idle == outcome.now, "{busy} {idle}");
}

/// A sleeper costs nothing. Its waker pays for the wakeup, and the sleeper runs after the wakeup time. A token from before
/// the sleep ends it at once.
#[test]
fn sleep_and_wake() {
    let mut lab = Lab::new();
    let event = Arc::new(Sleep::new());
    let event2 = event.clone();
    lab.task(Some(0), 0, move |note| {
        event.wait(None);
        note("up");
        sim::work(20 * US);
        let before = sim::now();
        event.wait(None);
        assert!(sim::now() - before < US, "there was a token");
        event.wait(Some(Sim::now() + 10_000));
        note("late");
    });
    lab.task(Some(1), 1, move |note| {
        sim::work(50 * US);
        note("wakes");
        event2.notify();
        note("woken");
        sim::work(5 * US);
        event2.notify();
    });
    let (log, outcome) = lab.run(200 * US);
    // Each of them starts and ends, and the sleeper sleeps twice.
    assert_eq!(outcome.switches, 2 + 2 + 4, "to the tasks, and to none");
    let at = |what| log.iter().find(|l| l.0 == what).map(|l| l.1).unwrap();
    let paid = at("woken") - at("wakes");
    assert!((500..700).contains(&paid), "{paid}");
    let slept = at("up") - at("wakes");
    assert!((3000..3500).contains(&slept), "{slept}");
    assert!((at("late") - at("up")) > 30_000 + 3000, "the way to its CPU after the deadline, too");
    assert!(outcome.cpus[0].idle > 65 * US, "{:?}", outcome.cpus[0]);
    assert!(outcome.stuck.is_empty());
}

/// An interrupt at work is no runnable task.
#[test]
fn interrupts_are_not_runnable() {
    let mut world = World::new(&machine(), 1);
    for (cpu, urgent) in [(0, true), (1, false)] {
        world.spawn(Task { cpu: Some(cpu), urgent, ..Task::default() }, || {
            loop {
                sim::work(US);
                sim::yield_now();
            }
        });
    }
    world.advance(10 * US);
    assert_eq!(world.runnable(), 1);
    world.run(11 * US);
}

/// Three tasks of a CPU share it by slices, with at most one slice of difference; a pinned task stays although other CPUs
/// are idle.
#[test]
fn slices_are_shared() {
    let mut machine = machine();
    machine.os.slice = 100_000.0;
    let mut lab = Lab::on(&machine);
    for name in ["a", "b", "c"] {
        lab.task(Some(3), 3, move |note| {
            loop {
                sim::work(10 * US);
                sim::yield_now();
                note(name);
            }
        });
    }
    let (log, outcome) = lab.run(3000 * US);
    assert!(log.iter().all(|l| l.2 == 3));
    let uses: Vec<_> = outcome.tasks.iter().map(|t| t.busy / US).collect();
    assert!(uses.iter().all(|us| (890..1110).contains(us)), "{uses:?}");
    assert!((25..35).contains(&outcome.switches), "{}", outcome.switches);
    // In runs of a slice, not alternating.
    let runs = log.chunk_by(|a, b| a.0 == b.0).count();
    assert!(runs <= 35, "{runs}");
}

/// A long piece of work is interrupted at the end of the slice, and its rest is done later.
#[test]
fn work_is_cut() {
    let mut machine = machine();
    machine.os.slice = 100_000.0;
    let mut lab = Lab::on(&machine);
    for name in ["long", "other"] {
        lab.task(Some(0), 0, move |note| {
            sim::work(290 * US);
            sim::yield_now();
            note(name);
        });
    }
    let (log, _) = lab.run(1000 * US);
    let ends: Vec<_> = log.iter().map(|l| (l.0, l.1 / 10_000)).collect();
    assert_eq!(ends, [("long", 49), ("other", 58)]);
}

/// A spinner yields its CPU to a waiting task after `os.spin`, and gets it back when the word that it waits for is written.
#[test]
fn a_spinner_gives_its_cpu_away() {
    let mut lab = Lab::new();
    let w = word();
    let w2 = w.clone();
    lab.task(Some(0), 0, move |note| {
        w.wait_until(SeqCst, |v| v == 1);
        note("seen");
    });
    lab.task(Some(0), 0, move |note| {
        note("its turn");
        sim::work(30 * US);
        w2.store(1, SeqCst);
        note("written");
    });
    let (log, outcome) = lab.run(1000 * US);
    let at = |what| log.iter().find(|l| l.0 == what).map(|l| l.1).unwrap();
    // A wake-up, a microsecond of spinning, a switch.
    assert!((5000..5300).contains(&at("its turn")), "{log:?}");
    assert!((1000..1300).contains(&(at("seen") - at("written"))), "{log:?}");
    assert_eq!(outcome.cpus[0].spinning, US);
}

/// A task that is not pinned goes to an idle CPU, and a CPU that becomes idle takes a waiting task.
#[test]
fn tasks_migrate() {
    let mut lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.task(None, 2, move |note| {
            sim::work(10 * US);
            note(name);
        });
    }
    let (log, outcome) = lab.run(1000 * US);
    let mut cpus: Vec<_> = log.iter().map(|l| l.2).collect();
    cpus.sort_unstable();
    assert_eq!(cpus, [2, 3, 11], "the same CPU, the other core of the complex, and its second thread");
    assert_eq!(outcome.migrations, 2);

    let mut lab = Lab::new();
    let cpus = lab.world.cpus();
    for cpu in 0..cpus {
        lab.task(Some(cpu), cpu, move |_| sim::work(if cpu == 5 { 20 * US } else { 500 * US }));
    }
    lab.task(None, 2, |note| {
        note("pulled");
        sim::work(US);
    });
    let (log, _) = lab.run(1000 * US);
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].2, log[0].1 / 1000), (5, 24), "by the first CPU that has nothing to do");
}

/// An interrupted task keeps its CPU: a CPU that becomes idle meanwhile does not take it.
#[test]
fn who_is_interrupted_stays() {
    let mut lab = Lab::new();
    lab.task(None, 2, |note| {
        sim::work(50 * US);
        note("done");
    });
    lab.world
        .spawn(Task { cpu: Some(2), start: 10 * US, urgent: true, ..Task::default() }, || sim::work(20 * US));
    for cpu in (0..lab.world.cpus()).filter(|&cpu| cpu != 2) {
        lab.task(Some(cpu), cpu, |_| sim::work(15 * US));
    }
    let (log, outcome) = lab.run(1000 * US);
    assert_eq!((log[0].2, log[0].1 / 1000, outcome.migrations), (2, 73, 0), "and the way to its CPU");
}

/// An interrupt that arrives while another one runs is next, before the task that both interrupted.
#[test]
fn interrupts_go_before_who_was_interrupted() {
    let mut lab = Lab::new();
    lab.task(Some(2), 2, |note| {
        sim::work(50 * US);
        note("done");
    });
    for (start, name) in [(10, "first"), (12, "second")] {
        let log = lab.log.clone();
        let task = Task { cpu: Some(2), start: start * US, urgent: true, ..Task::default() };
        lab.world.spawn(task, move || {
            sim::work(5 * US);
            log.borrow_mut().push((name, sim::now() / 1000, sim::cpu()));
        });
    }
    let (log, _) = lab.run(1000 * US);
    assert_eq!(log.iter().map(|l| l.0).collect::<Vec<_>>(), ["first", "second", "done"], "{log:?}");
}

/// A softirq runs at once on the CPU that raised it, and costs the raising task only time.
#[test]
fn a_softirq_runs_where_it_is_raised() {
    let mut lab = Lab::new();
    let event = Arc::new(Sleep::new());
    let (event2, log) = (event.clone(), lab.log.clone());
    lab.world.spawn(Task { at: Some(5), urgent: true, raised: true, ..Task::default() }, move || {
        loop {
            event.wait(None);
            log.borrow_mut().push(("softirq", sim::now() / 1000, sim::cpu()));
            sim::work(5 * US);
        }
    });
    for cpu in [1, 2] {
        let event = event2.clone();
        lab.task(Some(cpu), cpu, move |note| {
            sim::work(Picos::from(cpu) * 50 * US);
            note("raises");
            event.notify();
            sim::work(US);
            sim::yield_now();
            note("goes on");
        });
    }
    let (log, _) = lab.run(200 * US);
    let at = |what, cpu| log.iter().find(|l| (l.0, l.2) == (what, cpu)).map(|l| l.1).expect(what);
    for cpu in [1, 2] {
        assert!(at("softirq", cpu) - at("raises", cpu) < 500, "{log:?}");
        let lost = at("goes on", cpu) - at("raises", cpu);
        assert!((6000..6500).contains(&lost), "{lost}");
    }
}

#[test]
fn tasks_are_moved_now_and_then() {
    let mut lab = Lab::new();
    lab.world.rehome(100 * US);
    for pinned in [Some(0), None] {
        lab.task(pinned, 1, move |note| {
            for _ in 0..1000 {
                sim::work(5 * US);
                sim::yield_now();
                note(if pinned.is_some() { "pinned" } else { "free" });
            }
        });
    }
    let (log, outcome) = lab.run(5000 * US);
    assert!((30..70).contains(&outcome.migrations), "{}", outcome.migrations);
    assert!(log.iter().all(|l| l.0 == "free" || l.2 == 0));
}

/// A task that waits for its CPU moves as well: a task that is interrupted for long continues elsewhere.
#[test]
fn who_is_interrupted_for_long_is_moved() {
    let mut lab = Lab::new();
    lab.world.rehome(100 * US);
    lab.task(None, 2, |note| {
        sim::work(50 * US);
        note("done");
    });
    let work = || sim::work(5000 * US);
    lab.world.spawn(Task { cpu: Some(2), start: 10 * US, urgent: true, ..Task::default() }, work);
    let (log, outcome) = lab.run(10_000 * US);
    assert_eq!(outcome.migrations, 1);
    assert!(log[0].2 != 2 && log[0].1 < 300_000, "{log:?}");
}

/// When the time is over, tasks end where they hold no lock. Their values are dropped, and in those drops tasks may still
/// wait for each other.
#[test]
fn tasks_are_unwound() {
    struct Locked(Arc<AtomicU32>, Rc<RefCell<u32>>);
    impl Drop for Locked {
        fn drop(&mut self) {
            while self.0.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
                self.0.wait_until(SeqCst, |v| v == 0);
            }
            Sim::work(1000);
            self.0.store(0, SeqCst);
            *self.1.borrow_mut() += 1;
        }
    }
    let mut world = World::new(&machine(), 1);
    let (lock, dropped) = (word(), Rc::new(RefCell::new(0)));
    for cpu in 0..6 {
        let locked = Locked(lock.clone(), dropped.clone());
        world.spawn(Task { cpu: Some(cpu), ..Task::default() }, move || {
            let _locked = locked;
            let never = Sleep::new();
            if cpu % 2 == 0 {
                never.wait(None);
            }
            loop {
                sim::work(US);
                let _ = lock_free(cpu);
            }
        });
    }
    let w = word();
    world.spawn(Task { name: "lost".into(), ..Task::default() }, move || {
        w.wait_until(SeqCst, |v| v == 1);
    });
    let outcome = world.run(100 * US);
    assert_eq!(*dropped.borrow(), 6);
    assert_eq!(outcome.stuck, ["lost"]);
}

fn lock_free(cpu: u32) -> u32 {
    let cell = crate::sim::arch::SimCell::new(cpu);
    // SAFETY: the cell is this function's own.
    cell.with(|c| unsafe { *c })
}

#[test]
#[should_panic(expected = "as the test wants")]
fn a_task_that_panics_ends_its_world() {
    let mut world = World::new(&machine(), 1);
    world.spawn(Task::default(), || sim::work(US));
    world.spawn(Task::default(), || panic!("as the test wants"));
    world.run(100 * US);
}
