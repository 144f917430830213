//! The pool as a UMEM: which memory the kernel maps, and which of its buffers a queue has given to the kernel.

use std::io::{self, ErrorKind};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use txq::pool::{Backing, Pool, PoolConfig};

/// Bytes that the kernel leaves free in front of a received frame (`XDP_PACKET_HEADROOM`).
pub(super) const XDP_HEADROOM: usize = 256;
/// The kernel's bounds on a chunk: `XDP_UMEM_MIN_CHUNK_SIZE`, and a page.
const CHUNK_MIN: usize = 2048;
const CHUNK_MAX: usize = 4096;
/// Bits of an address in a descriptor; the bits above hold the offset of the data (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const ADDRESS_BITS: u32 = 48;

/// The pool's region, as the kernel sees it: chunks at any address (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`), because the distance
/// between buffers is no power of two.
#[derive(Debug, Clone)]
pub(super) struct Umem {
    pub(super) pool: Pool,
    /// The address of the first byte.
    pub(super) base: usize,
    /// Length in bytes, of all buffers up to [`Pool::max_buffers`].
    pub(super) len: usize,
    /// Distance between buffers in bytes.
    pub(super) stride: usize,
    /// Longest frame that the kernel sends or receives, in bytes, with the space in front of a received frame.
    pub(super) chunk: usize,
}

/// Returns the configuration of a pool of `buffers` buffers that suits an AF_XDP device: frames of up to 1856 bytes, sent and
/// received.
pub(super) fn pool_config(buffers: u32) -> PoolConfig {
    PoolConfig {
        name: "af_xdp".into(),
        buffers,
        room: 1856,
        headroom: XDP_HEADROOM as u16,
        ..PoolConfig::default()
    }
}

impl Umem {
    /// Describes `pool` as a UMEM.
    ///
    /// # Errors
    /// When a buffer of the pool is too small to receive into, if the device is to receive.
    pub(super) fn new(pool: &Pool, receive: bool) -> io::Result<Self> {
        let (base, stride) = pool.region();
        if receive && stride < CHUNK_MIN {
            let what = format!(
                "the pool's buffers of {stride} bytes are too small to receive with AF_XDP, which needs {CHUNK_MIN}: make the \
                 pool of AfXdp::pool_config({}), or with a room of at least 1792 and a headroom of {XDP_HEADROOM} bytes",
                pool.buffers()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let len = stride * pool.max_buffers() as usize;
        let chunk = stride.clamp(CHUNK_MIN, CHUNK_MAX);
        Ok(Self { pool: pool.clone(), base: base.addr().get(), len, stride, chunk })
    }

    /// Returns whether each packet that fits into the pool's buffers has `bytes` in front, and goes to the kernel with them.
    pub(super) fn has_space(&self, bytes: usize) -> bool {
        self.pool.headroom() >= bytes && self.pool.room() + bytes <= self.chunk
    }

    /// Returns whether any two neighbouring pages are neighbours in physical memory too. A card's driver takes no other
    /// memory for frames that cross a page.
    pub(super) fn is_contiguous(&self) -> bool {
        self.pool.backing() == Backing::HugePages
    }

    /// Returns the kernel's part of the space in front of a received frame, so that the frame begins at the pool's headroom or
    /// behind it.
    pub(super) fn headroom(&self) -> usize {
        // A buffer is the pool's headroom, room and tailroom, rounded up: this is the headroom, or up to 127 bytes more.
        (self.stride - self.pool.room() - self.pool.tailroom()).saturating_sub(XDP_HEADROOM)
    }

    /// Returns the buffer that holds the address of a descriptor, and the offset in the region where its frame begins; `None`
    /// if the address is outside of the region.
    pub(super) fn locate(&self, address: u64) -> Option<(usize, usize)> {
        let start = (address & ((1 << ADDRESS_BITS) - 1)) as usize;
        let at = start + (address >> ADDRESS_BITS) as usize;
        (at < self.len).then(|| (start / self.stride, at))
    }
}

/// What the kernel has a buffer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Use {
    /// The kernel does not have it.
    None,
    /// It holds a packet that is being sent.
    Sent,
    /// It holds a copy of a packet of another pool, which is being sent.
    Copied,
    /// It waits for a received frame.
    Fill,
}

/// What each buffer of the pool is used for by one queue. The table decides what a completion means, and which buffers return
/// to the pool when the queue is closed.
///
/// Written by the half that hands a buffer to the kernel (Release: the packet's descriptor), and by the half that gets it
/// back (Acquire). In between, the buffer is the kernel's.
#[derive(Debug)]
pub(super) struct Uses(Box<[AtomicU8]>);

impl Uses {
    pub(super) fn new(buffers: usize) -> Self {
        Self((0..buffers).map(|_| AtomicU8::new(Use::None as u8)).collect())
    }

