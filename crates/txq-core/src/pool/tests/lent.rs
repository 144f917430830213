//! Pools in memory of someone else.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::*;

const ELEMENTS: usize = 4;
const SIZE: usize = 300;
const LAYOUT: Layout = match Layout::from_size_align(ELEMENTS * SIZE, 4) {
    Ok(layout) => layout,
    Err(_) => panic!("a valid layout"),
};

/// Elements of another library, which frees them at its end.
struct Elements {
    base: NonNull<u8>,
    freed: Arc<AtomicBool>,
}

// SAFETY: plain memory that the value owns.
unsafe impl Send for Elements {}
// SAFETY: as above; the value itself gives no access to it.
unsafe impl Sync for Elements {}

impl Drop for Elements {
    fn drop(&mut self) {
        // SAFETY: allocated in `lend` with this layout.
        unsafe { dealloc(self.base.as_ptr(), LAYOUT) };
        self.freed.store(true, Ordering::Relaxed);
    }
}

fn lend() -> (LentMemory, Arc<AtomicBool>) {
    let freed = Arc::new(AtomicBool::new(false));
    // SAFETY: the layout has a size.
    let base = NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).unwrap();
    let owner = Elements { base, freed: freed.clone() };
    // SAFETY: zeroed, and freed when `owner` is dropped; nobody else knows of it.
    (unsafe { LentMemory::new(base, ELEMENTS * SIZE, owner) }.stride(SIZE), freed)
}

fn config(buffers: u32, room: usize) -> PoolConfig {
    PoolConfig { name: "p".into(), buffers, room, headroom: 40, ..PoolConfig::default() }
}

#[test]
fn each_element_is_a_buffer() {
    let (memory, freed) = lend();
    let base = memory.base;
    let pool = Pool::<Native>::on(&config(ELEMENTS as u32, 256), memory).unwrap();
    assert_eq!((pool.region(), pool.backing()), ((base, SIZE), Backing::Lent));
    let mut cache = pool.cache("s", 0);
    let mut elements = Vec::new();
    for number in 0..ELEMENTS as u8 {
        let mut packet = cache.alloc(256).unwrap();
        packet.data_mut().fill(number + 1);
        let offset = packet.into_offset(&pool);
        assert_eq!(offset % SIZE, 40);
        // SAFETY: within the element, which a device would read now.
        assert_eq!(unsafe { base.add(offset).read() }, number + 1);
        elements.push(offset / SIZE);
    }
    elements.sort_unstable();
    assert_eq!(elements, [0, 1, 2, 3]);
    for element in elements {
        // SAFETY: given up above, and taken back once.
        drop(unsafe { pool.packet_at(element * SIZE) });
    }
    drop((cache, pool));
    assert!(freed.load(Ordering::Relaxed));
}

#[test]
fn the_owner_is_dropped_with_the_pool() {
    let (memory, freed) = lend();
    let pool = Pool::<Native>::on(&config(2, 100), memory).unwrap();
    let mut cache = pool.cache("s", 0);
    drop(cache.alloc(100).unwrap());
    drop(cache);
    let copy = pool.clone();
    drop(pool);
    assert!(!freed.load(Ordering::Relaxed));
    drop(copy);
    assert!(freed.load(Ordering::Relaxed));
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let refused = |buffers, room| {
        let (memory, freed) = lend();
        let error = Pool::<Native>::on(&config(buffers, room), memory).unwrap_err();
        assert!(freed.load(Ordering::Relaxed), "the memory goes back");
        error.to_string()
    };
    assert_eq!(
        refused(5, 256),
        "pool \"p\": buffers 5 is out of range: use 1 to 4: the memory has 1200 bytes"
    );
    assert_eq!(
        refused(4, 261),
        "pool \"p\": room 261 is out of range: use 1 to 260 bytes (stride less headroom and tailroom)"
    );
    let (memory, _) = lend();
    assert!(Pool::<Native>::on(&config(1, 256), memory.stride(0)).is_err());
    let without = PoolConfig { backing: Backing::Lent, ..config(1, 256) };
    assert!(Pool::<Native>::new(&without).unwrap_err().to_string().contains("needs Pool::on"));
}

/// Another library's data may lie behind the bytes that the pool was told of.
#[test]
fn a_packet_does_not_grow_beyond_what_the_pool_was_told_of() {
    let (memory, _freed) = lend();
    let (base, config) = (memory.base, PoolConfig { tailroom: 3, ..config(1, 250) });
    let pool = Pool::<Native>::on(&config, memory).unwrap();
    assert_eq!((pool.space(), pool.region().1), (293, SIZE));
    let mut cache = pool.cache("s", 0);
    let mut packet = cache.alloc(250).unwrap();
    assert_eq!(packet.tailroom(), 3);
    packet.put(3).unwrap().fill(0xff);
    assert!(packet.put(1).is_none());
    // SAFETY: within the lent memory, behind the only packet, so nobody writes there.
    let behind = unsafe { std::slice::from_raw_parts(base.as_ptr().add(293), SIZE - 293) };
    assert_eq!(behind, [0; SIZE - 293]);
    let (memory, _freed) = lend();
    let error = Pool::<Native>::on(&PoolConfig { tailroom: 20, ..config }, memory).unwrap_err();
    assert!(error.to_string().contains("stride less headroom and tailroom"), "{error}");
}
