//! Checks of `[[socket]]`s: names and paths that must differ, devices that must exist.

use super::super::Config;
use super::super::locate::{Fault, steps};

/// The longest path of a Unix socket (`sun_path`), without the zero behind it.
const LONGEST: usize = 107;

/// Fills in missing names of sockets and of their devices; returns the first contradiction.
pub(super) fn check(config: &mut Config, devices: &[String]) -> Result<(), Fault> {
    let mut earlier: Vec<(String, std::path::PathBuf)> = Vec::new();
    for (index, socket) in config.socket.iter_mut().enumerate() {
        let fault =
            |key: &'static str, message: String| Err(Fault::new(steps!["socket", index, key], message));
        let shown = socket.path.display().to_string();
        if socket.path.file_name().is_none() || !(1..=LONGEST).contains(&socket.path.as_os_str().len()) {
            let remedy = format!("use one of 1 to {LONGEST} bytes, such as /run/txq/lan.sock");
            return fault("path", format!("\"{shown}\" cannot be a socket's path: {remedy}"));
        }
        let stem =
            socket.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = socket.name.get_or_insert(stem).clone();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let remedy = "add a name of 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
            return fault("name", format!("\"{name}\" cannot name a socket: {remedy}"));
        }
        if earlier.iter().any(|(_, path)| *path == socket.path) {
            return fault("path", format!("two sockets have the path {shown}: give one another path"));
        }
        if earlier.iter().any(|(other, _)| *other == name) {
            return fault("name", format!("two sockets are called \"{name}\": give one another name"));
        }
        earlier.push((name, socket.path.clone()));
        match &socket.device {
            Some(device) if !devices.contains(device) => {
                let known = devices.join(", ");
                let message = match devices {
                    [] => format!("a socket's device \"{device}\" does not exist: write a [[device]]"),
                    _ => format!("a socket's device \"{device}\" does not exist: use one of {known}"),
                };
                return fault("device", message);
            }
            None if devices.len() != 1 => {
                let remedy = match devices.first() {
                    Some(first) => format!("add device = \"{first}\" or another"),
                    None => "write a [[device]]".to_owned(),
                };
                return fault("device", format!("a socket does not say its device: {remedy}"));
            }
            _ => {}
        }
        socket.device.get_or_insert_with(|| devices[0].clone());
    }
    Ok(())
}
