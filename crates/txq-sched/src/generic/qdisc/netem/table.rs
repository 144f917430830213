//! Distributions of delays, as tables of quantiles: made from their definitions, or read from a file as tc reads it.

use std::f64::consts::TAU;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Entries of a table.
const TABLE_ENTRIES: usize = 4096;

/// The most numbers of a table in a file (iproute2's `MAX_DIST`), and the most bytes that are read for them.
const MAX_TABLE_NUMBERS: usize = 16 * 1024;
const MOST_BYTES: u64 = 1 << 20;

/// iproute2's own tables, which all qdiscs share once one has made them.
static NORMAL: OnceLock<Arc<Table>> = OnceLock::new();
static PARETO: OnceLock<Arc<Table>> = OnceLock::new();
static PARETO_NORMAL: OnceLock<Arc<Table>> = OnceLock::new();

/// The number that stands for one standard deviation in a table.
const ONE_SIGMA: f64 = 8192.0;

/// The distribution of a delay around its mean: the i-th of 4096 values is above a share of (i + 1/2) / 4096 of all delays.
/// A value of 8192 is one standard deviation; values beyond 4 of them are cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its name in tc's words.
    pub(super) name: String,
    values: Box<[i16]>,
}

impl Table {
    /// Returns the distribution with a name; `None` for `uniform`, which needs no table. Names other than iproute2's first three are
    /// files `NAME.dist`.
    ///
    /// # Errors
    /// Why there is none, in tc's words.
    pub(super) fn named(name: &str) -> Result<Option<Arc<Table>>, String> {
        let shared = |cell: &'static OnceLock<Arc<Table>>, quantiles: fn() -> Vec<f64>| {
            Arc::clone(cell.get_or_init(|| Arc::new(Self::from_quantiles(name, quantiles()))))
        };
        Ok(match name {
            "uniform" => None,
            "normal" => Some(shared(&NORMAL, || normal(TABLE_ENTRIES))),
            "pareto" => Some(shared(&PARETO, || pareto(TABLE_ENTRIES))),
            "paretonormal" => Some(shared(&PARETO_NORMAL, pareto_normal)),
            _ => Some(Arc::new(Self::read(name, &folders())?)),
        })
    }

    /// Reads `NAME.dist` from the first folder that has it, or the file itself if `name` is a path with a `/`: numbers between blanks, and comments from `#` to the end of a line.
    fn read(name: &str, folders: &[PathBuf]) -> Result<Table, String> {
        let absent = |why: &str| {
            let folder = folders.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
            Err(format!(
                "No distribution data for {name} ({}: {why})",
                folder.join(format!("{name}.dist")).display()
            ))
        };
        if name.is_empty() || name.contains('\0') {
            return absent("No such file or directory");
        }
        let open = |path: PathBuf| {
            // Opening a pipe would wait, and opening a device may do anything.
            let is_file = std::fs::metadata(&path).is_ok_and(|about| about.is_file());
            is_file.then(|| std::fs::File::open(&path).ok()).flatten()
        };
        // The control server refuses paths of users that may name no files.
        let file = match name.contains('/') {
            true => open(PathBuf::from(name)),
            false => folders.iter().find_map(|folder| open(folder.join(format!("{name}.dist")))),
        };
        let Some(file) = file else { return absent("No such file or directory") };
        let mut text = String::new();
        if file.take(MOST_BYTES).read_to_string(&mut text).is_err() {
            return absent("it is no text");
        }
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let numbers = lines.flat_map(str::split_whitespace).map(str::parse::<i16>);
        match numbers.collect::<Result<Box<[i16]>, _>>() {
            Ok(values) if (1..=MAX_TABLE_NUMBERS).contains(&values.len()) => {
                Ok(Self { name: name.to_owned(), values })
            }
            Ok(_) => absent("a table has 1 to 16384 numbers"),
            Err(_) => absent("a table has numbers from -32768 to 32767"),
        }
    }

    fn from_quantiles(name: &str, values: Vec<f64>) -> Table {
        let entry = |value: f64| (value * ONE_SIGMA).round().clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        Self { name: name.to_owned(), values: values.into_iter().map(entry).collect() }
    }

    /// Returns the value for an evenly distributed number, with this standard deviation.
    pub(super) fn value(&self, number: u32, deviation: u64) -> i128 {
        let index = ((u64::from(number) * self.values.len() as u64) >> 32) as usize;
        i128::from(self.values[index]) * i128::from(deviation) / ONE_SIGMA as i128
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

/// Returns `n` quantiles of the Pareto distribution with exponent 3, moved to mean 0 and scaled by 4/3, which is the inverse of its variance:
/// that is how iproute2 scales it. The first one is the least value.
fn pareto(n: usize) -> Vec<f64> {
    let least = (0..n).map(|i| i as f64 / n as f64);
    least.map(|share| ((1.0 - share).powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0).collect()
}

/// Returns a quarter of the quantiles of the normal distribution with three quarters of those of the Pareto distribution, each cut at 4
/// standard deviations before (iproute2).
fn pareto_normal() -> Vec<f64> {
    let cut = |value: &f64| value.clamp(-4.0, f64::from(i16::MAX) / ONE_SIGMA);
    let (normal, pareto) = (normal(TABLE_ENTRIES), pareto(TABLE_ENTRIES));
    normal.iter().map(cut).zip(pareto.iter().map(cut)).map(|(n, p)| 0.25 * n + 0.75 * p).collect()
}

/// Returns the folders in which tc searches for tables.
fn folders() -> Vec<PathBuf> {
    let given = std::env::var_os("TC_LIB_DIR").map(PathBuf::from);
    let known = [
        "/usr/lib/tc".to_owned(),
        "/usr/lib64/tc".to_owned(),
        format!("/usr/lib/{}-linux-gnu/tc", std::env::consts::ARCH),
    ];
    match given {
        Some(folder) => vec![folder],
        None => known.into_iter().map(PathBuf::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of iproute2's tables.
    #[test]
    fn tables_are_iproute2s() {
        let pareto = Table::named("pareto").unwrap().unwrap();
        for (at, value) in [
            (0, -5461),
            (400, -5081),
            (1200, -4123),
            (2048, -2622),
            (2800, -355),
            (3600, 5694),
            (4000, 21783),
            (4095, 32767),
        ] {
            assert_eq!(pareto.values[at], value, "pareto {at}");
        }
        let both = Table::named("paretonormal").unwrap().unwrap();
        for (at, value) in [
            (10, -9845),
            (100, -8062),
            (1000, -4714),
            (2048, -1966),
            (3000, 1694),
            (4000, 20408),
            (4090, 30681),
        ] {
            assert!(
                (i32::from(both.values[at]) - value).abs() <= 45,
                "paretonormal {at}: {}",
                both.values[at]
            );
        }
        // 100 ms with a jitter of 20 ms: the 99th percentile is 180 ms.
        assert_eq!(pareto.value((0.99 * f64::from(u32::MAX)) as u32, 20_000_000), 79_997_558);
    }

    /// No entry is so near to the middle between two numbers that the last bit of another system's `exp` or `powf` could change it.
    #[test]
    fn tables_are_the_same_on_every_system() {
        for quantiles in [normal(TABLE_ENTRIES), pareto(TABLE_ENTRIES), pareto_normal()] {
            for value in quantiles.iter().map(|value| value * ONE_SIGMA) {
                let to_middle = (value - value.floor() - 0.5).abs();
                assert!(to_middle > 1e-8, "{value}");
            }
        }
    }

    #[test]
    fn tables_are_read_from_files() {
        let folder = std::env::temp_dir().join(format!("txq-dist-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folders = [folder.join("absent"), folder.clone()];
        let write = |text: &str| std::fs::write(folder.join("own.dist"), text).unwrap();
        write("# a comment\n-8192 0 # another\n8192\n");
        let table = Table::read("own", &folders).unwrap();
        assert_eq!((table.name.as_str(), &*table.values), ("own", &[-8192, 0, 8192][..]));
        for text in ["", "# 5", "1 x", "40000", &"1 ".repeat(MAX_TABLE_NUMBERS + 1)] {
            write(text);
            assert!(Table::read("own", &folders).is_err(), "{text:.10}");
        }
        write("1 2 3");
        let path = folder.join("own.dist").display().to_string();
        assert_eq!(&*Table::read(&path, &[]).unwrap().values, [1, 2, 3]);
        for name in ["none", "../own", "", "a/b", "/dev/null"] {
            let error = Table::read(name, &folders).unwrap_err();
            assert!(error.starts_with(&format!("No distribution data for {name} (")), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
