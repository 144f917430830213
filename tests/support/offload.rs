//! Switches an interface's offloads off, so that frames are segmented and checksummed before they are captured.

use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Transmit checksum goes first: without it the kernel no longer offers segmentation.
const SET: [(&str, u32); 4] = [
    ("tx checksum", 0x17),
    ("tcp segmentation", 0x1f),
    ("generic segmentation", 0x24),
    ("generic receive", 0x2c),
];

/// The kernel's `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Switches all offloads of `interface` off. Must run in the interface's own namespace.
pub(crate) fn switch_off(interface: &str) {
    set(interface, 0, &SET);
}

/// Lets the interface leave checksums to the card. Must run in the interface's own namespace.
#[allow(dead_code, reason = "few tests want that")]
pub(crate) fn leave_checksums(interface: &str) {
    set(interface, 1, &SET[..1]);
}

fn set(interface: &str, data: u32, offloads: &[(&str, u32)]) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket to name the namespace");
    for &(offload, command) in offloads {
        let mut value = EthtoolValue { command, data };
        let mut request = request_for(interface);
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads the name in `request` and the `ethtool_value` behind its data pointer; both live
        // until the call returns.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        assert_eq!(done, 0, "{interface}: {offload} offload: {}", std::io::Error::last_os_error());
    }
}

fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: `ifreq` holds integers and a raw pointer, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    assert!(interface.len() < request.ifr_name.len(), "{interface}: too long a name");
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}
