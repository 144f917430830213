//! The words of u32's commands.

use super::sample::{Selector, signed};
use super::{HashKey, Id, LAST_NODE, MOST_BUCKETS, Offset, Rule};
use crate::generic::action::Actions;
use crate::generic::filter::header::{classid, unknown_word};
use crate::tc::{ParseError, Words, c_number, full, radix_number};

const WORDS: [&str; 13] = [
    "match", "classid", "flowid", "link", "ht", "hashkey", "offset", "divisor", "order", "sample", "action",
    "police", "skip_hw",
];
/// The words that may be abbreviated, in tc's order.
const SHORT: [&str; 8] = ["match", "offset", "hashkey", "classid", "divisor", "order", "action", "police"];
pub(super) const USAGE: &str = "Usage: ... u32 [ match SELECTOR ... ] [ link HTID ] [ classid CLASSID ]
               [ action ACTION_SPEC ] [ offset OFFSET_SPEC ]
               [ ht HTID ] [ hashkey HASHKEY_SPEC ]
               [ sample SAMPLE ] [ skip_hw ]
or         u32 divisor DIVISOR

Where: SELECTOR := SAMPLE SAMPLE ...
       SAMPLE := { ip | ip6 | udp | tcp | icmp | ether | u{32|16|8} | mark }
                 SAMPLE_ARGS [ divisor DIVISOR ]
       FILTERID := X:Y:Z

NOTE: CLASSID is parsed at hexadecimal input.";

