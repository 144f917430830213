//! CPU time: the time that the process uses, the time that its threads wait for a CPU, and the time that others take.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::thread_clock;

/// The kernel counts CPU time in /proc in this many parts of a second (USER_HZ).
const TICKS: f64 = 100.0;

/// Returns the CPU time of all threads of the process, user and system.
fn cpu_time() -> Duration {
    thread_clock::update();
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time of the process at the start of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    cpu: Duration,
    threads: Threads,
}

/// The CPU time that a measurement used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) cpu: Duration,
    /// The share of the time in which threads wanted a CPU that they waited for one; `None` if that is unknown.
    pub(super) waited: Option<f64>,
}

impl Begun {
    pub(super) fn now() -> Self {
        let threads = Threads::now();
        Self { cpu: cpu_time(), threads }
    }

    /// Returns the CPU time since then. Waits are those of threads that live at both times.
    pub(super) fn used(&self) -> Used {
        let cpu = cpu_time() - self.cpu;
        let now = Threads::now();
        let ran = now.ran.saturating_sub(self.threads.ran) as f64;
        let waited = now.waited.saturating_sub(self.threads.waited) as f64;
        Used { cpu, waited: (ran + waited > 0.0).then(|| waited / (ran + waited)) }
    }
}

impl From<Duration> for Used {
    /// Of another process, whose waits are unknown.
    fn from(cpu: Duration) -> Self {
        Self { cpu, waited: None }
    }
}

/// The time that the process's threads ran, and waited for a CPU while they could run, in nanoseconds
/// (/proc/self/task/*/schedstat). 0 on a kernel without these numbers.
#[derive(Clone, Copy, Default)]
struct Threads {
    ran: u64,
    waited: u64,
}

impl Threads {
    fn now() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
        texts.fold(Self::default(), |all, text| {
            let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            Self { ran: all.ran + next(), waited: all.waited + next() }
        })
    }
}

/// The shares of the CPUs' time that others took from a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Taken {
    /// By the hypervisor.
    pub(super) stolen: f64,
    /// By other programs and by interrupts.
    pub(super) others: f64,
}

/// The CPU time of CPUs and of the process at the start of a run.
pub(super) struct Taking<'a> {
    cpus: &'a [u32],
    start: Instant,
    busy: Busy,
    own: f64,
}

impl<'a> Taking<'a> {
    pub(super) fn begin(cpus: &'a [u32]) -> Self {
        Self { cpus, start: Instant::now(), busy: Busy::now(cpus), own: own() }
    }

    /// Returns the shares that others took since then.
    pub(super) fn end(&self) -> Taken {
        let (now, whole) =
            (Busy::now(self.cpus), self.start.elapsed().as_secs_f64() * self.cpus.len() as f64);
        let others = now.worked - self.busy.worked - (own() - self.own);
        // The kernel counts in ticks, so a short run may find more than there is.
        let share = |seconds: f64| (seconds / whole).clamp(0.0, 1.0);
        Taken { stolen: share(now.stolen - self.busy.stolen), others: share(others) }
    }
}

/// Returns the CPU time of the process and of the children that it has waited for, in seconds.
fn own() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before the last bracket may contain spaces. cutime and cstime are the fourteenth and fifteenth number after it.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let children: f64 =
        after.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    cpu_time().as_secs_f64() + children / TICKS
}

/// The seconds that CPUs worked, and that a hypervisor took from them (/proc/stat).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Busy {
    worked: f64,
    stolen: f64,
}

impl Busy {
    fn now(cpus: &[u32]) -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default(), cpus)
    }

    /// Parses /proc/stat; 0 without it.
    fn of(stat: &str, cpus: &[u32]) -> Self {
        cpus.iter().fold(Self::default(), |all, cpu| {
            let name = format!("cpu{cpu}");
            let line = stat.lines().find(|line| line.split(' ').next() == Some(&name));
            let fields = line.into_iter().flat_map(|line| line.split(' ').skip(1));
            // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
            let times: Vec<f64> =
                fields.take(8).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0) / TICKS).collect();
            let at = |fields: &[usize]| fields.iter().filter_map(|field| times.get(*field)).sum::<f64>();
            Self { worked: all.worked + at(&[0, 1, 2, 5, 6]), stolen: all.stolen + at(&[7]) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::bench::lab::{cpus, pin_to};

    #[test]
    fn a_cpu_works_unless_it_idles_or_waits_for_a_disk_or_a_hypervisor_takes_it() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 4000 500 1 2 47 7 0\ncpu1 50 0 0 0 0 0 0 50 0 0\ncpu10 1 1\n";
        let all = [&[0][..], &[0, 1], &[10], &[7]].map(|cpus| Busy::of(stat, cpus));
        let expected = [(1.53, 0.47), (2.03, 0.97), (0.02, 0.0), (0.0, 0.0)];
        for (busy, (worked, stolen)) in all.into_iter().zip(expected) {
            assert!((busy.worked - worked).abs() < 1e-9 && (busy.stolen - stolen).abs() < 1e-9, "{busy:?}");
        }
        assert_eq!(Busy::of("", &[0]), Busy::default());
    }

    /// A thread that runs on another CPU: its time counts at once, and not at the kernel's next tick.
    #[test]
    fn the_time_of_a_running_thread_counts_at_once() {
        let cpus = cpus().expect("CPUs");
        let (stop, up) = (AtomicBool::new(false), Barrier::new(2));
        let (mut exact, mut all) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(cpus[cpus.len() - 1]).expect("the last CPU");
                up.wait();
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            up.wait();
            let mut last = (Instant::now(), cpu_time());
            for _ in 0..200 {
                std::thread::sleep(Duration::from_micros(500));
                let now = (Instant::now(), cpu_time());
                let (wall, cpu) = (now.0 - last.0, now.1 - last.1);
                last = now;
                all += 1;
                // A tick would make it nothing, or several times as much.
                exact += i32::from(cpu > wall / 2 && cpu < wall * 2);
            }
            stop.store(true, Relaxed);
        });
        // Other programs may have had the thread's CPU.
        assert!(exact > all / 4, "{exact} of {all}");
    }

    /// However busy the machine is: two threads on one CPU wait for each other.
    #[test]
    fn threads_that_share_a_cpu_wait_for_it() {
        let cpus = cpus().expect("CPUs");
        let taking = Taking::begin(&cpus);
        let (stop, up) = (AtomicBool::new(false), Barrier::new(3));
        let used = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    pin_to(cpus[0]).expect("the first CPU");
                    up.wait();
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            up.wait();
            let begun = Begun::now();
            while begun.used().cpu < Duration::from_millis(200) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let used = begun.used();
            stop.store(true, Relaxed);
            used
        });
        let counted = fs::read_to_string("/proc/self/schedstat").is_ok();
        assert!(used.waited.is_some_and(|waited| waited > 0.0 && waited < 1.0) || !counted, "{used:?}");
        let taken = taking.end();
        assert!((0.0..=1.0).contains(&taken.others) && (0.0..=1.0).contains(&taken.stolen), "{taken:?}");
    }
}
