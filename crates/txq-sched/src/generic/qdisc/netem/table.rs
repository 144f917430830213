//! Distributions of delays, as tables of quantiles made from their definitions.

use std::f64::consts::TAU;

/// Entries of a table.
const SIZE: usize = 4096;

/// The number that stands for one standard deviation in a table.
const ONE: f64 = 8192.0;

/// The distribution of a delay around its mean: the i-th of 4096 values is above a share of (i + 1/2) / 4096 of all delays.
/// A value of 8192 is one standard deviation; values beyond 4 of them are cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its name in tc's words.
    pub(super) name: &'static str,
    values: Box<[i16]>,
}

impl Table {
    /// Returns the distribution with a name, or `None` if tc knows none. `uniform` is `Some(None)`: it needs no table.
    pub(super) fn named(name: &str) -> Option<Option<Table>> {
        Some(match name {
            "uniform" => None,
            "normal" => Some(Self::from_quantiles("normal", normal(SIZE))),
            "pareto" => Some(Self::from_quantiles("pareto", pareto(SIZE))),
            "paretonormal" => Some(Self::from_quantiles("paretonormal", pareto_normal())),
            _ => return None,
        })
    }

    fn from_quantiles(name: &'static str, values: Vec<f64>) -> Table {
        let entry = |value: f64| (value * ONE).round().clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        Self { name, values: values.into_iter().map(entry).collect() }
    }

    /// Returns the value for an evenly distributed number, with this standard deviation.
    pub(super) fn value(&self, number: u32, deviation: u64) -> i128 {
        let index = (number as usize * self.values.len()) >> 32;
        i128::from(self.values[index]) * i128::from(deviation) / ONE as i128
    }
}

/// Returns the share of all values below each of `n` quantiles.
fn shares(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(move |i| (i as f64 + 0.5) / n as f64)
}

/// Returns `n` quantiles of the normal distribution, by Newton's method from the median outwards.
fn normal(n: usize) -> Vec<f64> {
    let mut x = 0.0;
    let mut upper: Vec<f64> = Vec::with_capacity(n);
    for share in shares(n).skip(n / 2) {
        for _ in 0..8 {
            x += (share - below(x)) / density(x);
        }
        upper.push(x);
    }
    upper.iter().rev().map(|x| -x).chain(upper.iter().copied()).collect()
}

fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / TAU.sqrt()
}

/// Returns the normal distribution function, by the series 1/2 + density * (x + x^3/3 + x^5/(3*5) + ...) (Marsaglia 2004).
fn below(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-16 {
        n += 2.0;
        term *= x * x / n;
        sum += term;
    }
    0.5 + sum * density(x)
}

/// Returns `n` quantiles of the Pareto distribution with exponent 3 (mean 3/2, variance 3/4), moved and scaled to mean 0 and
/// standard deviation 1.
fn pareto(n: usize) -> Vec<f64> {
    shares(n).map(|share| ((1.0 - share).powf(-1.0 / 3.0) - 1.5) / 0.75_f64.sqrt()).collect()
}

/// Returns quantiles of the sum of a quarter of a normal variable and three quarters of a Pareto variable, independent of
/// each other.
fn pareto_normal() -> Vec<f64> {
    const NORMAL: usize = 64;
    const PARETO: usize = 1024;
    let (normal, pareto) = (normal(NORMAL), pareto(PARETO));
    let mut sums: Vec<f64> =
        normal.iter().flat_map(|n| pareto.iter().map(move |p| 0.25 * n + 0.75 * p)).collect();
    sums.sort_unstable_by(f64::total_cmp);
    let step = NORMAL * PARETO / SIZE;
    sums.into_iter().skip(step / 2).step_by(step).collect()
}
