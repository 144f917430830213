use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::{Endianness, TsResolution};
use proptest::prelude::*;
use std::borrow::Cow;
use std::time::Duration;

use super::*;

const ORDERS: [Endianness; 2] = [Endianness::Big, Endianness::Little];
/// 2026-01-01; then 32 bits of seconds exceed a signed number of nanoseconds.
const EPOCH: u32 = 1_767_225_600;

/// A file of frames of `(seconds after EPOCH, fraction, bytes kept, length on the wire)`.
fn pcap(header: PcapHeader, frames: &[(u32, u32, usize, u32)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::with_header(&mut file, header).unwrap();
    for &(sec, ts_frac, kept, orig_len) in frames {
        let data = Cow::Owned(vec![sec as u8; kept]);
        let packet = RawPcapPacket { ts_sec: EPOCH + sec, ts_frac, incl_len: kept as u32, orig_len, data };
        writer.write_raw_packet(&packet).unwrap();
    }
    file
}

/// A file of one interface with `options` and frames of 60 bytes at these times in its units.
fn pcapng(
    endianness: Endianness,
    options: Vec<InterfaceDescriptionOption<'static>>,
    times: &[u64],
) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
    let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
    writer.write_pcapng_block(interface).unwrap();
    for &units in times {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(units),
            original_len: 60,
            data: Cow::Owned(vec![7; 60]),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer.into_inner()
}

fn times(file: Vec<u8>) -> Vec<Nanos> {
    let capture = Capture::from_bytes("test", file).unwrap();
    capture.frames().map(|frame| frame.unwrap().at).collect()
}

fn header() -> PcapHeader {
    PcapHeader::default()
}

#[test]
fn classic_files_of_all_four_magics_have_the_same_times() {
    for endianness in ORDERS {
        for (ts_resolution, scale) in [(TsResolution::MicroSecond, 1), (TsResolution::NanoSecond, 1000)] {
            let frames = [(0, 999_999 * scale, 60, 60), (1, 0, 61, 61), (3, 5 * scale, 60, 60)];
            let file = pcap(PcapHeader { endianness, ts_resolution, ..header() }, &frames);
            assert_eq!(times(file.clone()), [0, 1_000, 2_000_006_000]);
            let capture = Capture::from_bytes("test", file).unwrap();
            assert_eq!(capture.frames().nth(1).unwrap().unwrap().data, [1; 61]);
        }
    }
}

#[test]
fn pcapng_times_are_in_the_interfaces_own_units() {
    use InterfaceDescriptionOption::{IfTsOffset, IfTsResol};
    for endianness in ORDERS {
        let of = |options: Vec<_>, units: &[u64]| times(pcapng(endianness, options, units));
        assert_eq!(of(vec![], &[5_000_000, 5_000_001]), [0, 1_000], "microseconds unless said otherwise");
        assert_eq!(of(vec![IfTsResol(9)], &[5_000_000, 5_000_001]), [0, 1]);
        assert_eq!(of(vec![IfTsResol(3)], &[5_000, 5_001]), [0, 1_000_000]);
        assert_eq!(of(vec![IfTsResol(12)], &[5_000_000, 5_002_000]), [0, 2]);
        assert_eq!(of(vec![IfTsResol(0x80 | 10)], &[1024, 1536]), [0, 500_000_000], "powers of two");
        assert_eq!(of(vec![IfTsResol(0x7f)], &[0, u64::MAX]), [0, 0], "units too short for a nanosecond");
        assert_eq!(of(vec![IfTsResol(0)], &[0, u64::MAX]), [0, u64::MAX], "units too long for the clock");
        assert_eq!(of(vec![IfTsOffset(-3_i64 as u64)], &[1, 3]), [0, 2_000]);
    }
}

#[test]
fn a_frame_from_before_the_first_has_no_negative_time() {
    assert_eq!(times(pcapng(Endianness::Little, vec![], &[10, 4, 12])), [0, 0, 2_000]);
}

#[test]
fn a_packet_without_a_time_is_as_old_as_the_one_before() {
    let mut writer = PcapNgWriter::new(pcapng(Endianness::Big, vec![], &[10, 14])).unwrap();
    // The blocks after the writer's own header form a section of their own.
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 40)).unwrap();
    let block = |len: u32| SimplePacketBlock { original_len: len, data: Cow::Owned(vec![1; 40]) };
    writer.write_pcapng_block(block(60)).unwrap();
    let capture = Capture::from_bytes("test", writer.into_inner()).unwrap();
    let frames: Vec<_> = capture.frames().map(Result::unwrap).collect();
    assert_eq!(frames.iter().map(|f| f.at).collect::<Vec<_>>(), [0, 4_000, 4_000]);
    assert_eq!((frames[2].data.len(), frames[2].is_cut()), (40, true));
}

#[test]
fn cut_frames_are_told() {
    let capture = pcap(PcapHeader { snaplen: 96, ..header() }, &[(0, 0, 60, 60), (1, 0, 96, 1514)]);
    let capture = Capture::from_bytes("test", capture).unwrap();
    assert!(capture.frames().nth(1).unwrap().unwrap().is_cut());
    let summary = Summary { frames: 2, bytes: 156, cut: 1, longest: 96, span: 1_000_000_000 };
    assert_eq!(capture.summary().unwrap(), summary);
}

fn error(bytes: &[u8]) -> String {
    let read = || Capture::from_bytes("x.pcap", bytes)?.summary();
    read().unwrap_err().to_string()
}

