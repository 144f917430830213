//! The frames that clients of a `[[socket]]` send in tests.

/// Returns frame `n` of client `tag`: every byte follows from both. The clients in C and Go send the same.
pub(crate) fn frame(tag: u8, n: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&n.to_be_bytes());
    frame[18] = tag;
    (19..len).for_each(|at| frame[at] = (n as usize + at) as u8);
    frame
}
