use proptest::prelude::*;

use super::*;

/// The kernel's answer: the text of a read, or the errno of the write.
fn answer(text: &[u8], nr_ids: usize) -> String {
    match CpuMask::parse(text, nr_ids) {
        Ok(mask) => mask.format(nr_ids),
        Err(MaskError::Invalid { .. }) => "EINVAL".into(),
        Err(MaskError::Overflow { .. }) => "EOVERFLOW".into(),
    }
}

fn check(nr_ids: usize, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(answer(text.as_bytes(), nr_ids), *expected, "{text:?} with {nr_ids} ids");
    }
}

#[test]
fn two_cpus_answer_as_the_kernel_did() {
    check(
        2,
        &[
            ("1", "1"),
            ("3", "3"),
            ("0", "0"),
            ("00000003", "3"),
            ("1,", "1"),
            (",1", "1"),
            (",,1", "1"),
            ("", "0"),
            (" 1", "1"),
            ("1 ", "1"),
            ("1\n", "1"),
            ("0x1", "EINVAL"),
            ("g", "EINVAL"),
            ("1-2", "EINVAL"),
            ("4", "EOVERFLOW"),
            ("ff", "EOVERFLOW"),
            ("F", "EOVERFLOW"),
            ("a", "EOVERFLOW"),
            ("0,1", "EOVERFLOW"),
            ("1,1", "EOVERFLOW"),
            ("00000000,00000001", "EOVERFLOW"),
            ("1,00000000", "EOVERFLOW"),
            ("000000001", "EOVERFLOW"),
        ],
    );
}

#[test]
fn four_rx_queues_answer_as_the_kernel_did() {
    check(4, &[("f", "f"), ("F", "f"), ("1f", "EOVERFLOW"), ("10", "EOVERFLOW"), ("0,f", "EOVERFLOW")]);
}

#[test]
fn wide_masks_answer_as_the_kernel_did() {
    check(32, &[("1", "00000001"), ("ffffffff", "ffffffff"), ("0,1", "EOVERFLOW")]);
    check(33, &[("1", "0,00000001"), ("1 1", "1,00000001"), ("1,,1", "1,00000001"), ("2,0", "EOVERFLOW")]);
    check(40, &[("ff,00000000", "ff,00000000"), ("100,0", "EOVERFLOW"), ("0,0,1", "EOVERFLOW")]);
    check(63, &[("80000000,0", "EOVERFLOW"), ("40000000,0", "40000000,00000000")]);
    check(100, &[("f,0,0,1", "f,00000000,00000000,00000001"), ("10,0,0,1", "EOVERFLOW")]);
}

#[test]
fn the_text_ends_at_a_newline_or_nul() {
    check(2, &[("1\n2", "1"), ("1\ng", "1"), ("\n1", "0"), ("1\0g", "1"), ("1\r\n", "1")]);
}

#[test]
fn a_stray_byte_before_eight_digits_separates() {
    check(2, &[("g00000001", "1"), ("-00000001", "1"), ("zz00000001", "EOVERFLOW"), ("+1", "EINVAL")]);
    check(40, &[("1g12345678", "01,12345678"), ("zz00000001", "EINVAL"), ("123456789", "EOVERFLOW")]);
}

#[test]
fn blanks_are_latin_1() {
    assert_eq!(answer(b"\xa01\x0b\x0c", 2), "1");
    assert_eq!(answer(b"\x851", 2), "EINVAL");
}

#[test]
fn errors_name_the_input_the_place_and_the_remedy() {
    let error = CpuMask::parse("0x1\n", 8).unwrap_err().to_string();
    assert_eq!(
        error,
        "CPU set \"0x1\\n\": not a hexadecimal digit at byte 1; write hexadecimal digits without 0x, in groups of \
         8 such as ff,00000000"
    );
    let error = CpuMask::parse("4", 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "CPU set \"4\": a bit beyond the last id, only ids below 2 exist; write at most 8 digits a group and no \
         group or bit above the highest id"
    );
    let error = CpuMask::parse("g".repeat(1000), 2).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn lists_are_read() {
    let list = |text: &str| CpuMask::parse_list(text, 16).map(|mask| mask.iter().collect::<Vec<_>>());
    assert_eq!(list("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
    assert_eq!(list("15").unwrap(), [15]);
    assert_eq!(list("").unwrap(), Vec::<usize>::new());
    assert_eq!(list(" 1, 2-2,,\n7").unwrap(), [1, 2]);
    for overflow in ["16", "0-16", "99999999999999999999999"] {
        assert!(matches!(list(overflow), Err(MaskError::Overflow { .. })), "{overflow}");
    }
    for (invalid, place) in [("3-1", 0), ("a", 0), ("0,-1", 2), ("1,2-", 4), ("1-2-3", 2), ("0-3:1/2", 2)] {
        match list(invalid) {
            Err(MaskError::Invalid { at, .. }) => assert_eq!(at, place, "{invalid}"),
            other => panic!("{invalid}: {other:?}"),
        }
    }
}

#[test]
fn lists_are_written() {
    let mask: CpuMask = [0, 1, 2, 3, 8, 64, 65].into_iter().collect();
    assert_eq!(mask.to_string(), "0-3,8,64-65");
    assert_eq!(CpuMask::new().to_string(), "");
}

#[test]
fn a_set_shrinks_as_it_grew() {
    let mut mask = CpuMask::new();
    mask.set(3);
    mask.set(200);
    assert_eq!((mask.len(), mask.width()), (2, 201));
    mask.clear(200);
    mask.clear(4000);
    assert_eq!(mask, CpuMask::from_iter([3]));
    assert!(mask.contains(3) && !mask.contains(200));
    mask.clear(3);
    assert!(mask.is_empty() && mask.width() == 0);
    assert_eq!(mask.format(0), "");
}

proptest! {
    #[test]
    fn what_is_written_reads_back(ids in prop::collection::btree_set(0usize..300, 0..40), spare in 0usize..70) {
        let mask: CpuMask = ids.iter().copied().collect();
        let nr_ids = mask.width() + spare;
        prop_assert_eq!(mask.iter().collect::<Vec<_>>(), ids.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(mask.len(), ids.len());
        prop_assert_eq!(&CpuMask::parse(mask.format(nr_ids), nr_ids).unwrap(), &mask);
        prop_assert_eq!(&CpuMask::parse_list(mask.to_string(), nr_ids).unwrap(), &mask);
        let digits = mask.format(nr_ids).bytes().filter(|&byte| byte != b',').count();
        prop_assert_eq!(digits, nr_ids.div_ceil(4));
    }

    #[test]
    fn sets_intersect_as_sets_do(a in prop::collection::btree_set(0usize..200, 0..5),
                                 b in prop::collection::btree_set(0usize..200, 0..5)) {
        let masks = (CpuMask::from_iter(a.iter().copied()), CpuMask::from_iter(b.iter().copied()));
        prop_assert_eq!(masks.0.intersects(&masks.1), a.intersection(&b).next().is_some());
    }

    #[test]
    fn no_input_panics(text in prop::collection::vec(any::<u8>(), 0..40), nr_ids in 0usize..130) {
        let _ = CpuMask::parse(&text, nr_ids);
        let _ = CpuMask::parse_list(&text, nr_ids);
    }
}
