//! The tests that the documents name exist, and so do the lines that the mutants break.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files that may hold a test named `FOLDER/NAME`, or `NAME` in a document about `kind`, and the test's name.
fn places(name: &str, kind: &str) -> (Vec<PathBuf>, String) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let qdiscs = source.join("txq-sched/src/generic/qdisc");
    let (folder, name) = name.split_once('/').unwrap_or((kind, name));
    let mut places = match folder {
        "flow" => vec![source.join("txq-core/src/flow/tests.rs")],
        "tests" => vec![qdiscs.join("tests.rs")],
        kind => vec![qdiscs.join(format!("{kind}/tests.rs"))],
    };
    let more = qdiscs.join(if folder == "tests" { "tests" } else { "none" });
    places.extend(fs::read_dir(more).into_iter().flatten().flatten().map(|entry| entry.path()));
    (places, name.to_owned())
}

/// Returns the names in backticks in the last column of the tables.
fn names(document: &str) -> Vec<String> {
    let rows = document.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| section "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns whether a source has a test of that name.
fn has_test(source: &str, name: &str) -> bool {
    let Some(at) = source.find(&format!("fn {name}(")) else { return false };
    let before = source[..at].trim_end().rsplit('\n').next().unwrap_or_default();
    before.trim() == "#[test]"
}

#[test]
fn tests_that_documents_name_exist() {
    for (document, kind, least) in [("rfc8289.md", "codel", 17), ("rfc8290.md", "fq_codel", 20)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../txq-sched/rfc").join(document);
        let names = names(&fs::read_to_string(&path).expect(document));
        assert!(names.len() >= least, "{document} has {} names only", names.len());
        for name in names {
            let (places, test) = places(&name, kind);
            let read = |place: &PathBuf| fs::read_to_string(place).unwrap_or_default();
            assert!(
                places.iter().any(|place| has_test(&read(place), &test)),
                "{document} names {name}, which is no test in {places:?}"
            );
        }
    }
}

/// Returns the sources of a kind: `qdisc/NAME.rs` and the files of `qdisc/NAME`.
fn sources_of_kind(qdiscs: &Path, name: &str) -> Option<String> {
    let mut all = fs::read_to_string(qdiscs.join(format!("{name}.rs"))).ok()?;
    for entry in fs::read_dir(qdiscs.join(name)).into_iter().flatten().flatten() {
        all += &fs::read_to_string(entry.path()).unwrap_or_default();
    }
    Some(all)
}

/// CONTRIBUTING.md, "A qdisc": the steps that a source shows.
#[test]
fn each_kind_follows_the_recipe() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(crates.join(path)).expect(path);
    let qdiscs = crates.join("txq-sched/src/generic/qdisc");
    let (list, pages) = (read("txq-sched/src/generic/qdisc/kinds.rs"), read("txq-sched/src/qdisc/mod.rs"));
    let fidelity = read("../docs/fidelity.md");
    let scripts = fs::read_dir(crates.join("txq-oracle/scripts")).expect("scripts");
    let scripts: String = scripts.flatten().filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let names: Vec<&str> =
        list.split("Kind::new(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 25, "{names:?}");
    // pfifo and bfifo are built by one file.
    let shared = fs::read_to_string(qdiscs.join("limited.rs")).expect("limited.rs");
    for name in names {
        let source = sources_of_kind(&qdiscs, name).unwrap_or_else(|| panic!("there is no {name}.rs"));
        assert!(source.starts_with("//! "), "{name}.rs has no doc");
        // tbf_mq, htb_mq and cake_mq have the words of their namesakes.
        let words = sources_of_kind(&qdiscs, name.trim_end_matches("_mq")).unwrap_or_default();
        assert!(words.contains("SYNTAX: Syntax"), "{name} has no SYNTAX");
        let builds = |source: &str| source.contains("pub(super) fn build");
        assert!(builds(&source) || builds(&shared), "{name} has no build");
        let word =
            |text: &str| text.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == name);
        assert!(word(&pages), "{name} has no page in txq-sched/src/qdisc/mod.rs");
        assert!(
            word(&scripts) || word(&fidelity),
            "{name} has neither a script of the oracle nor a difference"
        );
    }
}

/// The fields of a mutant of mutants.toml that this test reads.
#[derive(serde::Deserialize)]
struct Mutant {
    file: String,
    how: String,
    old: String,
    new: String,
}

#[test]
fn lines_that_mutants_break_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(here.join("mutants.toml")).expect("mutants.toml");
    let mut list: HashMap<String, Vec<Mutant>> = toml::from_str(&list).expect("mutants.toml");
    let mutants = list.remove("mutant").expect("mutants.toml has no mutants");
    let wrong = mutants.iter().filter_map(|Mutant { file, how, old, new }| {
        let source = fs::read_to_string(here.join("..").join(file));
        let times = source.map(|source| source.matches(old).count());
        match times {
            Err(error) => Some(format!("{file}: {how}: {error}")),
            Ok(1) if old == new => Some(format!("{file}: {how}: `new` is `old`")),
            Ok(1) => None,
            Ok(times) => Some(format!("{file}: {how}: `old` occurs {times} times")),
        }
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "mutants.toml:\n{}", wrong.join("\n"));
}
