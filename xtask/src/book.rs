//! The book: the documents in the order of docs/SUMMARY.md. Each page names the next one at its end, and each link leads to a file and
//! a heading that exist.
//!
//! mdBook shows the book. It is built if mdBook is installed; the checks need nothing.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::root;

const FOLDER: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
/// The folder of the built book, as book.toml has it.
const BUILT: &str = "book";
/// The page that a command prints (`txq run --print-keys`), so it has no last line of its own.
const PRINTED: &str = "keys.md";

/// A page of the book: its title in the summary, and its file in docs.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    title: String,
    file: String,
}

/// Prints each wrong place; an error if there is one.
pub(crate) fn check() -> Result<()> {
    let documents = documents()?;
    let pages = pages(&documents[Path::new(SUMMARY)]);
    let mut wrong = order(&pages, &documents);
    for (file, text) in &documents {
        wrong.extend(links(text).into_iter().filter_map(|link| {
            let problem = broken(file, &link, &documents)?;
            Some(format!("{}: {link}: {problem}", file.display()))
        }));
    }
    wrong.sort();
    wrong.iter().for_each(|line| println!("{line}"));
    if !wrong.is_empty() {
        bail!("{} places of the documents are wrong", wrong.len());
    }
    let words: usize = documents
        .iter()
        .filter(|(file, _)| file.starts_with(FOLDER))
        .map(|(_, text)| text.split_whitespace().count())
        .sum();
    println!(
        "book: {} pages of {words} words, all links of {} documents lead somewhere",
        pages.len(),
        documents.len()
    );
    build(&documents)
}

/// Returns the documents that git knows or would add, with their text.
fn documents() -> Result<HashMap<PathBuf, String>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
    let listed = Command::new("git").args(list).current_dir(root()).output()?;
    let names = String::from_utf8(listed.stdout).context("names of files are UTF-8")?;
    let mut documents = HashMap::new();
    for name in names.lines() {
        // A document that is deleted and not yet committed is still listed.
        if let Ok(text) = fs::read_to_string(Path::new(root()).join(name)) {
            documents.insert(PathBuf::from(name), text);
        }
    }
    Ok(documents)
}

/// Returns the pages of a summary, in order.
fn pages(summary: &str) -> Vec<Page> {
    let entries = summary.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix('['));
    let entries = entries.filter_map(|entry| entry.strip_suffix(')')?.split_once("]("));
    entries.map(|(title, file)| Page { title: title.to_owned(), file: file.to_owned() }).collect()
}

/// Returns what is wrong with the order: pages that are not in the summary, and pages that do not name the next one.
fn order(pages: &[Page], documents: &HashMap<PathBuf, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let listed: BTreeSet<PathBuf> = pages.iter().map(|page| Path::new(FOLDER).join(&page.file)).collect();
    let of_book = documents.keys().filter(|file| file.parent() == Some(Path::new(FOLDER)));
    for file in of_book.filter(|file| file.as_path() != Path::new(SUMMARY) && !listed.contains(*file)) {
        wrong.push(format!("{}: not in {SUMMARY}", file.display()));
    }
    for (page, next) in pages.iter().zip(pages.iter().skip(1)) {
        let Some(text) = documents.get(&Path::new(FOLDER).join(&page.file)) else {
            wrong.push(format!("{SUMMARY}: {} does not exist", page.file));
            continue;
        };
        let last = format!("Next: [{}]({})", next.title, next.file);
        if page.file != PRINTED && text.trim_end().lines().last() != Some(&last) {
            wrong.push(format!("{FOLDER}/{}: the last line is not {last:?}", page.file));
        }
    }
    wrong
}

/// Returns the lines of a document that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the targets of a document's links.
fn links(text: &str) -> Vec<String> {
    let without_code = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let found = prose(text).flat_map(|line| {
        let line = without_code(line);
        let parts = line.split("](").skip(1).filter_map(|part| part.split_once(')'));
        parts.map(|(target, _)| target.to_owned()).collect::<Vec<_>>()
    });
    found.collect()
}

/// Returns the names by which links reach the headings of a document, as GitHub and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let titles =
        prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let name = |title: &str| -> String {
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .collect::<String>();
        kept.replace(' ', "-")
    };
    titles.map(name).collect()
}

