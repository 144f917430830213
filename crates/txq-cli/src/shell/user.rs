//! Capabilities, and the user namespace in which a user without them has all.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::unshare;
use crate::common::failure::Refused;

/// Returns whether this process can make namespaces and interfaces.
pub(super) fn is_capable() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|own| own.effective.contains(needed))
}

/// Moves this process, which has one thread, to a user namespace in which its user has the same number and all capabilities. Programs
/// that it starts have them, too.
pub(super) fn enter() -> anyhow::Result<()> {
    // The numbers in the namespace of before.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let enter = || -> io::Result<()> {
        unshare(UnshareFlags::NEWUSER)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        pass_on()
    };
    enter().map_err(|error| {
        Refused(format!(
            "a user namespace cannot be made: {error}: this system keeps them from users (`sysctl kernel.unprivileged_userns_clone=1`, \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or a container's seccomp profile): run as root, or change that"
        ))
        .into()
    })
}

/// Lets programs that this process starts have its capabilities.
pub(super) fn pass_on() -> io::Result<()> {
    let own = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: own.permitted, ..own })?;
    for capability in own.permitted.iter().filter(|one| one.bits().count_ones() == 1) {
        // One that this kernel does not have.
        if configure_capability_in_ambient_set(capability, true).is_err() {
            continue;
        }
    }
    Ok(())
}

/// Gives up all capabilities.
pub(super) fn renounce() -> io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
