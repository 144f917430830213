//! `pasta`, which lets a namespace of an ordinary user reach the network by ordinary sockets. It is Debian's package passt.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use rustix::thread::UnshareFlags;

use super::address::DNS;
use super::space::{Space, in_background};
use super::stage::Orders;
use super::wait_until;
use crate::common::failure::Refused;

/// Returns the path of `pasta`.
pub(super) fn find() -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("pasta")).find(|file| file.is_file());
    found.ok_or_else(|| {
        let text = "an ordinary user's shell reaches the network through `pasta`, which is not on the PATH: install it (`apt install passt`), \
                    be root, or let --peer or --serve give both ends of the link";
        Refused(text.to_owned()).into()
    })
}

/// Starts `pasta` for the namespace of the far end, and waits until that has a route.
pub(super) fn start(far: &Space) -> anyhow::Result<Space> {
    let mut command: Vec<OsString> = vec![find()?.into()];
    let dns = DNS.to_string();
    // Addresses mean what they mean outside, that of the gateway too. Without ports: only the shell connects.
    let options = ["--foreground", "--quiet", "--config-net", "--no-map-gw", "--dns-forward", &*dns];
    command.extend(options.map(OsString::from));
    command.extend(["-t", "none", "-u", "none", "-T", "none", "-U", "none", "--netns"].map(OsString::from));
    command.push(far.network().into());
    let mut pasta = Space::start("pasta", UnshareFlags::empty(), in_background())?;
    pasta.order(Orders { command, ..Orders::default() })?;
    let mut ended = false;
    let has_route = |far: &Space| {
        let routes = far.read("route");
        let mut fields = routes.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        fields.any(|destination| destination == "00000000")
    };
    let ready = wait_until(|| {
        ended = pasta.code().is_some();
        ended || has_route(far)
    });
    if ended || !ready {
        bail!(Refused(
            "pasta gives no way to the network; it has said why above. --peer gives both ends of the link instead".to_owned()
        ));
    }
    Ok(pasta)
}
