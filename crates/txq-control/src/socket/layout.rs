//! Where everything lies in the shared memory.

use txq_core::flow::Link;

/// The first word of the memory and of the welcome: "TXQS".
pub(crate) const MAGIC: u32 = u32::from_ne_bytes(*b"TXQS");
/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// Offsets of the header's words.
pub(crate) mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 4;
    pub(crate) const SLOTS: usize = 8;
    pub(crate) const STRIDE: usize = 12;
    pub(crate) const DATA: usize = 16;
    pub(crate) const DATA_LEN: usize = 20;
    pub(crate) const FRAME_MAX: usize = 24;
    pub(crate) const PRIORITY_MAX: usize = 28;
    pub(crate) const LINK: usize = 32;
    pub(crate) const CURSORS: usize = 128;
    pub(crate) const DESCRIPTORS: usize = 512;
}

/// The size of a descriptor.
pub(crate) const DESCRIPTOR: usize = 16;
/// The alignment of the data and of the memory's size.
pub(crate) const PAGE: usize = 4096;
/// Frames begin at multiples of it, in the clients of this crate.
const FRAME_ALIGN: usize = 64;
/// The most slots.
pub(crate) const MAX_SLOTS: u32 = 1 << 15;
/// The longest frame.
pub(crate) const MAX_FRAME: u32 = 1 << 20;
/// The most memory of a ring.
pub(crate) const MAX_SIZE: usize = 1 << 28;

/// The dimensions of a ring and of its data, and the bounds of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slots: u32,
    frame_max: u32,
    priority_max: u32,
    link: Link,
}

impl Layout {
    /// Returns a layout of at least `slots` slots, with room for as many frames of `frame_max` bytes; `None` if a number is 0, or there
    /// would be more than 32768 slots, 1 MiB of a frame, or 256 MiB of memory.
    pub fn new(slots: u32, frame_max: u32, priority_max: u32, link: Link) -> Option<Self> {
        let good = (1..=MAX_SLOTS).contains(&slots) && (1..=MAX_FRAME).contains(&frame_max);
        let layout = Self { slots: slots.checked_next_power_of_two()?, frame_max, priority_max, link };
        (good && layout.size() <= MAX_SIZE).then_some(layout)
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the length of the longest frame, in bytes.
    pub fn frame_max(&self) -> u32 {
        self.frame_max
    }

    /// Returns the length of the shortest frame, in bytes: that of its header.
    pub fn frame_min(&self) -> u32 {
        match self.link {
            Link::Ethernet => self.link.header_len(),
            _ => 20,
        }
    }

    /// Returns the highest priority.
    pub fn priority_max(&self) -> u32 {
        self.priority_max
    }

    /// Returns what frames begin with.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Returns the distance of two frames of the longest length.
    pub(crate) fn stride(&self) -> usize {
        (self.frame_max as usize).next_multiple_of(FRAME_ALIGN)
    }

    /// Returns where the data begins.
    pub(crate) fn data(&self) -> usize {
        (at::DESCRIPTORS + self.slots as usize * DESCRIPTOR).next_multiple_of(PAGE)
    }

    /// Returns the length of the data.
    pub(crate) fn data_len(&self) -> usize {
        self.slots as usize * self.stride()
    }

    /// Returns the size of the memory.
    pub fn size(&self) -> usize {
        (self.data() + self.data_len()).next_multiple_of(PAGE)
    }

    /// Returns the word that stands for the link.
    pub(crate) fn link_word(&self) -> u32 {
        match self.link {
            Link::Ethernet => 1,
            _ => 2,
        }
    }
}
