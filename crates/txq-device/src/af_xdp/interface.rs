//! The interface: what the kernel says of it by name.

use std::io;

use crate::sys::interface::Control;

/// A network interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    /// The MTU when it was opened.
    pub(super) mtu: u32,
    /// `ARPHRD_ETHER` and others.
    pub(super) hardware: u16,
    /// Queues that send and that receive, if the driver says so.
    pub(super) queues: Option<(u32, u32)>,
    control: Control,
}

impl Interface {
    /// Finds an interface of the calling thread's network namespace.
    pub(super) fn find(name: &str) -> io::Result<Self> {
        let control = Control::new()?;
        Ok(Self {
            name: name.to_owned(),
            index: control.index(name)?,
            mtu: control.mtu(name)?,
            hardware: control.hardware(name)?,
            queues: control.queues(name).ok(),
            control,
        })
    }

    /// Returns whether the interface still exists in its network namespace, under any name.
    pub(super) fn exists(&self) -> bool {
        self.control.name(self.index).is_ok()
    }

    /// Returns the present MTU; that of the opening if the interface is gone.
    pub(super) fn mtu_now(&self) -> u32 {
        self.control.name(self.index).and_then(|name| self.control.mtu(&name)).unwrap_or(self.mtu)
    }

    /// Returns whether the interface has a carrier; true if its driver does not say.
    pub(super) fn has_carrier(&self) -> bool {
        self.control.has_carrier(&self.name).unwrap_or(true)
    }

    /// Returns whether frames wait for hardware behind the interface, and not for the CPU.
    pub(super) fn has_hardware(&self) -> bool {
        std::path::Path::new("/sys/class/net").join(&self.name).join("device").exists()
    }
}