#[test]
fn errors_name_the_file_the_place_and_the_remedy() {
    let good = pcap(header(), &[(0, 0, 60, 60), (1, 0, 60, 60)]);
    assert!(Capture::open("/nowhere/x.pcap").unwrap_err().to_string().contains("\"/nowhere/x.pcap\""));
    let not = "\"x.pcap\" is not a capture: it ";
    for (file, text) in [
        (&b""[..], "is empty"),
        (b"\x1f\x8b\x08", "is compressed (unpack it with gunzip)"),
        (b"GIF89a", "begins with the bytes 47 49 46 38"),
        (&good[..20], "ends within its header"),
        (b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00????", "has a damaged header"),
    ] {
        let error = error(file);
        assert!(error.starts_with(&format!("{not}{text}")), "{error}");
        assert!(error.ends_with("as tcpdump and Wireshark write"), "{error}");
    }
    for cut in [good.len() - 1, good.len() - 61] {
        let error = error(&good[..cut]);
        let start = "capture \"x.pcap\", frame 2 at byte 100: the file ends within it";
        assert!(error.starts_with(start), "{error}");
    }
    let wireless = pcap(PcapHeader { datalink: DataLink::IEEE802_11, ..header() }, &[]);
    assert!(
        error(&wireless)
            .contains("header: link type 105, not Ethernet (1), IP (101) or Linux cooked (113, 276)"),
        "{}",
        error(&wireless)
    );
    let bad = error(&pcap(header(), &[(0, 0, 60, 60), (0, 1_000_000, 60, 60)]));
    assert!(bad.contains("frame 2 at byte 100: its time has 1000000 of 1000000 parts of a second"), "{bad}");
}

#[test]
fn packets_may_begin_with_ip() {
    let raw = pcap(PcapHeader { datalink: DataLink::RAW, ..header() }, &[(0, 0, 60, 60)]);
    let capture = Capture::from_bytes("x.pcap", raw).unwrap();
    assert_eq!(capture.frames().next().unwrap().unwrap().link, Link::Ip);
    let ethernet = Capture::from_bytes("x.pcap", pcap(header(), &[(0, 0, 60, 60)])).unwrap();
    assert_eq!(ethernet.frames().next().unwrap().unwrap().link, Link::Ethernet);
}

/// Behind the headers of captures on "any" lie packets of many protocols: IP's are frames without a link-layer header.
#[test]
fn ip_packets_lie_behind_cooked_headers() {
    let cooked = |linktype: u32, len: usize, at: usize, wire: u32| {
        let file = [([0x08, 0x00], 1_u8), ([0x08, 0x06], 2), ([0x86, 0xdd], 3), ([0x00, 0x04], 4)];
        let mut bytes = pcap(PcapHeader { datalink: DataLink::from(linktype), ..header() }, &[]);
        for (protocol, mark) in file {
            let mut frame = vec![mark; len + 20];
            frame[at..at + 2].copy_from_slice(&protocol);
            for word in [EPOCH, 0, frame.len() as u32, wire] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(frame);
        }
        // Cut within its header.
        for word in [EPOCH, 0, 1, wire] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.push(0);
        Capture::from_bytes("x.pcap", bytes).unwrap()
    };
    for (linktype, len, at) in [(113, 16, 14), (276, 20, 0)] {
        let capture = cooked(linktype, len, at, 100);
        let mut frames = capture.frames();
        let found: Vec<_> = frames.by_ref().map(Result::unwrap).collect();
        let seen: Vec<_> = found.iter().map(|frame| (frame.link, frame.data[0], frame.data.len())).collect();
        assert_eq!(seen, [(Link::Ip, 1, 20), (Link::Ip, 3, 20)]);
        assert_eq!((found[0].wire_len as usize, frames.skipped()), (100 - len, 3));
    }
}

#[test]
fn a_file_that_ends_early_has_whole_frames_before() {
    let good = pcap(header(), &[(0, 0, 60, 60), (1, 0, 60, 60)]);
    let capture = Capture::from_bytes("x.pcap", &good[..good.len() - 1]).unwrap();
    let frames: Vec<_> = capture.frames().collect();
    assert!(frames.len() == 2 && frames[0].is_ok());
    assert!(frames[1].as_ref().unwrap_err().is_truncated());
    let bad = Capture::from_bytes("x.pcap", pcap(header(), &[(0, 1_000_000, 60, 60)])).unwrap();
    assert!(!bad.frames().next().unwrap().unwrap_err().is_truncated());
}

#[test]
fn an_interface_that_is_missing_or_of_an_unknown_link_is_an_error_at_its_packet() {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::IEEE802_11, 0)).unwrap();
    let packet = |interface_id| EnhancedPacketBlock {
        interface_id,
        timestamp: Duration::ZERO,
        original_len: 1,
        data: Cow::Borrowed(&[1]),
        options: Vec::new(),
    };
    writer.write_pcapng_block(packet(0)).unwrap();
    let file = writer.into_inner();
    assert!(error(&file).contains("frame 1 at byte 28: link type 105"), "{}", error(&file));
    // The interface field of the packet block, which begins after the section (28 bytes) and the interface (20).
    let mut file = pcapng(Endianness::Big, vec![], &[1]);
    file[48 + 11] = 9;
    assert!(error(&file).contains("it is of interface 9, and 1 are described"), "{}", error(&file));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the bytes are, the result is frames or an error.
    #[test]
    fn no_bytes_make_it_panic(
        ng in any::<bool>(),
        big in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let endianness = ORDERS[usize::from(!big)];
        let mut file = if ng {
            pcapng(endianness, vec![InterfaceDescriptionOption::IfTsResol(9)], &[1, 2, 3])
        } else {
            pcap(PcapHeader { endianness, ..header() }, &[(0, 0, 60, 60), (1, 0, 60, 60)])
        };
        for (at, byte) in edits {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(file.len() - cut.index(file.len() + 1) / 4);
        if let Ok(capture) = Capture::from_bytes("test", file) {
            prop_assert!(capture.frames().count() < 1000);
        }
    }
}
