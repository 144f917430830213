//! Modules and crates import only what stands before them in docs/architecture.md.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::root;

const DOCUMENT: &str = "docs/architecture.md";

/// The layer of each crate, or of each module of a crate.
type Layers = HashMap<String, usize>;

/// Prints each import against the order; an error if there is one.
pub(crate) fn check() -> Result<()> {
    let text = fs::read_to_string(Path::new(root()).join(DOCUMENT))?;
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (name, layers) in parse(&text)? {
        if name == "crates" {
            wrong.extend(crates(&layers)?);
        } else {
            // A folder of a crate has layers of its own.
            let (krate, below) = name.split_once('/').unwrap_or((&name, ""));
            let folder = Path::new(root()).join("crates").join(krate).join("src").join(below);
            let prefix = if below.is_empty() { "crate::".to_owned() } else { format!("crate::{below}::") };
            for file in sources(&folder)? {
                if is_test(&file) {
                    continue;
                }
                let source = fs::read_to_string(&file)?;
                let module = module_of(&file, &folder);
                checked += 1;
                for problem in imports_against(&module, &source, &prefix, &layers) {
                    let file = file.strip_prefix(root()).unwrap_or(&file);
                    wrong.push(format!("{}: {problem}", file.display()));
                }
            }
        }
    }
    wrong.iter().for_each(|line| println!("{line}"));
    if !wrong.is_empty() {
        bail!("{} imports against the order of {DOCUMENT}, \"Layers\"", wrong.len());
    }
    println!("layers: {checked} files import in order");
    Ok(())
}

/// Returns the lines of the document's block of layers: a name, and the layer of each word.
fn parse(document: &str) -> Result<Vec<(String, Layers)>> {
    let block = document
        .split("```layers\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .with_context(|| format!("{DOCUMENT} has no block of layers"))?;
    block
        .lines()
        .map(|line| {
            let (name, words) = line.split_once(':').with_context(|| format!("{DOCUMENT}: {line}"))?;
            let (mut layers, mut layer, mut grouped) = (Layers::new(), 0, false);
            for word in words.split_whitespace() {
                grouped |= word.starts_with('(');
                layers.insert(word.trim_matches(['(', ')']).to_owned(), layer);
                grouped &= !word.ends_with(')');
                layer += usize::from(!grouped);
            }
            Ok((name.to_owned(), layers))
        })
        .collect()
}

/// Returns the dependencies of workspace crates on crates that do not stand before them.
fn crates(layers: &Layers) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (name, layer) in layers {
        let path = Path::new(root()).join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let dependencies = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let names = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        for dependency in names.filter(|name| layers.get(*name).is_some_and(|other| other >= layer)) {
            wrong.push(format!("crates/{name}/Cargo.toml: depends on {dependency}"));
        }
    }
    Ok(wrong)
}

/// Returns the Rust files of a folder and of those below it.
pub(crate) fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        match path.is_dir() {
            true => files.extend(sources(&path)?),
            false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
            false => {}
        }
    }
    Ok(files)
}

/// Returns whether a file holds only tests, which may import anything.
pub(crate) fn is_test(file: &Path) -> bool {
    let stems = file.components().filter_map(|part| part.as_os_str().to_str());
    stems.map(|part| part.trim_end_matches(".rs")).any(|stem| ["tests", "testing"].contains(&stem))
}

/// Returns the top module that a file belongs to; `lib` for the root of the crate.
pub(crate) fn module_of(file: &Path, folder: &Path) -> String {
    let below = file.strip_prefix(folder).expect("a file of the folder");
    let first = below.components().next().expect("a file");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Returns what is wrong with the imports of a source, whose neighbours have paths that begin with `prefix`. Tests may import
/// anything, the root re-exports all.
fn imports_against(module: &str, source: &str, prefix: &str, layers: &Layers) -> Vec<String> {
    if module == "lib" || module == "mod" {
        return Vec::new();
    }
    let Some(&layer) = layers.get(module) else {
        return vec![format!("the module {module} is in no layer of {DOCUMENT}")];
    };
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut wrong = Vec::new();
    let (mut doc_only, mut test_only) = (false, false);
    for (line, text) in code.lines().enumerate() {
        let text = text.split("//").next().unwrap_or_default();
        for path in text.split(prefix).skip(1).filter(|_| !doc_only && !test_only) {
            let other: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if other != module && layers.get(&other).is_some_and(|&other| other > layer) {
                wrong.push(format!("line {}: {module} imports {other}, which stands after it", line + 1));
            }
        }
        doc_only = text.trim() == "#[cfg(doc)]";
        test_only = text.trim() == "#[cfg(test)]";
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "x\n```layers\ncrates: a b\na: low (mid other) high\n```\n";

    #[test]
    fn imports_against_the_order_are_found() {
        let all = parse(DOCUMENT).expect("a block");
        let layers = &all.iter().find(|(name, _)| name == "a").expect("a line").1;
        let wrong = |module, source| imports_against(module, source, "crate::", layers).len();
        assert_eq!(wrong("low", "use crate::high::X;\nfn f() { crate::mid::g() }\n"), 2);
        assert_eq!(wrong("high", "use crate::low::X;\nuse crate::mid::Y;\n"), 0);
        assert_eq!(wrong("mid", "use crate::other::X;\nuse crate::low::X;\n"), 0);
        assert_eq!(wrong("low", "// crate::high\n#[cfg(doc)]\nuse crate::high::X;\n"), 0);
        assert_eq!(wrong("low", "fn f() {}\n#[cfg(test)]\nmod tests { use crate::high::X; }\n"), 0);
        assert_eq!(wrong("new", "fn f() {}\n"), 1);
        assert_eq!(wrong("lib", "pub use crate::high::X;\n"), 0);
    }

    #[test]
    fn a_document_without_the_block_is_an_error() {
        assert!(parse("nothing").is_err());
        assert!(parse("```layers\nno colon\n```").is_err());
    }
}
