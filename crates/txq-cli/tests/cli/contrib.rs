//! The dashboard and the alerts of `contrib/` use metrics that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

/// Returns the names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("txq_")).collect()
}

/// Returns the names of all metrics, as the documentation lists them.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(contrib("../docs/watch.md")).unwrap();
    named(&text).into_iter().map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() {
    let known = documented();
    assert!(known.len() > 40, "{known:?}");
    let rules = std::fs::read_to_string(contrib("prometheus/txq.rules.yml")).unwrap();
    let dashboard = std::fs::read_to_string(contrib("grafana/txq.json")).unwrap();
    for name in named(&rules).union(&named(&dashboard)) {
        let base = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(known.contains(base), "{name} is not in docs/watch.md");
    }
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(
        panels.iter().all(|panel| panel["targets"][0]["expr"].as_str().is_some_and(|e| e.contains("txq_")))
    );
}

#[test]
fn promtool_accepts_the_alerts() {
    for (what, file) in [("rules", "prometheus/txq.rules.yml"), ("config", "prometheus/prometheus.yml")] {
        let Ok(out) = Command::new("promtool").args(["check", what]).arg(contrib(file)).output() else {
            println!("SKIP promtool is not installed: apt install prometheus");
            return;
        };
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
