//! The devices that commands can reach: those of the program, and those that commands made.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use txq::NetDev;
use txq::netdev::{NetDevRef, WeakNetDev};

use crate::Error;
use crate::changes::Changes;
use crate::scheduler::{Mailbox, SchedulerPort};
use crate::target::Target;

/// The properties of a device that a command asks for (`txq dev add`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewDevice {
    /// The name, at most 15 bytes, unused so far.
    pub name: String,
    /// What the device is, in a word: `dummy` if the command does not say. The program knows which words it accepts.
    pub kind: String,
    /// The words after `type` and the kind, as pairs of a key and its value.
    pub options: Vec<(String, String)>,
    /// The number of txqs, 1 if the command does not say.
    pub txqs: u16,
    /// The default limit of qdiscs, in packets.
    pub tx_queue_len: Option<u32>,
    /// The longest packet without its link-layer header, in bytes.
    pub mtu: Option<u32>,
    /// Whether the client's user is the program's own, or root. Any other client may not have files, interfaces and sockets opened: the
    /// program would open them with permissions that the client lacks.
    pub by_owner: bool,
}

/// The program's function that makes a device for a command.
pub(crate) type Make =
    dyn Fn(&NewDevice) -> Result<NetDev, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static;

/// The program's function that returns more counters of a device.
pub(crate) type More = dyn Fn(&str) -> Vec<(String, u64)> + Send + Sync + 'static;

/// The program's function that ends what uses a device, which a command removes.
pub(crate) type Removed = dyn Fn(&str) + Send + Sync + 'static;

/// All devices that commands can reach; each has a name of its own.
#[derive(Default)]
pub(crate) struct Devices {
    // Dropped before the devices: what the functions have may use them.
    make: Option<Box<Make>>,
    more: Option<Box<More>>,
    removed: Option<Box<Removed>>,
    known: Mutex<Known>,
    changes: Changes,
}

#[derive(Default)]
struct Known {
    /// The program's devices. Those that it has shut down or dropped are removed at the next addition.
    lent: Vec<WeakNetDev>,
    /// The devices that commands made.
    made: Vec<NetDev>,
    /// The names of devices that commands make now.
    making: Vec<String>,
    /// The program's schedulers. Those that it no longer serves are removed at the next addition.
    schedulers: Vec<Arc<Mailbox>>,
}

/// Why a device is not added.
pub(crate) enum NotAdded {
    /// The name is taken.
    Exists,
    /// The program makes no devices for commands.
    Unsupported,
    /// The program's function failed.
    Failed(Box<dyn StdError + Send + Sync>),
}

/// Why a scheduler is not added.
pub(crate) enum SchedulerError {
    /// The name is taken.
    Taken,
    /// The system gives no descriptor.
    System(io::Error),
}

/// Why a device is not removed.
pub(crate) enum NotRemoved {
    /// No device has the name.
    Absent,
    /// The device is the program's own.
    InUse,
}

impl Known {
    fn schedulers(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.schedulers.iter().filter(|mailbox| !mailbox.is_closed())
    }

    fn has(&self, name: &str) -> bool {
        let lent = self.lent.iter().filter_map(WeakNetDev::upgrade);
        lent.map(|dev| dev.info().name == name)
            .chain(self.made.iter().map(|dev| dev.info().name == name))
            .chain(self.schedulers().map(|mailbox| mailbox.name() == name))
            .chain(self.making.iter().map(|making| making == name))
            .any(|is| is)
    }
}

impl Devices {
    /// Sets the function that makes devices for commands.
    pub(crate) fn set_make(&mut self, make: Box<Make>) {
        self.make = Some(make);
    }

    /// Sets the function that returns more counters of a device.
    pub(crate) fn set_more(&mut self, more: Box<More>) {
        self.more = Some(more);
    }

    /// Sets the function that ends what uses a device.
    pub(crate) fn set_removed(&mut self, removed: Box<Removed>) {
        self.removed = Some(removed);
    }

    /// Returns the program's own counters of a device.
    pub(crate) fn more(&self, name: &str) -> Vec<(String, u64)> {
        self.more.as_ref().map_or_else(Vec::new, |more| more(name))
    }

    /// Returns the connections that watch commands.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a device of the program, which commands cannot remove; an error if another one has the name.
    pub(crate) fn lend(&self, dev: &NetDev) -> Result<(), Error> {
        let (mut known, weak) = (self.known(), dev.downgrade());
        known.lent.retain(|other| other.upgrade().is_some() && !other.is_same(&weak));
        if known.has(&dev.info().name) {
            return Err(Error::SameDevice(dev.info().name.clone()));
        }
        known.lent.push(weak);
        Ok(())
    }

