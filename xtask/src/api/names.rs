//! The paths by which users name what a crate re-exports.
//!
//! rustdoc names a type by the crate that defines it, which may be an internal one. Here each such name becomes the path in
//! the crate that the user depends on, as the `pub use` lines of its sources say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The re-exports of a crate: a path in another crate, and the public path of this crate that it has there.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// Reads the re-exports of the crate `name` from its root and from the files of its public modules.
    pub(super) fn of(root: &Path, name: &str) -> Result<Self> {
        let (src, ident) = (root.join("crates").join(name).join("src"), name.replace('-', "_"));
        let mut names = Self::default();
        let lib = fs::read_to_string(src.join("lib.rs")).with_context(|| format!("{name}: lib.rs"))?;
        names.read(&lib, &ident);
        let is_hidden = |module: &&str| lib.contains(&format!("#[doc(hidden)]\npub mod {module};"));
        let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        for module in modules.filter(|module| !is_hidden(module)) {
            let files = [src.join(format!("{module}.rs")), src.join(module).join("mod.rs")];
            if let Some(text) = files.iter().find_map(|file| fs::read_to_string(file).ok()) {
                names.read(&text, &format!("{ident}::{module}"));
            }
        }
        Ok(names)
    }

    /// Reads the `pub use` lines of a source, whose module has the path `module`.
    fn read(&mut self, source: &str, module: &str) {
        let code: Vec<_> = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let (mut path, mut depth) = (vec![module.to_owned()], Vec::new());
        let (mut level, mut rest) = (0_usize, code.join("\n"));
        // An inline module ends where its brace closes.
        while let Some(at) = rest.find(['{', '}', ';']) {
            let (statement, mark) = (rest[..at].trim().to_owned(), rest.as_bytes()[at]);
            if mark == b'{' && statement.contains("pub use ") {
                // The braces of a list of names.
                let end = rest.find(';').unwrap_or(rest.len());
                self.add(&rest[..end], path.last().expect("a module"));
                rest = rest.get(end + 1..).unwrap_or_default().to_owned();
                continue;
            }
            match mark {
                b'{' => {
                    level += 1;
                    if let Some((_, name)) = statement.rsplit_once("pub mod ") {
                        path.push(format!("{}::{}", path.last().expect("a module"), name.trim()));
                        depth.push(level);
                    }
                }
                b'}' => {
                    if depth.last() == Some(&level) {
                        depth.pop();
                        path.pop();
                    }
                    level = level.saturating_sub(1);
                }
                _ if statement.contains("pub use ") => self.add(&statement, path.last().expect("a module")),
                _ => {}
            }
            rest = rest[at + 1..].to_owned();
        }
    }

    /// Adds the names of one `pub use`.
    fn add(&mut self, statement: &str, module: &str) {
        let Some((_, tree)) = statement.rsplit_once("pub use ") else { return };
        let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        let own = module.split("::").next().unwrap_or_default();
        let tree = match tree.strip_prefix("crate::") {
            Some(rest) => format!("{own}::{rest}"),
            None => tree,
        };
        let (prefix, list) = match tree.split_once('{') {
            Some((prefix, list)) => (prefix.trim().trim_end_matches("::"), list.trim_end_matches('}')),
            None => tree.rsplit_once("::").unwrap_or(("", &tree)),
        };
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let (there, here) = name.split_once(" as ").unwrap_or((name, name));
            match there {
                "self" => {
                    let last = prefix.rsplit("::").next().unwrap_or_default();
                    self.0.insert(prefix.to_owned(), format!("{module}::{last}"));
                }
                _ => {
                    self.0.insert(format!("{prefix}::{there}"), format!("{module}::{here}"));
                }
            }
        }
    }

    /// Replaces the paths of `line` that begin with one of `crates` by those that users write.
    pub(super) fn rename(&self, line: &str, crates: &[&str]) -> String {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = crates.iter().filter_map(|name| find_path(rest, name)).min() {
            let path: String = rest[at..].chars().take_while(|&c| is_path(c)).collect();
            out.push_str(&rest[..at]);
            out.push_str(&self.public(&path));
            rest = &rest[at + path.len()..];
        }
        out + rest
    }

    /// Returns the public path of an item, or `path` itself if the crate does not re-export it.
    fn public(&self, path: &str) -> String {
        let exact = |(there, here): (&String, &String)| {
            let rest = path.strip_prefix(there.as_str())?;
            (rest.is_empty() || rest.starts_with("::")).then(|| (there.len(), format!("{here}{rest}")))
        };
        // An item of a private module that its parent re-exports: `pool::error::PoolError` is `pool::PoolError`.
        let through = |(there, here): (&String, &String)| {
            let (parent, name) = there.rsplit_once("::")?;
            let below = path.strip_prefix(parent)?.strip_prefix("::")?;
            let (at, _) = below.match_indices(name).find(|(at, name)| {
                let (before, behind) = (&below[..*at], &below[at + name.len()..]);
                (before.is_empty() || before.ends_with("::"))
                    && (behind.is_empty() || behind.starts_with("::"))
            })?;
            Some((parent.len(), format!("{here}{}", &below[at + name.len()..])))
        };
        let longest = |found: Option<(usize, String)>| found.map(|(_, path)| path);
        longest(self.0.iter().filter_map(exact).max_by_key(|(len, _)| *len))
            .or_else(|| longest(self.0.iter().filter_map(through).max_by_key(|(len, _)| *len)))
            .unwrap_or_else(|| path.to_owned())
    }
}

/// Finds where a path of the crate `name` begins in `text`.
fn find_path(text: &str, name: &str) -> Option<usize> {
    let begins = format!("{name}::");
    let mut from = 0;
    while let Some(at) = text[from..].find(&begins).map(|at| at + from) {
        let before = text[..at].chars().next_back();
        if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
            return Some(at);
        }
        from = at + begins.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "pub use low::{cpumask, drop};\npub use low::time::Instant;\nuse low::hidden::Not;\n\
                       pub mod stats {\n    pub use low::stats::{\n        QdiscStats, log2,\n    };\n}\n\
                       pub use low::pool::{PoolError, Backing as Memory};\npub use crate::inner::Verdict;\npub use low::tree::{self, Child};\n";

    #[test]
    fn names_are_those_that_users_write() {
        let mut names = Names::default();
        names.read(LIB, "high");
        let cases = [
            (
                "fn f(low::time::Instant) -> low::drop::DropReason",
                "fn f(high::Instant) -> high::drop::DropReason",
            ),
            (
                "low::stats::log2::Log2, low::stats::QdiscStats",
                "high::stats::log2::Log2, high::stats::QdiscStats",
            ),
            ("low::pool::error::PoolError", "high::PoolError"),
            ("low::pool::region::Backing::Auto", "high::Memory::Auto"),
            ("low::tree::Child<low::tree::leaf::Leaf>", "high::Child<high::tree::leaf::Leaf>"),
            ("low::hidden::Not", "low::hidden::Not"),
            ("high::inner::qdisc::Verdict", "high::Verdict"),
            ("below::drop::X", "below::drop::X"),
        ];
        for (line, expected) in cases {
            assert_eq!(names.rename(line, &["low", "high::inner"]), expected, "{line}");
        }
    }
}
