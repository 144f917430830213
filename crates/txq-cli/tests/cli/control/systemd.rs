//! systemd's judgement of the unit in `contrib/systemd`. No systemd is started: as a first process it would change the machine.

use std::path::Path;
use std::process::Command;

use crate::support::process::run;
use crate::support::skip::require_tools;
use crate::support::tempdir::TempDir;

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd/txq.service");
    std::fs::read_to_string(path).expect("the unit")
}

/// Writes the unit with a line replaced; returns its path.
fn written(folder: &TempDir, from: &str, to: &str) -> String {
    let text = unit();
    assert!(text.contains(from), "{from}");
    let path = folder.path().join("txq.service");
    std::fs::write(&path, text.replace(from, to)).expect("a file");
    path.display().to_string()
}

/// Every key of the unit is known to systemd, and its commands exist.
#[test]
fn systemd_accepts_the_unit() {
    if !require_tools("systemd_accepts_the_unit", &["systemd-analyze"]) {
        return;
    }
    let folder = TempDir::new();
    let verify = |path: &str| {
        let mut command = Command::new("systemd-analyze");
        // The manual pages belong to the package.
        let done = command.args(["verify", "--man=no", path]).output().expect("systemd-analyze");
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let path = written(&folder, "/usr/bin/txq", env!("CARGO_BIN_EXE_txq"));
    let (accepted, said) = verify(&path);
    assert!(accepted && !said.contains("txq.service"), "{said}");
    std::fs::write(
        &path,
        unit().replace("/usr/bin/txq", "/bin/true").replace("WatchdogSec=", "WatchdogSecs="),
    )
    .expect("a file");
    assert!(verify(&path).1.contains("WatchdogSecs"), "a wrong key is found");
}

/// The unit's exposure is at most 3.0 of 10.
#[test]
fn systemd_finds_the_unit_well_confined() {
    if !require_tools("systemd_finds_the_unit_well_confined", &["systemd-analyze"]) {
        return;
    }
    let folder = TempDir::new();
    let path = written(&folder, "/usr/bin/txq", env!("CARGO_BIN_EXE_txq"));
    let judge = |path: &str| {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", "--threshold=30", path]);
        command
    };
    run(&mut judge(&path));
    written(&folder, "DynamicUser=yes", "");
    assert!(!judge(&path).output().expect("systemd-analyze").status.success(), "as root it is exposed more");
}
