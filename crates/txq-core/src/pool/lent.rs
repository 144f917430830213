//! Memory of someone else that a pool puts its buffers into.

use std::fmt;
use std::ptr::NonNull;

/// Memory of someone else for the buffers of a pool ([`Pool::on`](super::Pool::on)): memory registered with a card, another
/// library's buffers, memory shared with another process.
///
/// ```
/// use std::ptr::NonNull;
/// use txq_core::pool::{LentMemory, Pool, PoolConfig};
///
/// // Another library's memory: 16 elements of 2,304 bytes. Packets begin 256 bytes behind the start of each.
/// let theirs = vec![0_u8; 16 * 2304].leak();
/// let base = NonNull::from(&mut theirs[0]);
/// // SAFETY: leaked, so it lives for ever, and nobody else uses it.
/// let memory = unsafe { LentMemory::new(base, 16 * 2304, ()) }.stride(2304);
/// let config = PoolConfig { buffers: 16, room: 2048, headroom: 256, ..PoolConfig::default() };
/// let pool: Pool = Pool::on(&config, memory)?;
/// assert_eq!(pool.region(), (base, 2304));
/// # Ok::<(), txq_core::pool::PoolError>(())
/// ```
pub struct LentMemory {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    pub(super) stride: Option<usize>,
    /// Dropped when the pool no longer uses the memory.
    pub(super) owner: Box<dyn Send + Sync>,
}

impl LentMemory {
    /// Describes `len` bytes at `base`, which `owner` keeps alive. The pool drops `owner` when its last handle is gone, or
    /// never if packets are alive then.
    ///
    /// # Safety
    /// Until `owner` is dropped, the bytes are initialised, and every thread may read and write them. Nobody else accesses a
    /// buffer, except a device that was given its offset ([`Packet::into_offset`](crate::packet::Packet::into_offset)), until
    /// the device gives it back.
    pub unsafe fn new(base: NonNull<u8>, len: usize, owner: impl Send + Sync + 'static) -> Self {
        Self { base, len, stride: None, owner: Box::new(owner) }
    }

    /// Sets the distance between the starts of buffers, in bytes, where the other side's elements have a fixed size. By default
    /// the pool chooses it ([`Pool::region`](super::Pool::region) returns it).
    #[must_use]
    pub fn stride(mut self, bytes: usize) -> Self {
        self.stride = Some(bytes);
        self
    }
}

impl fmt::Debug for LentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentMemory")
            .field("base", &self.base)
            .field("len", &self.len)
            .field("stride", &self.stride)
            .finish_non_exhaustive()
    }
}
