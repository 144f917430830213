//! What the process's epolls wait for, as the kernel tells (`proc_pid_fdinfo(5)`).

use std::ffi::c_int;
use std::fs;

/// One registration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) epoll: c_int,
    pub(crate) target: c_int,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// Returns all registrations of the process.
pub(crate) fn all() -> Vec<Registered> {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let epolls = descriptors.flatten().filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]")
    });
    let numbers: Vec<c_int> = epolls.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let text = |epoll: &c_int| fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).unwrap_or_default();
    numbers.iter().flat_map(|epoll| parse(*epoll, &text(epoll))).collect()
}

fn parse(epoll: c_int, text: &str) -> Vec<Registered> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let target = words.next()?.parse().ok()?;
        let mut number =
            |name: &str| u64::from_str_radix((words.next()? == name).then(|| words.next())??, 16).ok();
        Some(Registered { epoll, target, events: number("events:")? as u32, data: number("data:")? })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_found() {
        // SAFETY: the calls take integers and an event of this frame; the descriptors are the test's own.
        let (epoll, target, data) = unsafe {
            let (epoll, target) = (libc::epoll_create1(0), libc::eventfd(0, 0));
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0x1234_5678_9abc_def0 };
            assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, target, &raw mut event), 0);
            (epoll, target, event.u64)
        };
        let found = all();
        let one = found.iter().find(|one| one.epoll == epoll).expect("the registration");
        assert_eq!((one.target, one.events & libc::EPOLLIN as u32, one.data), (target, 1, data));
        // SAFETY: as above.
        unsafe { (libc::close(epoll), libc::close(target)) };
        assert_eq!(parse(3, "pos:\t0\nflags:\t02\ntfd: x events: 1 data: 2\n"), []);
    }
}
