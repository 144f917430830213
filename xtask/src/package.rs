//! The published crates can be packaged, and a visitor of their page finds the sources and the documentation.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, root};

/// The crates that are published, in the order in which they depend on one another.
const PUBLISHED: [&str; 11] = [
    "txq-core",
    "txq-sched",
    "txq",
    "txq-device",
    "txq-control",
    "txq-link",
    "txq-quinn",
    "txq-capi",
    "txq-preload",
    "txq-cli",
    "txq-lab",
];
/// What a crate's page shows of its Cargo.toml.
const SHOWN: [&str; 7] =
    ["categories", "description", "documentation", "keywords", "license", "readme", "repository"];

/// Packages all of them as `cargo publish` would, without building them again.
pub(crate) fn check() -> Result<()> {
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let out = cargo(false, &args).current_dir(root()).output()?;
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    for package in metadata["packages"].as_array().context("cargo metadata has no packages")? {
        // A package that is not published has an empty list of registries.
        let (name, is_published) =
            (package["name"].as_str().unwrap_or_default(), package["publish"].is_null());
        if PUBLISHED.contains(&name) != is_published {
            bail!("{name}: `publish` in its Cargo.toml contradicts the list of published crates");
        }
        let missing = SHOWN.into_iter().find(|field| is_published && is_absent(&package[field]));
        if let Some(field) = missing {
            bail!("{name}: its Cargo.toml has no `{field}`");
        }
    }
    let mut command = cargo(false, &["package", "--quiet", "--no-verify", "--allow-dirty", "--offline"]);
    crate::run(command.args(PUBLISHED.into_iter().flat_map(|name| ["-p", name])))
}

fn is_absent(field: &Value) -> bool {
    field.is_null() || field.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_absent() {
        assert!(is_absent(&Value::Null) && is_absent(&serde_json::json!([])));
        assert!(!is_absent(&"MIT".into()) && !is_absent(&serde_json::json!(["network-programming"])));
    }
}
