//! Independent runs side by side on the host's CPUs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use txq_cli::common::span::Human;

/// Returns the number of CPUs that this process may use.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Calls `run` for each item on up to `threads` threads, in the items' order, and `done` on the caller's thread with each
/// result as it comes. When `done` returns false, no other item begins; those that have begun still come to `done`.
pub(super) fn parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    run: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(usize, R) -> bool,
) {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let (send, next, run) = (send.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    // Fewer than a count of items per thread are added beyond the end.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    if send.send((at, run(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (at, result) in receive {
            if !done(at, result) {
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    });
}

/// Returns the progress: finished runs of all, called `unit`, and an estimate of the remaining time.
pub(super) fn progress(done: usize, all: usize, unit: &str, took: Duration) -> String {
    let line = format!("{done}/{all} {unit}");
    if done == 0 || done == all {
        return line;
    }
    let left = took.as_nanos() * (all - done) as u128 / done as u128;
    format!("{line}, about {} left", Human(u64::try_from(left).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_points_left() {
        assert_eq!(progress(0, 5, "points", Duration::ZERO), "0/5 points");
        assert_eq!(progress(2, 5, "points", Duration::from_secs(4)), "2/5 points, about 6.00 s left");
        assert_eq!(progress(5, 5, "points", Duration::from_secs(4)), "5/5 points");
    }

    #[test]
    fn every_item_has_its_result_until_done_says_no() {
        let items: Vec<u32> = (0..50).collect();
        let mut squares = vec![None; 50];
        parallel(
            &items,
            3,
            |item| item * item,
            |at, square| {
                squares[at] = Some(square);
                true
            },
        );
        assert!((0..50).all(|n| squares[n as usize] == Some(n * n)));
        let mut seen = Vec::new();
        parallel(
            &items,
            1,
            |item| *item,
            |at, _| {
                seen.push(at);
                at < 3
            },
        );
        // The thread may begin a few more before it learns of the end.
        assert!(seen.len() >= 4 && seen.iter().enumerate().all(|(n, at)| n == *at), "{seen:?}");
    }
}