    /// Adds a scheduler of the program; an error if a device or another scheduler has the name.
    pub(crate) fn lend_scheduler(&self, name: &str) -> Result<SchedulerPort, SchedulerError> {
        let mut known = self.known();
        known.schedulers.retain(|mailbox| !mailbox.is_closed());
        if known.has(name) {
            return Err(SchedulerError::Taken);
        }
        let mailbox = Mailbox::new(name).map_err(SchedulerError::System)?;
        known.schedulers.push(mailbox.clone());
        Ok(SchedulerPort::new(mailbox))
    }

    /// Ends the waits of commands for the owners of schedulers, and refuses later ones.
    pub(crate) fn close_schedulers(&self) {
        self.known().schedulers.iter().for_each(|mailbox| mailbox.close());
    }

    /// Returns the device or the scheduler of a name, or all: the devices in the order of [`handles`](Self::handles), then the
    /// schedulers.
    pub(crate) fn targets(&self, name: Option<&str>) -> Vec<Target> {
        let devices = self.handles(name).into_iter().map(Target::Dev);
        let known = self.known();
        let schedulers = known.schedulers().filter(|mailbox| name.is_none_or(|name| mailbox.name() == name));
        devices.chain(schedulers.cloned().map(Target::Scheduler)).collect()
    }

    /// Calls `f` with the device or the scheduler called `name` and returns its result; `None` if there is none.
    pub(crate) fn with_target<R>(&self, name: &str, f: impl FnOnce(&Target) -> R) -> Option<R> {
        self.targets(Some(name)).first().map(f)
    }

    /// Returns handles on the device of a name, or on all devices: the program's first, then those made, in order of creation.
    pub(crate) fn handles(&self, name: Option<&str>) -> Vec<NetDevRef> {
        let known = self.known();
        let made = known.made.iter().map(|dev| dev.downgrade());
        let all = known.lent.iter().cloned().chain(made).filter_map(|dev| dev.upgrade());
        all.filter(|dev| name.is_none_or(|name| dev.info().name == name)).collect()
    }

    /// Calls `f` with the device called `name` and returns its result; `None` if there is no such device. Other commands may
    /// add and remove devices during the call.
    pub(crate) fn with<R>(&self, name: &str, f: impl FnOnce(&NetDev) -> R) -> Option<R> {
        self.handles(Some(name)).first().map(|dev| f(dev))
    }

    /// Calls `f` with each device and returns the results, in the order of [`handles`](Self::handles).
    pub(crate) fn all<R>(&self, mut f: impl FnMut(&NetDev) -> R) -> Vec<R> {
        self.handles(None).iter().map(|dev| f(dev)).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.targets(None).iter().map(|target| target.name().to_owned()).collect()
    }

    /// Makes and adds a device.
    pub(crate) fn add(&self, new: &NewDevice) -> Result<(), NotAdded> {
        /// Gives a name back when it is dropped, also by a panic.
        struct Making<'d>(&'d Devices, &'d str);
        impl Drop for Making<'_> {
            fn drop(&mut self) {
                self.0.known().making.retain(|name| name != self.1);
            }
        }
        let mut known = self.known();
        if known.has(&new.name) {
            return Err(NotAdded::Exists);
        }
        let make = self.make.as_ref().ok_or(NotAdded::Unsupported)?;
        known.making.push(new.name.clone());
        let _making = Making(self, &new.name);
        // The lock is released first: the program may open files, and other commands do not wait for them.
        drop(known);
        let dev = make(new).map_err(NotAdded::Failed)?;
        self.known().made.push(dev);
        Ok(())
    }

    /// Removes a device that a command made. Its queued packets are dropped.
    pub(crate) fn remove(&self, name: &str) -> Result<(), NotRemoved> {
        let mut known = self.known();
        match known.made.iter().position(|dev| dev.info().name == name) {
            Some(index) => {
                let gone = known.made.remove(index);
                // The lock is released first, so that commands for other devices do not wait while this one is freed.
                drop(known);
                self.removed.iter().for_each(|removed| removed(name));
                drop(gone);
                Ok(())
            }
            None if known.has(name) => Err(NotRemoved::InUse),
            None => Err(NotRemoved::Absent),
        }
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        f.debug_struct("Devices")
            .field("lent", &known.lent)
            .field("made", &known.made)
            .field("schedulers", &known.schedulers)
            .finish_non_exhaustive()
    }
}
