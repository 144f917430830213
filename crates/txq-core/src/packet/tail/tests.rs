//! A packet that grows and shrinks at both ends has the bytes of a plain vector that does the same.

use proptest::prelude::*;

use crate::arch::Native;
use crate::pool::{Backing, Pool, PoolConfig};

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    Pull(usize),
    Put(usize),
    Truncate(usize),
    /// A qdisc with a size table counts another length.
    Count(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..80_usize).prop_map(Step::Push),
        (0..80_usize).prop_map(Step::Pull),
        (0..200_usize).prop_map(Step::Put),
        (0..300_usize).prop_map(Step::Truncate),
        (0..2000_u32).prop_map(Step::Count),
    ]
}

/// Under Miri, there are no files for failures, and little time.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    match cfg!(miri) {
        true => ProptestConfig { cases: 16, failure_persistence: None, ..config },
        false => ProptestConfig { cases: 512, ..config },
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn both_ends_move_within_the_buffer(
        steps in prop::collection::vec(step(), 0..40),
        (room, headroom, tailroom) in (1..300_usize, 0..100_u16, 0..100_u16),
    ) {
        let sizes = PoolConfig { room, headroom, tailroom, buffers: 3, ..PoolConfig::default() };
        let pool = Pool::<Native>::new(&PoolConfig { backing: Backing::Heap, ..sizes }).unwrap();
        let space = pool.space();
        prop_assert!(space >= room + usize::from(headroom) + usize::from(tailroom));
        let mut cache = pool.cache("s", 0);
        let mut all: Vec<_> = (0..3).map(|_| cache.alloc(room).unwrap()).collect();
        for packet in &mut all {
            packet.put(packet.tailroom()).unwrap();
            packet.push(packet.headroom()).unwrap();
            packet.data_mut().fill(0xee);
        }
        let mut packet = all.remove(1);
        packet.pull(headroom.into()).unwrap();
        packet.truncate(room);
        // The model: the bytes, and where they begin.
        let (mut bytes, mut front, mut number) = (vec![0xee; room], usize::from(headroom), 0_u8);
        for step in steps {
            number = number.wrapping_add(1);
            match step {
                Step::Push(n) => {
                    let got = packet.push(n).map(|new| new.fill(number)).is_some();
                    prop_assert_eq!(got, n <= front);
                    if got {
                        bytes.splice(0..0, std::iter::repeat_n(number, n));
                        front -= n;
                    }
                }
                Step::Pull(n) => {
                    let got = packet.pull(n).is_some();
                    prop_assert_eq!(got, n <= bytes.len());
                    if got {
                        bytes.drain(..n);
                        front += n;
                    }
                }
                Step::Put(n) => {
                    let free = space - front - bytes.len();
                    let got = packet.put(n).map(|new| new.fill(number)).is_some();
                    prop_assert_eq!(got, n <= free);
                    if got {
                        bytes.extend(std::iter::repeat_n(number, n));
                    }
                }
                Step::Truncate(len) => {
                    packet.truncate(len);
                    bytes.truncate(len);
                }
                Step::Count(len) => packet.set_pkt_len(len),
            }
            prop_assert_eq!(packet.data(), &bytes[..]);
            prop_assert_eq!((packet.headroom(), packet.tailroom()), (front, space - front - bytes.len()));
        }
        // The neighbours have kept every byte.
        prop_assert!(all.iter().all(|other| other.len() == space && other.data().iter().all(|&byte| byte == 0xee)));
    }
}
