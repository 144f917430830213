//! Numbers of three digits with tc's units, for columns.

/// Returns a rate in bits per second.
pub(crate) fn rate(bits: f64) -> String {
    scaled(bits, 1e3, &["bit", "Kbit", "Mbit", "Gbit", "Tbit"])
}

/// Returns a count, or a count per second.
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1e3, &["", "k", "M", "G", "T"])
}

/// Returns a number of bytes; a `K` is 1024, as in tc's backlog.
pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["b", "Kb", "Mb", "Gb", "Tb"])
}

/// Returns a time in nanoseconds.
pub(crate) fn time(nanos: u64) -> String {
    scaled(nanos as f64, 1e3, &["ns", "us", "ms", "s"])
}

/// Returns `text`, or a dash if there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Divides a value by `base` until three digits are enough, or the units end.
fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let whole = unit == 0 && value.fract() == 0.0;
    let digits = match value {
        _ if whole => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (7.0, "7"),
            (99.96, "100"),
            (999.0, "999"),
            (999.7, "1.00k"),
            (12_345.0, "12.3k"),
            (9.999e6, "10.0M"),
            (5e15, "5000T"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!((rate(8e7), rate(0.0)), ("80.0Mbit".to_owned(), "0bit".to_owned()));
        assert_eq!((size(18 << 10), size(1000)), ("18.0Kb".to_owned(), "0.98Kb".to_owned()));
        assert_eq!((time(16_384), time(512)), ("16.4us".to_owned(), "512ns".to_owned()));
    }
}
