//! `check licences`: that each dependency has a licence that is allowed here, and comes from crates.io.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spdx::Expression;

use crate::{cargo, root};

/// The licences of the dependencies, and no more: a new one is a decision.
const ALLOWED: [&str; 7] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib"];
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the dependencies of all packages, for all systems and with all features. A dependency of tests alone is in no program, so its
/// licence may be another.
pub(crate) fn check() -> Result<()> {
    let args = ["metadata", "--format-version=1", "--locked", "--all-features", "--quiet"];
    let found = cargo(false, &args).current_dir(root()).output().context("cargo metadata")?;
    if !found.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&found.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&found.stdout).context("cargo metadata")?;
    let shipped = shipped(&metadata);
    let packages =
        array(&metadata["packages"]).iter().filter(|package| shipped.contains(&package["id"].as_str()));
    let packages: Vec<_> = packages.collect();
    if packages.is_empty() {
        bail!("cargo metadata names no packages");
    }
    let wrong: Vec<_> = packages.iter().filter_map(|package| fault(package)).collect();
    for fault in &wrong {
        println!("{fault}");
    }
    if !wrong.is_empty() {
        bail!("{} packages are not allowed (ALLOWED in xtask/src/licences.rs)", wrong.len());
    }
    println!("licences: {} packages are allowed", packages.len());
    Ok(())
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the identities of the packages that a program or its build uses.
fn shipped(metadata: &Value) -> HashSet<Option<&str>> {
    let nodes = array(&metadata["resolve"]["nodes"]);
    let nodes: HashMap<_, _> = nodes.iter().map(|node| (node["id"].as_str(), array(&node["deps"]))).collect();
    let mut open: Vec<_> = array(&metadata["workspace_members"]).iter().map(Value::as_str).collect();
    let mut found = HashSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let deps = nodes.get(&id).copied().unwrap_or_default().iter();
            let ships = |dep: &&Value| array(&dep["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
            open.extend(deps.filter(ships).map(|dep| dep["pkg"].as_str()));
        }
    }
    found
}

/// Returns what is wrong with a package.
fn fault(package: &Value) -> Option<String> {
    let text = |key: &str| package[key].as_str();
    let source =
        text("source").filter(|&source| source != CRATES_IO).map(|source| format!("comes from {source}"));
    let fault = source.or_else(|| match text("license") {
        None => Some("names no licence".to_owned()),
        Some(licence) => (!is_allowed(licence)).then(|| format!("has the licence {licence}")),
    })?;
    Some(format!("{} {} {fault}", text("name").unwrap_or("?"), text("version").unwrap_or("?")))
}

/// Returns whether an expression is fulfilled by licences that are allowed.
fn is_allowed(licence: &str) -> bool {
    // Some old packages write "MIT/Apache-2.0".
    let licence = Expression::parse_mode(licence, spdx::ParseMode::LAX);
    licence.is_ok_and(|licence| {
        licence.evaluate(|need| need.license.id().is_some_and(|id| ALLOWED.contains(&id.name)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_side_of_an_or_and_both_of_an_and_must_be_allowed() {
        let allowed = ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0"];
        assert!(allowed.into_iter().all(is_allowed));
        assert!(!["GPL-3.0", "MIT AND GPL-2.0", "Mine", ""].into_iter().any(is_allowed));
    }

    #[test]
    fn what_tests_alone_use_is_not_shipped() {
        let metadata = json!({ "workspace_members": ["a"], "resolve": { "nodes": [
            { "id": "a", "deps": [
                { "pkg": "b", "dep_kinds": [{ "kind": null }] },
                { "pkg": "c", "dep_kinds": [{ "kind": "dev" }] },
                { "pkg": "d", "dep_kinds": [{ "kind": "dev" }, { "kind": "build" }] }] },
            { "id": "d", "deps": [{ "pkg": "e", "dep_kinds": [{ "kind": null }] }] }] } });
        assert_eq!(shipped(&metadata), ["a", "b", "d", "e"].map(Some).into());
    }

    #[test]
    fn a_package_names_its_fault() {
        let of = |source: Option<&str>, license: Option<&str>| {
            fault(&json!({ "name": "a", "version": "1.0.0", "source": source, "license": license }))
        };
        assert_eq!(of(Some(CRATES_IO), Some("ISC")), None);
        assert_eq!(of(None, Some("MIT")), None, "a package of this workspace");
        assert_eq!(of(Some(CRATES_IO), None).unwrap(), "a 1.0.0 names no licence");
        assert_eq!(of(Some("git+https://b"), Some("MIT")).unwrap(), "a 1.0.0 comes from git+https://b");
        assert_eq!(of(Some(CRATES_IO), Some("AGPL-3.0")).unwrap(), "a 1.0.0 has the licence AGPL-3.0");
    }
}
