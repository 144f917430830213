//! The other end of a running shell: a program is started in its namespaces.

use std::env;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use txq_control::{Client, Place};

use super::address::End;
use super::{FAR, command, user};
use crate::args::Target;
use crate::common::failure::refused;
use crate::control::failed;

/// Runs a program at the other end of the shell of this name; returns its exit code.
pub(super) fn enter(name: &str, program: &[std::ffi::OsString]) -> anyhow::Result<ExitCode> {
    let timeout = Target::default().timeout.0;
    let client = Client::connect_within(Place::Name(name.to_owned()), timeout).map_err(failed)?;
    let pid = client.pid().context("the system does not name the process of the shell")?;
    let Some((thread, number)) = far_thread(pid) else {
        bail!(
            "the shell \"{name}\" has no other end to enter: start it with --peer or --serve, and enter it from outside"
        );
    };
    drop(client);
    let folder = env::current_dir();
    let open = |path: String| File::open(&path).map_err(refused(path));
    let owner = open(format!("/proc/{pid}/ns/user"))?;
    let kinds = [
        ("net", LinkNameSpaceType::Network),
        ("mnt", LinkNameSpaceType::Mount),
        ("pid_for_children", LinkNameSpaceType::ProcessID),
    ];
    let spaces = kinds
        .map(|(file, kind)| open(format!("/proc/{pid}/task/{thread}/ns/{file}")).map(|file| (file, kind)));
    let entered = |error| refused("the other end cannot be entered")(error);
    if !is_same(&owner, Path::new("/proc/self/ns/user")) {
        move_into_link_name_space(owner.as_fd(), Some(LinkNameSpaceType::User)).map_err(entered)?;
        user::pass_on()?;
    }
    for space in spaces {
        let (file, kind) = space?;
        move_into_link_name_space(file.as_fd(), Some(kind)).map_err(entered)?;
    }
    if let Ok(folder) = folder {
        let _ = env::set_current_dir(folder);
    }
    let program = command(program);
    let (file, arguments) = program.split_first().context("no program")?;
    let mut command = Command::new(file);
    command.envs(super::environment(name, [End::near(number), End::far(number)], true)).args(arguments);
    let status = command.status().map_err(refused(file.display()))?;
    Ok(ExitCode::from(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8))
}

/// Returns the thread that stays in the namespaces of the other end, and the number of the link, which its name has.
fn far_thread(pid: u32) -> Option<(String, u8)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut threads = threads.flatten().map(|thread| thread.file_name().to_string_lossy().into_owned());
    threads.find_map(|thread| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).ok()?;
        let number = name.trim_end().strip_prefix(FAR)?.parse().ok()?;
        Some((thread, number))
    })
}

fn is_same(file: &File, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(other)) {
        (Ok(one), Ok(two)) => (one.dev(), one.ino()) == (two.dev(), two.ino()),
        _ => false,
    }
}
