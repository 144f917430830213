//! The time that a packet takes at a rate, which all shapers compute with (`psched_ratecfg`).
//!
//! For each packet this is a multiplication and a shift: `ns = (bytes * mult) >> shift`, with the largest `mult` that 32
//! bits hold, so the error is below one part in 2^31. The time is then cut to whole nanoseconds, as in the kernel. The cut
//! makes rates a little too high where packets are short and links fast: 0.4 % for 64 bytes at 10 Gbit/s.

use txq_core::arch::Nanos;

use crate::tc::{OptionWords, Options, ParseError, Size, Style, full};

const NS_PER_SEC: u128 = 1_000_000_000;
/// ATM: 48 bytes of payload in a cell of 53 (AAL5).
const ATM_CELL: u64 = 53;
const ATM_PAYLOAD: u64 = 48;

/// What a link adds to a packet's length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Bytes added to each packet; the lower 16 bits of what the user gives.
    pub(crate) overhead: u16,
    /// The shortest packet, in bytes.
    pub(crate) mpu: u16,
    /// Whether packets go in ATM cells.
    pub(crate) atm: bool,
}

impl Link {
    /// Returns whether each packet takes its length on the link, and nothing more.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the bytes that a packet of `len` bytes takes on the link.
    #[inline]
    pub(crate) fn bytes(&self, len: u64) -> u64 {
        let len = (len + u64::from(self.overhead)).max(self.mpu.into());
        if self.atm { len.div_ceil(ATM_PAYLOAD) * ATM_CELL } else { len }
    }
}

impl Link {
    /// Reads the value of `linklayer`.
    pub(crate) fn read_layer(
        &mut self,
        options: &mut OptionWords<'_, '_>,
        name: &str,
    ) -> Result<(), ParseError> {
        self.atm = match full(options.value(name)?, &["ethernet", "atm", "adsl"]) {
            "atm" | "adsl" => true,
            "ethernet" => false,
            other => return Err(options.illegal(name, other, "use ethernet, atm or adsl")),
        };
        Ok(())
    }

    /// Shows the link layer with tc's `-d`, or if it is ATM.
    pub(crate) fn show_layer(&self, options: &mut Options, style: Style) {
        if style.details || self.atm {
            let name = if self.atm { "atm" } else { "ethernet" };
            options.put("linklayer", name, format_args!("linklayer {name}"));
        }
    }
}

/// Reads `10k` or `10k/8`: a size, and the size of a cell (1 if none is given), which is a power of two. The cell was for
/// the rate tables of old kernels, and has no effect.
pub(crate) fn size_and_cell(
    options: &mut OptionWords<'_, '_>,
    name: &str,
) -> Result<(Size, u32), ParseError> {
    let word = options.value(name)?;
    let (size, cell) = word.split_once('/').map_or((word, None), |(size, cell)| (size, Some(cell)));
    let remedy = "use a size as 10k, or a size and a cell as 10k/8, the cell a power of two";
    let size: Size = size.parse().map_err(|_| options.illegal(name, word, remedy))?;
    let cell = match cell.map(str::parse::<u32>) {
        None => 1,
        Some(Ok(cell)) if cell.is_power_of_two() => cell,
        Some(_) => return Err(options.illegal(name, word, remedy)),
    };
    Ok((size, cell))
}

/// A rate over a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateCfg {
    /// In bytes a second, not 0.
    pub(crate) rate: u64,
    pub(crate) link: Link,
    mult: u32,
    shift: u8,
}

impl RateCfg {
    /// Returns a rate in bytes a second; 0 counts as 1.
    pub(crate) fn new(rate: u64, link: Link) -> Self {
        let rate = rate.max(1);
        // The largest shift whose quotient fits in 32 bits.
        let quotient = |shift: u8| (NS_PER_SEC << shift) / u128::from(rate);
        let shift = (0..=62u8).rev().find(|&shift| quotient(shift) <= u32::MAX.into()).unwrap_or(0);
        Self { rate, link, mult: quotient(shift) as u32, shift }
    }

    /// Returns how long `len` bytes take on the link, in nanoseconds.
    #[inline]
    pub(crate) fn time(&self, len: u64) -> Nanos {
        let bytes = self.link.bytes(len);
        match bytes.checked_mul(self.mult.into()) {
            Some(product) => product >> self.shift,
            None => ((u128::from(bytes) * u128::from(self.mult)) >> self.shift) as Nanos,
        }
    }
}

/// Sums of times at a rate, without an error that grows: what the cut of one packet's time leaves over is charged with the
/// next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Charge {
    /// In units of the rate's `shift`; below one nanosecond.
    rest: u64,
}

impl Charge {
    /// Returns how long packets take that have so many bytes on the link, and keeps the rest below a nanosecond.
    #[inline]
    pub(crate) fn time(&mut self, rate: &RateCfg, bytes: u64) -> Nanos {
        let product = u128::from(bytes) * u128::from(rate.mult) + u128::from(self.rest);
        self.rest = (product & ((1 << rate.shift) - 1)) as u64;
        (product >> rate.shift) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_those_of_exact_division(rate in 1u64..40_000_000_000, len in 0u64..10_000_000) {
            let exact = u128::from(len) * NS_PER_SEC / u128::from(rate);
            let time = u128::from(RateCfg::new(rate, Link::default()).time(len));
            let off = exact.abs_diff(time);
            prop_assert!(off <= 1 + exact / 1_000_000_000, "{len} at {rate}: {time}, not {exact}");
        }
    }

    /// Each single time is up to a nanosecond short. 100,000 of them together are not.
    #[test]
    fn charges_add_up() {
        for rate in [125_000, 1_250_000_000, 5_000_000_000] {
            let (cfg, mut charge) = (RateCfg::new(rate, Link::default()), Charge::default());
            let sum: Nanos = (0..100_000).map(|n| charge.time(&cfg, 64 + n % 7)).sum();
            let bytes: u64 = (0..100_000).map(|n| 64 + n % 7).sum();
            let exact = bytes * 1_000_000_000 / rate;
            assert!(sum.abs_diff(exact) <= 1 + exact / 1_000_000_000, "{sum} at {rate}, not {exact}");
        }
    }

    #[test]
    fn a_link_adds_to_lengths() {
        let link = Link { overhead: 10, mpu: 64, atm: false };
        assert_eq!([link.bytes(20), link.bytes(54), link.bytes(100)], [64, 64, 110]);
        let atm = Link { overhead: 0, mpu: 0, atm: true };
        assert_eq!([atm.bytes(0), atm.bytes(1), atm.bytes(48), atm.bytes(49)], [0, 53, 53, 106]);
    }

    #[test]
    fn no_rate_divides_by_zero() {
        assert_eq!(RateCfg::new(0, Link::default()).time(1), 1_000_000_000);
        assert_eq!(RateCfg::new(u64::MAX, Link::default()).time(u32::MAX.into()), 0);
    }
}
