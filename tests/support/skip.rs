//! Skips of tests that cannot run here, with the reason on stderr.

use std::io::Write;
use std::path::Path;

/// Returns whether the process may create network namespaces; prints the skip if not.
#[must_use]
pub(crate) fn require_root(test: &str) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    require(test, root, "needs root")
}

/// Returns whether a condition holds; prints the skip if not.
#[must_use]
pub(crate) fn require(test: &str, holds: bool, why: &str) -> bool {
    holds || skip(test, why)
}

/// Returns whether every tool is on the PATH; prints the missing ones if not.
#[must_use]
pub(crate) fn require_tools(test: &str, tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().filter(|tool| !on_path(tool)).copied().collect();
    missing.is_empty() || skip(test, &format!("needs {}", missing.join(", ")))
}

/// Returns whether the machine has TUN and TAP interfaces; prints the skip if not.
#[must_use]
#[allow(dead_code, reason = "few tests need it")]
pub(crate) fn require_tun(test: &str) -> bool {
    Path::new("/dev/net/tun").exists() || skip(test, "needs /dev/net/tun (modprobe tun)")
}

/// Returns whether the kernel has AF_XDP; prints the skip if not.
#[must_use]
#[allow(dead_code, reason = "few tests need it")]
pub(crate) fn require_af_xdp(test: &str) -> bool {
    // Not in libc for musl.
    const AF_XDP: libc::c_int = 44;
    // SAFETY: socket takes integers.
    let socket = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket >= 0 {
        // SAFETY: the descriptor was just opened and has no other owner.
        unsafe { libc::close(socket) };
    }
    socket >= 0 || skip(test, "needs a kernel with AF_XDP")
}

fn on_path(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join(tool).is_file())
    })
}

/// Prints that a part of a test did not run for want of hardware, which no build server has.
#[allow(dead_code, reason = "few tests need it")]
pub(crate) fn note_missing(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}

/// Prints a skip and returns `false`. With `TXQ_NO_SKIP` set a skip is a failure: a build server must not pass because
/// nothing ran.
fn skip(test: &str, why: &str) -> bool {
    assert!(std::env::var_os("TXQ_NO_SKIP").is_none(), "{test} may not be skipped but {why}");
    // Not `eprintln!`: the harness hides its output when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
    false
}
