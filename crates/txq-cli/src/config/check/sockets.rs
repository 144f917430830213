//! Checks of `[[socket]]`s: names and paths that must differ, devices that must exist.

use super::super::Config;
use super::super::locate::{Fault, steps};
use super::own_device;

/// The longest path of a Unix socket (`sun_path`), without the zero behind it.
const LONGEST: usize = 107;

/// Fills in missing names of sockets and of their devices; returns the first contradiction.
pub(super) fn check(config: &mut Config, devices: &[String]) -> Result<(), Fault> {
    let mut earlier: Vec<(String, std::path::PathBuf)> = Vec::new();
    for (index, socket) in config.socket.iter_mut().enumerate() {
        let fault = |key: &'static str, message: String| Fault::new(steps!["socket", index, key], message);
        let shown = socket.path.display().to_string();
        if socket.path.file_name().is_none() || !(1..=LONGEST).contains(&socket.path.as_os_str().len()) {
            let remedy = format!("use one of 1 to {LONGEST} bytes, such as /run/txq/lan.sock");
            return Err(fault("path", format!("\"{shown}\" cannot be a socket's path: {remedy}")));
        }
        let stem =
            socket.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = socket.name.get_or_insert(stem).clone();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let remedy = "add a name of 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
            return Err(fault("name", format!("\"{name}\" cannot name a socket: {remedy}")));
        }
        if earlier.iter().any(|(_, path)| *path == socket.path) {
            return Err(fault("path", format!("two sockets have the path {shown}: give one another path")));
        }
        if earlier.iter().any(|(other, _)| *other == name) {
            return Err(fault("name", format!("two sockets are called \"{name}\": give one another name")));
        }
        earlier.push((name, socket.path.clone()));
        own_device("socket", &mut socket.device, devices).map_err(|why| fault("device", why))?;
    }
    Ok(())
}
