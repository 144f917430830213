//! The mounts of a shell: its own `/proc`, and a `resolv.conf`. They are in a mount namespace, and are gone with it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsmount, fsopen, mount, mount_change, move_mount, open_tree,
};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The servers behind systemd-resolved's own address.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// Keeps the mounts that follow in this namespace.
pub(super) fn make_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// Mounts the `/proc` of the calling process' PID namespace. A container may not let it: then `ps` sees the processes outside, too.
pub(super) fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Puts a text over `/etc/resolv.conf`, from a file system in memory.
pub(super) fn cover_resolv_conf(text: &str) -> io::Result<()> {
    // A link is followed here, because a mount does not follow it to a file that is a mount itself.
    let path = fs::canonicalize(RESOLV_CONF)?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let folder = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    File::from(openat(&folder, "resolv.conf", flags, mode)?).write_all(text.as_bytes())?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let file = open_tree(&folder, "resolv.conf", clone)?;
    move_mount(&file, "", CWD, &path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Returns the text for a shell that reaches the machine's network: that of the servers behind a resolver on the loopback address.
/// `None` leaves the file as it is.
pub(super) fn servers_behind_loopback() -> Option<String> {
    let own = fs::read_to_string(RESOLV_CONF).ok()?;
    if !is_local(&own) {
        return None;
    }
    let behind = fs::read_to_string(Path::new(RESOLVED)).ok().filter(|text| !is_local(text));
    if behind.is_none() {
        eprintln!(
            "txq: {RESOLV_CONF} names a server on the loopback address, which is another one in the shell: --dns names a server"
        );
    }
    behind
}

/// Returns whether a loopback address is the only server.
fn is_local(text: &str) -> bool {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let mut servers = servers.filter_map(|server| server.trim().parse::<IpAddr>().ok()).peekable();
    servers.peek().is_some() && servers.all(|server| server.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_loopback_are_out_of_reach() {
        assert!(is_local("# stub\nnameserver 127.0.0.53\noptions edns0\n"));
        assert!(!is_local("nameserver 127.0.0.53\nnameserver 192.0.2.1\n"));
        assert!(!is_local("nameserver 192.0.2.1\n") && !is_local(""));
    }
}
