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

/// Returns what `of` says of each frame.
fn each<T>(capture: &Capture, of: impl Fn(Frame<'_>) -> T) -> Vec<T> {
    let (mut frames, mut all) = (capture.frames(), Vec::new());
    while frames.advance().unwrap() {
        all.push(of(frames.frame()));
    }
    all
}

fn times(file: Vec<u8>) -> Vec<u64> {
    each(&Capture::from_bytes("test", file).unwrap(), |frame| frame.at.as_nanos() as u64)
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
            assert_eq!(each(&capture, |frame| frame.data.to_vec())[1], [1; 61]);
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
    let frames = each(&capture, |frame| (frame.at.as_nanos(), frame.data.len(), frame.is_cut()));
    assert_eq!(frames, [(0, 60, false), (4_000, 60, false), (4_000, 40, true)]);
}

#[test]
fn cut_frames_are_told() {
    let capture = pcap(PcapHeader { snaplen: 96, ..header() }, &[(0, 0, 60, 60), (1, 0, 96, 1514)]);
    let capture = Capture::from_bytes("test", capture).unwrap();
    assert_eq!(each(&capture, |frame| (frame.number, frame.is_cut())), [(1, false), (2, true)]);
    let summary = Summary { frames: 2, bytes: 156, cut: 1, longest: 96, span: Duration::from_secs(1) };
    assert_eq!(capture.summary().unwrap(), summary);
}

/// Frames that are longer together, and alone, than a window lie in it one after the other, also when they are read again.
#[test]
fn a_window_moves_over_the_file() {
    let lengths = [0, 1, 60, 9_000, 262_144, 1514, 800_000, 3];
    let sequence = || lengths.iter().cycle().take(80).enumerate();
    let mut bytes = pcap(header(), &[]);
    let frame = |n: usize, len: usize| (0..len).map(|at| (n + at / 251) as u8).collect::<Vec<_>>();
    for (n, &len) in sequence() {
        for word in [EPOCH, n as u32, len as u32, len as u32] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(frame(n, len));
    }
    let capture = Capture::from_bytes("test", bytes).unwrap();
    let mut frames = capture.frames();
    for _ in 0..2 {
        for (n, &len) in sequence() {
            assert!(frames.advance().unwrap());
            assert_eq!(
                (frames.frame().number, frames.frame().at),
                (n as u64 + 1, Duration::from_micros(n as u64))
            );
            assert!(frames.frame().data == frame(n, len), "frame {n}");
        }
        assert!(!frames.advance().unwrap());
        frames.rewind();
    }
    assert!(frames.window_bytes() < 3 << 20, "{}", frames.window_bytes());
}

/// Lengths that no capture has take no memory, and blocks that are no packets are not read.
#[test]
fn memory_is_bounded_whatever_the_file_says() {
    let long = |bytes: Vec<u8>| {
        let capture = Capture::from_bytes("x.pcap", bytes).unwrap();
        let mut frames = capture.frames();
        let error = frames.advance().unwrap_err().to_string();
        (error, frames.window_bytes())
    };
    let mut bytes = pcap(header(), &[]);
    [EPOCH, 0, 1 << 30, 1 << 30].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.resize(8 << 20, 0);
    let (error, window) = long(bytes);
    assert!(error.contains("frame 1 at byte 24: it has 1073741824 bytes, and a record 1048576 at most"));
    assert!(window < 2 << 20, "{window}");
    // Interfaces without end, each of which the parser would keep.
    let mut bytes = pcapng(Endianness::Big, vec![], &[]);
    let interface = bytes[28..].to_vec();
    (0..200_000).for_each(|_| bytes.extend(&interface));
    let (error, window) = long(bytes);
    assert!(error.contains("its section describes interfaces in more than 1048576 bytes"), "{error}");
    assert!(window < 2 << 20, "{window}");
    // A block of 100 MB that is no packet.
    let mut bytes = pcapng(Endianness::Big, vec![], &[1]);
    let packet = bytes.split_off(48);
    [0x0bad_u32, 100 << 20].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.resize(bytes.len() + (100 << 20) - 8, 0);
    let whole = [bytes.clone(), packet].concat();
    let capture = Capture::from_bytes("x.pcap", whole).unwrap();
    let mut frames = capture.frames();
    assert!(frames.advance().unwrap() && !frames.advance().unwrap());
    assert!(frames.window_bytes() < 2 << 20, "{}", frames.window_bytes());
    // Blocks without end that are no packets.
    let mut endless = pcapng(Endianness::Big, vec![], &[]);
    (0..1_100_000)
        .for_each(|_| [0x0bad_u32, 12, 12].iter().for_each(|word| endless.extend(word.to_be_bytes())));
    assert!(long(endless).0.contains("no frame is in the 1048576 records before it"));
    // The file ends within it.
    bytes.pop();
    assert!(long(bytes).0.contains("frame 1 at byte"), "it is said where");
}

/// A file is read while it is used: it may be removed, and is an error where it was cut.
#[test]
fn a_file_that_changes_is_read_as_it_is() {
    let path = std::env::temp_dir().join(format!("txq-capture-{}.pcap", std::process::id()));
    let frames: Vec<_> = (0..10).map(|n| (n, 0, 100_000, 100_000)).collect();
    std::fs::write(&path, pcap(header(), &frames)).unwrap();
    let capture = Capture::open(&path).unwrap();
    let other = Capture::open(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(capture.summary().unwrap().frames, 10);
    file.set_len(24 + 6 * 100_016 + 500).unwrap();
    let error = other.summary().unwrap_err();
    let text = error.to_string();
    assert!(
        error.is_truncated() && text.contains("frame 7 at byte 600120: the file ends within it"),
        "{text}"
    );
}

/// A pipe can be read once only.
#[test]
fn a_pipe_is_a_capture() {
    let path = std::env::temp_dir().join(format!("txq-capture-{}.fifo", std::process::id()));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::write(path, pcap(header(), &[(0, 0, 60, 60), (1, 0, 61, 61)])).unwrap()
    });
    let capture = Capture::open(&path).unwrap();
    writer.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        assert_eq!(each(&capture, |frame| frame.data.len()), [60, 61]);
    }
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
    assert_eq!(each(&capture, |frame| frame.link), [Link::Ip]);
    let ethernet = Capture::from_bytes("x.pcap", pcap(header(), &[(0, 0, 60, 60)])).unwrap();
    assert_eq!(each(&ethernet, |frame| frame.link), [Link::Ethernet]);
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
        let seen = each(&capture, |frame| (frame.number, frame.link, frame.data[0], frame.data.len()));
        assert_eq!(seen, [(1, Link::Ip, 1, 20), (3, Link::Ip, 3, 20)]);
        assert_eq!(each(&capture, |frame| frame.wire_len as usize)[0], 100 - len);
        let mut frames = capture.frames();
        while frames.advance().unwrap() {}
        assert_eq!(frames.skipped(), 3);
    }
}

#[test]
fn a_file_that_ends_early_has_whole_frames_before() {
    let good = pcap(header(), &[(0, 0, 60, 60), (1, 0, 60, 60)]);
    let capture = Capture::from_bytes("x.pcap", &good[..good.len() - 1]).unwrap();
    let mut frames = capture.frames();
    assert!(frames.advance().unwrap());
    assert!(frames.advance().unwrap_err().is_truncated());
    assert!(!frames.advance().unwrap(), "it goes on after an error");
    let bad = Capture::from_bytes("x.pcap", pcap(header(), &[(0, 1_000_000, 60, 60)])).unwrap();
    assert!(!bad.frames().advance().unwrap_err().is_truncated());
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
    assert!(error(&file).contains("frame 1 at byte 48: link type 105"), "{}", error(&file));
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
            let mut frames = capture.frames();
            while let Ok(true) = frames.advance() {
                prop_assert!(frames.frame().number < 1000);
            }
        }
    }
}
