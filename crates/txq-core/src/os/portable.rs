//! Any system, by std alone: every thread runs on CPU 0, the clock starts with the process, and memory comes from the global
//! allocator only.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Instant;

/// Returns 0: std does not name the CPU. Stocks and queues chosen by CPU are then those of CPU 0, for all threads.
#[inline]
pub(crate) fn cpu() -> u32 {
    0
}

/// Returns the time since the process's first call.
#[inline]
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// An anonymous mapping, which std cannot create: there is none.
#[derive(Debug)]
pub(crate) enum Mapping {}

impl Mapping {
    /// Refuses every mapping, of ordinary and of huge pages.
    ///
    /// # Errors
    /// Always, [`io::ErrorKind::Unsupported`].
    pub(crate) fn new(_len: usize, _huge: bool) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "txq maps memory on Linux only"))
    }

    /// Never called.
    pub(crate) fn populate(&self, _part: std::ops::Range<usize>) {
        match *self {}
    }

    /// Never called.
    pub(crate) fn base(&self) -> NonNull<u8> {
        match *self {}
    }

    /// Never called.
    pub(crate) fn len(&self) -> usize {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn the_clock_is_one_for_all_threads_and_runs() {
        let before = now();
        let other = thread::spawn(|| {
            thread::sleep(Duration::from_millis(1));
            now()
        });
        let between = other.join().unwrap();
        assert!(before + 1_000_000 <= between, "{before} {between}");
        assert!(between <= now());
    }

    #[test]
    fn every_thread_is_on_cpu_0() {
        assert_eq!((cpu(), thread::spawn(cpu).join().unwrap()), (0, 0));
    }

    #[test]
    fn every_mapping_is_refused() {
        for huge in [false, true] {
            let refused = Mapping::new(4096, huge).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::Unsupported));
        }
    }
}
