//! The kernel's ticks. Times that sysfs shows in milliseconds are kept in jiffies, and rounded as the kernel rounds them.

use txq_core::arch::Nanos;

/// Ticks since the clock's start. A jiffy is 4 ms (`CONFIG_HZ=250`).
pub(super) type Jiffies = u64;

/// Milliseconds of a jiffy.
const MS: u32 = 4;

/// Returns the tick at a time.
#[inline]
pub(super) fn at(now: Nanos) -> Jiffies {
    now / (u64::from(MS) * 1_000_000)
}

/// Converts milliseconds to jiffies, rounding up (`msecs_to_jiffies`). A value that is negative as an `int` means for ever.
pub(super) fn from_ms(ms: u32) -> u32 {
    if ms > i32::MAX as u32 { u32::MAX - 1 } else { ms.div_ceil(MS) }
}

/// Converts jiffies to milliseconds, in 32 bits (`jiffies_to_msecs`).
pub(super) fn to_ms(jiffies: u32) -> u32 {
    jiffies.wrapping_mul(MS)
}