/// Parses the words after `u32`.
pub(in crate::generic::filter) fn parse(
    handle: Option<&str>,
    words: &mut Words<'_>,
) -> Result<Rule, ParseError> {
    let id = handle.map_or(Ok(Id::default()), |word| {
        let remedy = format!("\"{word}\" is no handle such as 800::801 or ::801");
        Id::parse(word).ok_or_else(|| ParseError::new("Illegal filter ID").with_remedy(remedy))
    })?;
    let mut rule = Rule {
        id,
        options: words.peek().is_some(),
        divisor: None,
        ht: Id::default(),
        link: None,
        keys: None,
        mark: None,
        hash: None,
        offset: Offset::default(),
        classid: None,
        skip_hw: false,
        actions: Actions::default(),
    };
    let (mut selector, mut given) = (Selector::default(), false);
    while let Some(word) = words.next_word() {
        match full(word, &SHORT) {
            "match" => {
                selector.parse(words)?;
                given = true;
            }
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "skip_hw" => rule.skip_hw = true,
            "action" => rule.actions.parse(words)?,
            "police" => rule.actions.parse_police(words)?,
            "divisor" => rule.divisor = Some(divisor("divisor", words)?),
            "order" => {
                let order = number("order", words)?;
                match rule.id.node() {
                    0 => rule.id = Id(rule.id.0 | order),
                    node if node == order => {}
                    node => {
                        let error = ParseError::new("\"order\" contradicts \"handle\"");
                        return Err(error.with_remedy(format!("the handle says {node}: leave out the order")));
                    }
                }
            }
            "ht" => {
                let ht = table("ht", words)?;
                // A bucket that `sample` has chosen stays.
                let bucket = if rule.ht.bucket() == 0 { ht.bucket() } else { rule.ht.bucket() };
                rule.ht = Id::of(ht.table(), bucket, 0);
            }
            "link" => {
                let link = table("link", words)?;
                if link.node() != 0 {
                    let error = ParseError::new("\"link\" must be a hash table.");
                    return Err(error.with_remedy("leave out bucket and node: link 2:"));
                }
                rule.link = Some(link);
            }
            "sample" => rule.ht = Id::of(rule.ht.table(), sample(words)?, 0),
            "hashkey" => rule.hash = Some(hashkey(words)?),
            "offset" => offset(&mut rule.offset, words)?,
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    if given {
        (rule.keys, rule.mark) = (Some(selector.keys), selector.mark);
    }
    Ok(rule)
}

impl Id {
    /// Parses `TABLE:[BUCKET[:[NODE]]]`, or a number such as `0x80000801`.
    fn parse(word: &str) -> Option<Self> {
        if !word.contains(':') {
            return word.starts_with("0x").then(|| c_number(word)).flatten().map(Self);
        }
        let mut parts = word.split(':').map(|part| if part.is_empty() { Some(0) } else { hex(part) });
        let mut next = |most| parts.next().unwrap_or(Some(0)).filter(|&part| part <= most);
        let id = Self::of(next(0xfff)?, next(0xff)?, next(LAST_NODE)?);
        parts.next().is_none().then_some(id)
    }
}

fn hex(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
    radix_number(digits, 16)
}

fn illegal(name: &str, remedy: String) -> ParseError {
    ParseError::new(format!("Illegal \"{name}\"")).with_remedy(remedy).with_usage(USAGE)
}

fn number(name: &str, words: &mut Words<'_>) -> Result<u32, ParseError> {
    let word = words.value(name)?;
    c_number(word).ok_or_else(|| illegal(name, format!("\"{word}\" is no number")))
}

/// Takes the handle of a hash table, or of one of its buckets.
fn table(name: &str, words: &mut Words<'_>) -> Result<Id, ParseError> {
    let word = words.value(name)?;
    Id::parse(word).ok_or_else(|| illegal(name, format!("\"{word}\" is no hash table such as 2: or 2:7b:")))
}

/// Takes the size of a hash table: a power of 2.
fn divisor(name: &str, words: &mut Words<'_>) -> Result<u32, ParseError> {
    let word = words.value("divisor")?;
    let size = c_number(word).filter(|&size| size <= MOST_BUCKETS && size.is_power_of_two());
    size.ok_or_else(|| illegal(name, format!("\"{word}\" is none of 1, 2, 4, .. {MOST_BUCKETS}")))
}

/// Takes a sample of what is to be hashed; returns its bucket.
fn sample(words: &mut Words<'_>) -> Result<u32, ParseError> {
    let mut selector = Selector::default();
    selector.parse(words).map_err(|error| match error.message() {
        "Illegal \"match\"" => illegal("sample", error.remedy().unwrap_or_default().to_owned()),
        _ => error,
    })?;
    let [key] = &*selector.keys else {
        let error = ParseError::new("\"sample\" must contain exactly ONE key.");
        return Err(
            error.with_remedy("the words of an IPv6 address are several: use u32 VALUE MASK at OFFSET")
        );
    };
    let mut buckets = MOST_BUCKETS;
    if words.peek().is_some_and(|word| full(word, &["divisor"]) == "divisor") {
        words.next_word();
        buckets = divisor("divisor", words).map_err(|error| {
            let remedy = error.remedy().unwrap_or_default().to_owned();
            match error.message() {
                "Illegal \"divisor\"" => ParseError::new("Illegal sample \"divisor\"").with_remedy(remedy),
                _ => error,
            }
        })?;
    }
    Ok(HashKey { mask: key.mask, offset: 0 }.bucket(key.value, buckets))
}

/// Takes `mask MASK` and `at OFFSET`, in any order: which bits choose the bucket of a linked table.
fn hashkey(words: &mut Words<'_>) -> Result<HashKey, ParseError> {
    let mut link = HashKey { mask: 0, offset: 0 };
    let name = |words: &Words<'_>| match full(words.peek().unwrap_or_default(), &["mask", "at"]) {
        "mask" => Some("mask"),
        "at" => Some("at"),
        _ => None,
    };
    if name(words).is_none() {
        return Err(match words.next_word() {
            None => ParseError::incomplete("hashkey"),
            Some(word) => unknown_word(word, &["mask", "at"], USAGE),
        });
    }
    while let Some(name) = name(words) {
        words.next_word();
        let word = words.value(name)?;
        let wrong =
            || illegal("hashkey", format!("\"{word}\": a hashkey is mask HEX at OFFSET, a multiple of 4"));
        match name {
            "mask" => link.mask = hex(word).ok_or_else(wrong)?,
            _ => link.offset = signed(word).filter(|offset| offset % 4 == 0).ok_or_else(wrong)?,
        }
    }
    Ok(link)
}

/// Takes `plus N`, `at OFFSET`, `mask MASK`, `shift N` and `eat`, in any order.
fn offset(of: &mut Offset, words: &mut Words<'_>) -> Result<(), ParseError> {
    const NAMES: [&str; 5] = ["mask", "shift", "plus", "at", "eat"];
    match words.peek() {
        None => return Err(ParseError::incomplete("offset")),
        Some(word) if !NAMES.contains(&full(word, &NAMES)) => return Err(unknown_word(word, &NAMES, USAGE)),
        _ => {}
    }
    let name = |words: &Words<'_>| {
        let word = words.peek().map(|word| full(word, &NAMES));
        NAMES.into_iter().find(|name| word == Some(name))
    };
    while let Some(name) = name(words) {
        words.next_word();
        if name == "eat" {
            of.eat = true;
            continue;
        }
        let word = words.value(name)?;
        let wrong = || illegal("offset", format!("\"{word}\" is no number that {name} takes"));
        match name {
            "mask" => of.mask = hex(word).and_then(|mask| mask.try_into().ok()).ok_or_else(wrong)?,
            // As tc and the kernel, which store one byte and two.
            "shift" => of.shift = c_number(word).ok_or_else(wrong)? as u8,
            "plus" => of.plus = c_number(word).ok_or_else(wrong)? as u16,
            _ => {
                of.at = signed(word).ok_or_else(wrong)?;
                if of.at % 2 != 0 {
                    let error = ParseError::new("offset \"at\" must be even\nIllegal \"offset\"");
                    return Err(error.with_usage(USAGE));
                }
            }
        }
        match name {
            "plus" => of.fixed = true,
            _ => of.variable = true,
        }
    }
    Ok(())
}
