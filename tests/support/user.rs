//! Another user of the machine, on a thread of its own.

/// The user and the group `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// Runs `f` on a thread with another user and group, and without supplementary groups.
pub(crate) fn as_user<T: Send>(uid: u32, gid: u32, f: impl FnOnce() -> T + Send) -> T {
    let become_user = || {
        // SAFETY: the calls take integers and a null list of length 0. Made directly, they change this thread alone.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
    };
    let run = move || {
        become_user();
        f()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}
