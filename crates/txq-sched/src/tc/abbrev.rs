//! Abbreviated words: tc takes any beginning of some of its words for the word.
//!
//! tc compares a word with its options one after the other. It compares some of them whole, and of others any beginning counts. So a
//! parser lists the options that may be abbreviated, in tc's order; the first one that begins like the word is meant. An option that tc
//! compares whole stays out of the list, except in front of one that it begins: then the list names it, so that it stands for itself. The
//! counterpart is iproute2's `matches`.

/// Returns the first of `known` that begins with `word`, or else `word`.
pub(crate) fn full<'a>(word: &'a str, known: &[&'static str]) -> &'a str {
    known.iter().find(|known| !word.is_empty() && known.starts_with(word)).map_or(word, |known| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_the_list_is_meant() {
        let known = ["limit", "latency", "d", "delay", "delta"];
        for (word, expected) in [
            ("l", "limit"),
            ("la", "latency"),
            ("d", "d"),
            ("de", "delay"),
            ("delt", "delta"),
            ("delta", "delta"),
            ("deltas", "deltas"),
            ("x", "x"),
            ("", ""),
        ] {
            assert_eq!(full(word, &known), expected, "{word}");
        }
    }
}
