//! Prints a table of the criterion benchmarks, from the estimates that criterion writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{cargo, root};

/// Nanoseconds of one packet, by row and column.
type Table = BTreeMap<String, BTreeMap<u32, f64>>;

pub(crate) fn run(last: bool) -> Result<()> {
    if !last {
        crate::run(&mut cargo(false, &["bench", "-p", "txq-device", "--bench", "path"]))?;
    }
    let criterion = Path::new(root()).join("target/criterion");
    let mut one = read(&criterion.join("one thread"))?;
    for batches in one.values_mut() {
        batches.iter_mut().for_each(|(batch, ns)| *ns /= f64::from(*batch));
    }
    println!(
        "One thread, allocation to free, ns per packet at each batch size; in brackets the ratio to batch 1:\n"
    );
    print(&one, |row, _, ns| format!("{ns:.1} ({:.2})", ns / row[&1]));
    let crowd = read(&criterion.join("crowd"))?;
    let base = crowd.get("one queue, spinlock").context("the crowd has not been measured")?.clone();
    println!(
        "\nThreads sending single packets, Mpps by number of threads; in brackets the ratio to the spinlock:\n"
    );
    print(&crowd, |_, threads, ns| match base.get(&threads) {
        Some(spinlock) => format!("{:.2} ({:.1})", 1000.0 / ns, spinlock / ns),
        None => format!("{:.2}", 1000.0 / ns),
    });
    Ok(())
}

/// Reads the medians under `group/ROW/COLUMN/new/estimates.json`.
fn read(group: &Path) -> Result<Table> {
    let mut table = Table::new();
    for row in list(group)? {
        for column in list(&row)? {
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (Ok(key), Ok(text)) = (name(&column).parse(), fs::read(column.join("new/estimates.json")))
            else {
                continue;
            };
            let estimates: Value = serde_json::from_slice(&text)?;
            let ns =
                estimates["median"]["point_estimate"].as_f64().context("criterion's format has changed")?;
            table.entry(name(&row)).or_default().insert(key, ns);
        }
    }
    Ok(table)
}

fn list(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("{}: run `cargo xtask bench` first", folder.display()))?;
    let mut paths = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|p| p.is_dir());
    paths.sort();
    Ok(paths)
}

fn print(table: &Table, cell: impl Fn(&BTreeMap<u32, f64>, u32, f64) -> String) {
    let mut columns: Vec<u32> = table.values().flat_map(|row| row.keys().copied()).collect();
    columns.sort_unstable();
    columns.dedup();
    let head: String = columns.iter().map(|c| format!(" {c} |")).collect();
    println!("| |{head}\n|---|{}", "---|".repeat(columns.len()));
    for (name, row) in table {
        let cells: String = columns
            .iter()
            .map(|c| row.get(c).map_or(" |".into(), |&ns| format!(" {} |", cell(row, *c, ns))))
            .collect();
        println!("| {name} |{cells}");
    }
}