    fn of(value: u8) -> Use {
        [Use::None, Use::Sent, Use::Copied, Use::Fill][usize::from(value)]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Records that the kernel gets a buffer.
    pub(super) fn set(&self, buffer: usize, to: Use) {
        self.0[buffer].store(to as u8, Release);
    }

    /// Returns a buffer's use.
    pub(super) fn get(&self, buffer: usize) -> Use {
        self.0.get(buffer).map_or(Use::None, |of| Self::of(of.load(Acquire)))
    }

    /// Takes a buffer back if it has this use; returns whether it had. Several threads may try: one of them gets it.
    pub(super) fn take_if(&self, buffer: usize, of: Use) -> bool {
        self.0[buffer].compare_exchange(of as u8, Use::None as u8, AcqRel, Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem(config: PoolConfig, receive: bool) -> io::Result<Umem> {
        Umem::new(&Pool::new(&PoolConfig { backing: Backing::Heap, ..config }).unwrap(), receive)
    }

    #[test]
    fn the_configuration_offered_fits() {
        let umem = umem(pool_config(16), true).unwrap();
        assert_eq!((umem.stride, umem.chunk, umem.len), (2112, 2112, 16 * 2112));
        assert_eq!(umem.headroom(), 0);
        assert_eq!(umem.base % 4096, 0);
        assert!(!umem.is_contiguous());
    }

    #[test]
    fn small_buffers_send_but_do_not_receive() {
        let small = || PoolConfig { buffers: 4, room: 200, ..PoolConfig::default() };
        assert_eq!(umem(small(), false).unwrap().chunk, 2048);
        let error = umem(small(), true).unwrap_err();
        assert!(error.to_string().contains("AfXdp::pool_config(4)"), "{error}");
    }

    #[test]
    fn large_buffers_are_used_up_to_a_page() {
        let umem = umem(PoolConfig { buffers: 4, room: 9000, ..PoolConfig::default() }, true).unwrap();
        assert_eq!((umem.chunk, umem.headroom()), (4096, 0));
    }

    #[test]
    fn a_large_headroom_stays_in_front_of_received_frames() {
        let config = PoolConfig { buffers: 4, room: 2000, headroom: 512, ..PoolConfig::default() };
        let umem = umem(config, true).unwrap();
        assert!(XDP_HEADROOM + umem.headroom() >= 512);
        assert!(umem.headroom() + XDP_HEADROOM <= umem.chunk - 2000);
    }

    #[test]
    fn a_tailroom_stays_behind_received_frames() {
        let config = PoolConfig { tailroom: 300, headroom: 512, ..pool_config(4) };
        let umem = umem(config, true).unwrap();
        let begins = XDP_HEADROOM + umem.headroom();
        assert!(begins >= 512 && begins + 1856 + 300 <= umem.stride);
    }

    #[test]
    fn an_address_names_a_buffer_and_where_its_frame_begins() {
        let umem = umem(pool_config(16), true).unwrap();
        assert_eq!(umem.locate(2112 * 3 + 128), Some((3, 2112 * 3 + 128)));
        assert_eq!(umem.locate(256 << ADDRESS_BITS | (2112 * 3)), Some((3, 2112 * 3 + 256)));
        assert_eq!(umem.locate(16 * 2112), None);
        assert_eq!(umem.locate(u64::MAX), None);
    }

    /// The completing half and the transmitting half both try, when an interface is gone.
    #[test]
    fn of_threads_that_take_the_same_buffers_each_gets_others() {
        let buffers = if cfg!(miri) { 20 } else { 20_000 };
        let uses = Uses::new(buffers);
        (0..buffers).for_each(|buffer| uses.set(buffer, Use::Sent));
        let take = || (0..buffers).filter(|&buffer| uses.take_if(buffer, Use::Sent)).collect::<Vec<_>>();
        let mut taken = std::thread::scope(|scope| {
            let threads = [scope.spawn(take), scope.spawn(take), scope.spawn(take)];
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        taken.sort_unstable();
        assert_eq!(taken, (0..buffers).collect::<Vec<_>>());
    }

    #[test]
    fn a_buffer_is_taken_back_once() {
        let uses = Uses::new(3);
        uses.set(1, Use::Sent);
        assert_eq!((uses.get(1), uses.get(2), uses.get(99)), (Use::Sent, Use::None, Use::None));
        assert_eq!((uses.take_if(1, Use::Sent), uses.take_if(1, Use::Sent)), (true, false));
        uses.set(2, Use::Fill);
        assert!(!uses.take_if(2, Use::Sent));
        assert_eq!([uses.take_if(2, Use::Fill), uses.take_if(2, Use::Fill)], [true, false]);
        assert_eq!(uses.len(), 3);
    }
}
