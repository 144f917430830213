//! The usage texts against the words that the parsers know.

use std::collections::BTreeSet;

use txq_core::arch::Native;

use super::*;
use crate::generic::qdisc::testing::{Virtual, try_build};
use crate::tc::{Syntax, syntax_of};

/// Words that a kind accepts and that its usage text lacks, as tc's: second names, negations, and link layers of cake.
const UNSAID: &[(&str, &[&str])] = &[
    ("fq_codel", &["noecn"]),
    ("fq_pie", &["noecn", "nobytemode", "no_dq_rate_estimator"]),
    ("tbf", &["buffer", "maxburst", "minburst", "mpu"]),
    ("tbf_mq", &["buffer", "maxburst", "mpu"]),
    ("etf", &["skip_sock_check"]),
    ("fq", &["nopacing", "horizon_cap", "horizon_drop"]),
    (
        "cake",
        &[
            "precedence",
            "pppoa-vcmux",
            "pppoa-llc",
            "pppoe-vcmux",
            "pppoe-llcsnap",
            "bridged-vcmux",
            "bridged-llcsnap",
            "ipoa-vcmux",
            "ipoa-llcsnap",
            "pppoe-ptm",
            "bridged-ptm",
            "via-ethernet",
            "ethernet",
            "ether-vlan",
            "docsis",
        ],
    ),
    ("choke", &["avpkt", "probability"]),
    ("dualpi2", &["l4s_ect", "any_ect"]),
    ("htb", &["debug", "buffer", "maxburst", "cbuffer", "cmaxburst", "linklayer"]),
];

/// Returns the words of a kind that its usage lacks.
fn unsaid(syntax: &Syntax) -> Vec<&'static str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let said: Vec<&str> = syntax.usage.split(|c| !is_part(c)).collect();
    syntax.words.iter().copied().filter(|word| !said.contains(word)).collect()
}

#[test]
fn usage_texts_have_all_words_of_their_kinds() {
    let env = Env { txqs: 4, ..ENV };
    let mut all: Vec<&'static Syntax> = Vec::new();
    for kind in kind_names::<Native>() {
        let (error, syntax) = syntax_of(|| try_build(&format!("{kind} help"), &env).map(|_| ()).unwrap_err());
        let syntax = syntax.unwrap_or_else(|| panic!("{kind} has options"));
        assert!(error.to_string().contains(syntax.usage), "{kind}: {error}");
        all.push(syntax);
    }
    for kind in ["htb", "hfsc", "drr", "ets bands 4"] {
        let mut qdisc = Virtual::new(kind);
        let (_, syntax) = syntax_of(|| qdisc.add_class(1, "help").unwrap_err());
        all.push(syntax.unwrap_or_else(|| panic!("a class of {kind} has options")));
    }
    let found: BTreeSet<_> = all
        .into_iter()
        .flat_map(|syntax| unsaid(syntax).into_iter().map(|word| (syntax.kind, word)))
        .collect();
    let known: BTreeSet<_> =
        UNSAID.iter().flat_map(|(kind, words)| words.iter().map(|word| (*kind, *word))).collect();
    assert_eq!(found, known);
}