/// Returns why a link of a document leads nowhere; `None` if it does, or leaves the repository.
fn broken(file: &Path, link: &str, documents: &HashMap<PathBuf, String>) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = match path {
        "" => file.to_owned(),
        path => resolved(&file.parent().unwrap_or(Path::new("")).join(path)),
    };
    if !Path::new(root()).join(&target).exists() {
        return Some("no such file".to_owned());
    }
    let heading = heading?;
    let has = documents.get(&target).is_some_and(|text| headings(text).contains(heading));
    (!has).then(|| format!("{} has no heading #{heading}", target.display()))
}

/// Returns a path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = all.pop(),
            Component::CurDir => {}
            part => all.push(part),
        }
    }
    all
}

/// Builds the book by mdBook, if that is installed.
fn build(documents: &HashMap<PathBuf, String>) -> Result<()> {
    let has = Command::new("mdbook").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        println!("SKIP book: it is not built: mdBook is not installed: cargo install mdbook --locked");
        return Ok(());
    }
    crate::run(Command::new("mdbook").arg("build"))?;
    for entry in fs::read_dir(Path::new(root()).join(BUILT))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "html") {
            let html = fs::read_to_string(&file)?;
            fs::write(&file, led_out(&html, |document| documents.contains_key(Path::new(document))))?;
        }
    }
    Ok(())
}

/// Returns a page of the built book whose links to documents beside the book lead there: mdBook takes them for pages of its own.
fn led_out(html: &str, is_document: impl Fn(&str) -> bool) -> String {
    let mut parts = html.split("href=\"../");
    let mut led = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        led += "href=\"../";
        match part.split_once(".html") {
            Some((path, rest)) if !path.contains('"') && is_document(&format!("{path}.md")) => {
                led += &format!("{path}.md{rest}");
            }
            _ => led += part,
        }
    }
    led
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, file: &str) -> Page {
        Page { title: title.to_owned(), file: file.to_owned() }
    }

    #[test]
    fn pages_of_a_summary_are_in_order() {
        let summary = "# Part\n\n- [One](one.md)\n- [Two](two.md)\n\n---\n\n[Keys](keys.md)\n";
        assert_eq!(pages(summary), [page("One", "one.md"), page("Two", "two.md"), page("Keys", "keys.md")]);
    }

    #[test]
    fn a_page_names_the_next_one() {
        let book = [page("One", "one.md"), page("Two", "two.md")];
        let with = |one: &str, more: &str| {
            let files = [("docs/one.md", one), ("docs/two.md", "# Two"), (SUMMARY, ""), (more, "")];
            order(&book, &files.map(|(file, text)| (PathBuf::from(file), text.to_owned())).into())
        };
        assert!(with("# One\n\nNext: [Two](two.md)\n", "README.md").is_empty());
        assert_eq!(with("# One\n", "README.md").len(), 1);
        assert_eq!(
            with("# One\n\nNext: [Two](two.md)\n", "docs/lost.md"),
            ["docs/lost.md: not in docs/SUMMARY.md"]
        );
    }

    #[test]
    fn links_of_the_built_book_lead_to_documents_beside_it() {
        let html = "<a href=\"../crates/a/README.html#part\">a</a> <a href=\"../b.rs\">b</a> <a href=\"c.html\">c</a>";
        let led = led_out(html, |document| document == "crates/a/README.md");
        assert_eq!(led, html.replace("README.html", "README.md"));
        assert_eq!(led_out(html, |_| false), html);
    }

    #[test]
    fn links_in_code_are_none() {
        let text = "A [link](a.md#part), `[code](b.md)` and [two](c.md)\n```\n[block](d.md)\n```\n";
        assert_eq!(links(text), ["a.md#part", "c.md"]);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let names =
            headings("# The `txq` command\n## Loads that overlap\n```\n# no heading\n```\n### htb_mq\n");
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["htb_mq", "loads-that-overlap", "the-txq-command"]
        );
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let documents = HashMap::from([(PathBuf::from("README.md"), "# Part one\n".to_owned())]);
        let of = |link: &str| broken(Path::new("docs/rate.md"), link, &documents);
        assert_eq!(of("../README.md#part-one"), None);
        assert_eq!(of("https://example.org/#x"), None);
        assert!(of("../README.md#part-two").is_some() && of("../no-such-file.md").is_some());
    }
}
