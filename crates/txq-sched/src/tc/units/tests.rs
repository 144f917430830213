//! tc 6.1 printed every expected text (tbf, bfifo and netem on a veth).

use super::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn rates_read_and_print_as_tc_does() {
    for (text, bytes, plain, iec) in [
        ("8", 1, "8bit", "8bit"),
        ("1kbit", 125, "1Kbit", "1000bit"),
        ("1Kibit", 128, "1024bit", "1Kibit"),
        ("8000", 1000, "8Kbit", "8000bit"),
        ("12345678", 1_543_209, "12345Kbit", "12056Kibit"),
        ("1.5MBIT", 187_500, "1500Kbit", "1464Kibit"),
        ("1mibit", 131_072, "1048Kbit", "1Mibit"),
        ("1gbit", 125_000_000, "1Gbit", "976562Kibit"),
        ("1gibit", 134_217_728, "1073Mbit", "1Gibit"),
        ("1tbit", 125_000_000_000, "1Tbit", "953674Mibit"),
        ("1tibit", 137_438_953_472, "1099Gbit", "1Tibit"),
        ("1bps", 1, "8bit", "8bit"),
        ("1kibps", 1024, "8192bit", "8Kibit"),
        ("1mbps", 1_000_000, "8Mbit", "7812Kibit"),
        ("1gibps", 1 << 30, "8589Mbit", "8Gibit"),
        ("1tbps", 1_000_000_000_000, "8Tbit", "7450Gibit"),
        ("550kbit", 68_750, "550Kbit", "550000bit"),
        ("999999", 124_999, "999992bit", "999992bit"),
        ("1000001kbit", 125_000_125, "1Gbit", "976563Kibit"),
        ("1234567kbit", 154_320_875, "1234Mbit", "1177Mibit"),
        ("15bit", 1, "8bit", "8bit"),
        ("0x8000", 4096, "32768bit", "32Kibit"),
        ("1e6", 125_000, "1Mbit", "1000000bit"),
        ("20tbit", 2_500_000_000_000, "20Tbit", "18626Gibit"),
        ("34359738368", 1 << 32, "34359Mbit", "32Gibit"),
        ("8.9kbit", 1112, "8896bit", "8896bit"),
        ("+8kbit", 1000, "8Kbit", "8000bit"),
        ("7bit", 0, "0bit", "0bit"),
    ] {
        let rate = rate(text);
        assert_eq!((rate.0, &*rate.to_string(), &*rate.iec().to_string()), (bytes, plain, iec), "{text}");
    }
}

#[test]
fn bad_rates_are_refused_with_a_remedy() {
    for text in
        ["", "abc", "10k", "10m", "1b", "8kbit ", "-8", "inf", "nan", "147573952589tbit", "1e400", "0x", "."]
    {
        let error = text.parse::<Rate>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("\"{text}\" is not a rate: use a number with bit")), "{error}");
    }
}

#[test]
fn a_rate_too_large_for_64_bits_of_bits_does_not_wrap() {
    assert_eq!(Rate(u64::MAX).to_string(), "147573952Tbit");
    assert_eq!(Rate(0).to_string(), "0bit");
}

#[test]
fn sizes_read_and_print_as_tc_does() {
    for (text, bytes, printed) in [
        ("0", 0, "0b"),
        ("1000", 1000, "1000b"),
        ("1023", 1023, "1023b"),
        ("1039", 1039, "1Kb"),
        ("1040", 1040, "1040b"),
        ("2032", 2032, "2032b"),
        ("2033", 2033, "2Kb"),
        ("1600", 1600, "1600b"),
        ("10k", 10_240, "10Kb"),
        ("10225", 10_225, "10Kb"),
        ("1047552", 1_047_552, "1023Kb"),
        ("1048575", 1_048_575, "1024Kb"),
        ("1mb", 1 << 20, "1Mb"),
        ("1049599", 1_049_599, "1Mb"),
        ("1049600", 1_049_600, "1025Kb"),
        ("1572848", 1_572_848, "1572848b"),
        ("1g", 1 << 30, "1024Mb"),
        ("3G", 3 << 30, "3072Mb"),
        ("4294966272", 4_294_966_272, "4.1943e+06Kb"),
        ("4294967295.9", u32::MAX, "4096Mb"),
        ("8kbit", 1024, "1Kb"),
        ("1MBIT", 131_072, "128Kb"),
        ("1.5k", 1536, "1536b"),
        (".5k", 512, "512b"),
        ("1.5", 1, "1b"),
        ("0x10", 16, "16b"),
        ("010", 10, "10b"),
        ("1e3", 1000, "1000b"),
        ("-0", 0, "0b"),
    ] {
        let size: Size = text.parse().unwrap();
        assert_eq!((size.0, &*size.to_string()), (bytes, printed), "{text}");
    }
    for text in ["", "-1", "-0.5", "4g", "4294967296", "1kib", "10kk", "1bit", "9p", "inf", "1 k", "12é"] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
}

#[test]
fn times_read_and_print_as_tc_does() {
    for (text, micros, printed) in [
        ("5", 5, "5us"),
        ("999us", 999, "999us"),
        ("1.5ms", 1500, "1.5ms"),
        ("5MSECS", 5000, "5ms"),
        ("9999", 9999, "10ms"),
        ("10050", 10_050, "10.1ms"),
        ("10250", 10_250, "10.2ms"),
        ("10350", 10_350, "10.3ms"),
        ("2235", 2235, "2.23ms"),
        ("123456us", 123_456, "123ms"),
        ("999499", 999_499, "999ms"),
        ("999999", 999_999, "1e+03ms"),
        ("1s", 1_000_000, "1s"),
        ("1025000", 1_025_000, "1.02s"),
        ("1.23456sec", 1_234_560, "1.23s"),
        ("1234s", 1_234_000_000, "1.23e+03s"),
        ("4294secs", 4_294_000_000, "4.29e+03s"),
        ("0x10ms", 16_000, "16ms"),
        ("12.34567ms", 12_345, "12.3ms"),
        ("0.6us", 0, "0us"),
    ] {
        let time: Micros = text.parse().unwrap();
        assert_eq!((time.0, &*time.to_string()), (micros, printed), "{text}");
    }
    for text in ["", "1ns", "1m", "5 ms", "-1", "4295s", "inf"] {
        assert!(text.parse::<Micros>().is_err(), "{text}");
    }
}

#[test]
fn long_times_have_nanoseconds() {
    for (text, nanos, printed) in [
        ("5", 5, "5ns"),
        ("5nsecs", 5, "5ns"),
        ("1.9us", 1900, "1.9us"),
        ("40ms", 40_000_000, "40ms"),
        ("2s", 2_000_000_000, "2s"),
    ] {
        let time: Nanos = text.parse().unwrap();
        assert_eq!((time.0, &*time.to_string()), (nanos, printed), "{text}");
    }
    assert!("9223372037s".parse::<Nanos>().is_err());
}

#[test]
fn shares_have_six_digits() {
    for (value, printed) in
        [(0.0, "0"), (0.02, "0.02"), (0.041_682_97, "0.041683"), (9.999_84e-6, "9.99984e-06"), (1.0, "1")]
    {
        assert_eq!(general(value), printed);
    }
}
