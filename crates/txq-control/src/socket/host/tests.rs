use proptest::prelude::*;
use txq::flow::Link;

use super::*;

fn layout() -> Layout {
    Layout::new(8, 100, 6, Link::Ethernet).unwrap()
}

#[test]
fn bounds_are_exact() {
    let layout = layout();
    let end = layout.data_len() as u32;
    let of = |offset, len, priority, flags| check(&layout, Descriptor { offset, len, priority, flags });
    for (offset, len) in [(0, 14), (0, 100), (end - 16, 16), (end - 16, 14), (8, 100)] {
        assert_eq!(of(offset, len, 6, 0), Ok(Frame { offset, len, priority: 6 }));
    }
    for (offset, len) in [(1, 14), (4, 14), (end - 8, 14), (end, 14), (end - 16, 17), (!7, 14), (!7, 100)] {
        assert_eq!(of(offset, len, 0, 0), Err(Rejection::Offset), "{offset} {len}");
    }
    for len in [0, 13, 101, u32::MAX] {
        assert_eq!(of(0, len, 0, 0), Err(Rejection::Length), "{len}");
    }
    assert_eq!(of(0, 60, 7, 0), Err(Rejection::Priority));
    assert_eq!(of(0, 60, 0, 1), Err(Rejection::Flags));
}

proptest! {
    /// Whatever a descriptor says, an accepted frame lies in the data: `copy` reads it without a panic.
    #[test]
    fn an_accepted_frame_lies_in_the_data(offset: u32, len in prop_oneof![0..200_u32, any::<u32>()], small in 0..2000_u32,
                                          near: bool, priority in 0..9_u32, flags in 0..2_u32) {
        let layout = layout();
        let offset = if near { small } else { offset };
        if let Ok(frame) = check(&layout, Descriptor { offset, len, priority, flags }) {
            prop_assert!(frame.priority() <= 6 && flags == 0);
            let (memory, _fd) = Memory::create(&layout).unwrap();
            let mut bytes = vec![0; frame.len()];
            memory.copy_out(offset, &mut bytes);
        }
    }
}
