//! The tests on a machine that is too busy for them: what passes here asserts nothing about the machine's speed.

use std::fs;
use std::hint::spin_loop;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::cargo;

/// How many times the tests run if nothing is said.
pub(crate) const TIMES: u32 = 3;
/// CPUs that the tests and the busy loops share, and the number of loops.
const CPUS: usize = 2;
const LOOPS: usize = 8;

/// Runs the tests of some packages, or of all, as many times as said beside busy loops. Goes on after a failure and fails
/// at the end.
pub(crate) fn run(times: u32, packages: &[String]) -> Result<()> {
    let args = test_args(packages);
    // The build needs no test of its patience.
    let mut build = cargo(false, &args);
    crate::run(build.arg("--no-run"))?;
    if !share_cpus()? {
        return Ok(());
    }
    let failed: Vec<String> = beside_loops(|| {
        let failed = (1..=times).filter(|round| {
            println!("busy: run {round} of {times}");
            crate::run(cargo(false, &args).arg("--no-fail-fast")).is_err()
        });
        failed.map(|round| round.to_string()).collect()
    });
    if !failed.is_empty() {
        bail!("the tests failed beside {LOOPS} busy loops in run {} of {times}", failed.join(", "));
    }
    println!("busy: {times} of {times} runs passed beside {LOOPS} busy loops on {CPUS} CPUs");
    Ok(())
}

/// The arguments of cargo that test the packages, or all of them if none is named.
fn test_args(packages: &[String]) -> Vec<&str> {
    let mut args = vec!["test", "--quiet"];
    match packages.is_empty() {
        true => args.push("--workspace"),
        false => args.extend(packages.iter().flat_map(|package| ["--package", package.as_str()])),
    }
    args
}

/// Does `work` while threads of this process spin. They end with it, however it ends.
fn beside_loops<T>(work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&over);
        for _ in 0..LOOPS {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    spin_loop();
                }
            });
        }
        work()
    })
}

/// Restricts this process and those that it starts to two of its CPUs; returns whether that was possible.
fn share_cpus() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = first_cpus(allowed.unwrap_or_default(), CPUS);
    if cpus.len() <= 1 {
        println!("SKIP busy: the tests need {CPUS} CPUs");
        return Ok(false);
    }
    let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut taskset = Command::new("taskset");
    taskset.args(["--pid", "--cpu-list", &list, &std::process::id().to_string()]).stdout(Stdio::null());
    match taskset.status() {
        Ok(status) if status.success() => Ok(true),
        Ok(status) => bail!("{taskset:?}: {status}"),
        Err(error) => {
            println!("SKIP busy: taskset, of util-linux, is not here: {error}");
            Ok(false)
        }
    }
}

/// The first CPUs of a list such as `0-3,8`, as many as there are up to `most`.
fn first_cpus(list: &str, most: usize) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        Some(low.parse::<usize>().ok()?..=high.parse::<usize>().ok()?)
    });
    ranges.flatten().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cpus_of_a_list() {
        for (list, cpus) in
            [("\t0-1\n", &[0, 1][..]), ("3,8-9", &[3, 8]), ("5", &[5]), ("", &[]), ("0-511", &[0, 1])]
        {
            assert_eq!(first_cpus(list, CPUS), cpus, "{list:?}");
        }
    }

    #[test]
    fn packages_are_tested_or_all() {
        assert_eq!(test_args(&[]), ["test", "--quiet", "--workspace"]);
        let named = ["txq".to_owned(), "txq-cli".to_owned()];
        assert_eq!(test_args(&named), ["test", "--quiet", "--package", "txq", "--package", "txq-cli"]);
    }

    #[test]
    fn loops_end_with_the_work() {
        assert_eq!(beside_loops(|| 7), 7);
        assert!(std::panic::catch_unwind(|| beside_loops(|| panic!("as a test does"))).is_err());
    }
}
