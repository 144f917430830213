//! The commands in the documents' text, tables and blocks: subcommands and options exist.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::{TXQ, documents, read};

/// The commands whose options `txq-lab` has.
const LAB: [&str; 2] = ["bench", "sim"];

/// Returns the commands of txq in backticks.
fn commands(document: &str) -> Vec<String> {
    let text = read(document);
    // Every second part stands in a fence, and every second part of the others in backticks.
    let outside = text.split("\n```").step_by(2);
    let quoted =
        outside.flat_map(|part| part.split('`').skip(1).step_by(2)).filter(|code| !code.contains('\n'));
    let blocks = text.replace("\\\n", " ");
    let typed = blocks.split("\n```").skip(1).step_by(2).flat_map(str::lines);
    let all = quoted.chain(typed.filter(|line| !line.contains("txq exec ")));
    let own = |code: &str| {
        let code = code.split(" # ").next()?;
        let code = code.strip_prefix("$ ").unwrap_or(code).split(['|', ';', '&', '>']).next()?;
        let lab = code.strip_prefix("cargo lab ").map(|rest| format!("txq {rest}"));
        lab.or_else(|| code.starts_with("txq ").then(|| code.to_owned()))
    };
    all.filter_map(own).collect()
}

/// Returns the help of a subcommand; `None` if there is none.
fn help(words: &[&str]) -> Option<String> {
    let done = Command::new(TXQ).args(words).arg("--help").output().expect("txq");
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn commands_in_the_text_exist() {
    let mut known = HashMap::<String, Option<String>>::new();
    let mut checked = 0;
    let has_lab = Path::new(TXQ).with_file_name("txq-lab").is_file();
    if !has_lab {
        println!("SKIP commands_in_the_text_exist: {LAB:?} need txq-lab: cargo build -p txq-lab");
    }
    for document in documents() {
        for command in commands(&document) {
            let words: Vec<_> = command.split_whitespace().skip(1).collect();
            let name = words[0];
            if name.starts_with('-') || (LAB.contains(&name) && !has_lab) {
                continue;
            }
            let text = known.entry(name.to_owned()).or_insert_with(|| help(&[name]));
            let text = text.as_ref().unwrap_or_else(|| panic!("{document}: `{command}`: no such command"));
            // The words of the program that `txq exec` runs are that program's.
            for option in words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--"))
            {
                let option = option.split(['=', '[']).next().expect("a part");
                let has = |text: &str| {
                    text.split(|c: char| c != '-' && !c.is_alphanumeric()).any(|word| word == option)
                };
                let own = || words.get(1).and_then(|sub| help(&[name, sub]));
                assert!(
                    has(text) || own().is_some_and(|text| has(&text)),
                    "{document}: `{command}`: {option}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "{checked} options in the documents");
}
