//! A comparison with the running kernel, in unnamed network and mount namespaces, so that nothing is left behind however it
//! ends. Without the rights or the tools, it prints a line that starts with SKIP.

use std::io::Write;
use std::process::Command;

const INSIDE: &str = "TXQ_TEST_INSIDE_NAMESPACE";

/// Calls `compare` in new namespaces, with a sysfs that shows them: the test `name` starts itself again there. An error that
/// `compare` returns names what the machine lacks.
pub(crate) fn compare_inside(name: &str, compare: impl FnOnce() -> Result<(), String>) {
    if std::env::var_os(INSIDE).is_some() {
        // Only a sysfs mounted from inside the namespace shows the namespace's devices.
        let sysfs = succeeds(&["mount", "-t", "sysfs", "sysfs", "/sys"]);
        let lack = "no sysfs in a namespace".to_owned();
        return sysfs.then_some(()).ok_or(lack).and_then(|()| compare()).unwrap_or_else(|lack| skip(&lack));
    }
    if !rustix::process::geteuid().is_root() {
        return skip("not root");
    }
    let tools = [vec!["ip", "-V"], vec!["mount", "-V"], vec!["unshare", "--net", "--mount", "true"]];
    if let Some(missing) = tools.iter().find(|tool| !succeeds(tool)) {
        return skip(&format!("`{}` does not run here", missing.join(" ")));
    }
    let this = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--mount"])
        .arg(this)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "the comparison inside the namespace failed, see above");
}

/// Returns whether a command succeeds.
pub(crate) fn succeeds(command: &[&str]) -> bool {
    Command::new(command[0]).args(&command[1..]).output().is_ok_and(|output| output.status.success())
}

/// Bypasses the capture of the test harness: a skipped comparison must be visible.
fn skip(reason: &str) {
    let _ = writeln!(std::io::stdout(), "\nSKIP {}: {reason}", env!("CARGO_CRATE_NAME"));
}
