//! Checks of `[[socket]]`s: names and paths that must differ, devices that must exist.

use super::super::Config;
use super::super::locate::{Fault, steps};
use super::{own_device, own_name};
use crate::daemon::socket;
use crate::device::{Reception, most_buffers};

/// The longest path of a Unix socket (`sun_path`), without the zero behind it.
const MAX_SUN_PATH_BYTES: usize = 107;

/// Fills in missing names of sockets and of their devices; returns the first contradiction.
pub(super) fn check(config: &mut Config, devices: &[String]) -> Result<(), Fault> {
    let (mut names, mut paths) = (Vec::new(), Vec::new());
    for (index, socket) in config.socket.iter_mut().enumerate() {
        let fault = |key: &'static str, message: String| Fault::new(steps!["socket", index, key], message);
        let shown = socket.path.display().to_string();
        if socket.path.file_name().is_none()
            || !(1..=MAX_SUN_PATH_BYTES).contains(&socket.path.as_os_str().len())
        {
            let remedy = format!("use one of 1 to {MAX_SUN_PATH_BYTES} bytes, such as /run/txq/lan.sock");
            return Err(fault("path", format!("\"{shown}\" cannot be a socket's path: {remedy}")));
        }
        if paths.contains(&socket.path) {
            return Err(fault("path", format!("two sockets have the path {shown}: give one another path")));
        }
        paths.push(socket.path.clone());
        let name =
            own_name("socket", &mut socket.name, &socket.path, &names).map_err(|why| fault("name", why))?;
        names.push(name);
        own_device("socket", &mut socket.device, devices).map_err(|why| fault("device", why))?;
    }
    buffers(config)
}

/// Finds sockets whose clients may have more buffers than the pool of their device: its last client would be refused.
fn buffers(config: &Config) -> Result<(), Fault> {
    for device in &config.device {
        let ends = || config.bridge.iter().flat_map(|bridge| &bridge.devices);
        let is_bridged = ends().any(|end| Some(end) == device.name.as_ref());
        let receive = if is_bridged { Reception::Cut } else { Reception::Off };
        let (mut sum, most) = (0_u64, most_buffers(device, receive));
        for (index, socket) in
            config.socket.iter().enumerate().filter(|(_, socket)| socket.device == device.name)
        {
            sum = sum.saturating_add(socket::buffers(socket));
            if sum > most {
                let key = if socket.credit.is_some() { "credit" } else { "clients" };
                let pool = match device.pool.buffers {
                    Some(_) => "pool.buffers",
                    None => "the longest pool",
                };
                let message = format!(
                    "the clients of the device's sockets may have {sum} buffers, and {pool} is {most}: use fewer clients, or a lower credit"
                );
                return Err(Fault::new(steps!["socket", index, key], message));
            }
        }
    }
    Ok(())
}
