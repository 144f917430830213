//! The tunnel without txq, as such programs are usually written: read, encrypt, send; receive, decrypt, write.

use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::Options;
use crate::peer::{MTU, Peer};

/// Carries packets until the process ends.
pub(crate) fn run(options: &Options, peer: &Arc<Peer>) -> Result<()> {
    let tun = Arc::new(open(&options.tun)?);
    let socket = Arc::new(UdpSocket::bind(options.listen)?);
    let send = |socket: &Arc<UdpSocket>| {
        let socket = Arc::clone(socket);
        move |to, message: &[u8]| drop(socket.send_to(message, to))
    };
    let (timers, sends) = (Arc::clone(peer), send(&socket));
    thread::spawn(move || timers.keep_time(sends));
    let (outward, packets, sends) = (Arc::clone(peer), Arc::clone(&tun), send(&socket));
    thread::spawn(move || {
        let (mut packet, mut out) = ([0; 2048], [0; 2200]);
        while let Ok(len) = (&*packets).read(&mut packet) {
            let message = outward.lock().encrypt(&packet[..len], &mut out);
            if let Some((to, len @ 1..)) = message {
                sends(to, &out[..len]);
            }
        }
    });
    let (mut message, mut out, mut answers) = ([0; 65536], [0; 65536], send(&socket));
    loop {
        let (len, from) = socket.recv_from(&mut message)?;
        let packet = peer.lock().decrypt(from, &message[..len], &mut out, &mut answers);
        if let Some(len) = packet {
            (&*tun).write_all(&out[..len])?;
        }
    }
}

/// Opens a TUN interface and brings it up.
fn open(name: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun").context("/dev/net/tun")?;
    // `struct ifreq`: the name, then the flags IFF_TUN | IFF_NO_PI.
    let mut request = [0_u8; 40];
    ensure!(name.len() < 16, "--tun {name}: longer than 15 bytes");
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
    // SAFETY: the descriptor is open, and the kernel reads and writes a `struct ifreq`, whose 40 bytes `request` holds.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    ensure!(result == 0, "--tun {name}: {}", std::io::Error::last_os_error());
    let set = Command::new("ip").args(["link", "set", name, "mtu", &MTU.to_string(), "up"]).status()?;
    ensure!(set.success(), "ip link set {name} up failed");
    Ok(file)
}
