//! The counter of packets whose priority names a class that does not exist, as `tc -s qdisc show` prints it. tc has none: a text has
//! the line only if the count is above zero.

use super::options::{Options, Style};

const KEY: &str = "unknown_class";

/// Returns the line for a count; `None` for 0.
pub(crate) fn unknown_class(count: u64, style: Style) -> Option<Options> {
    let mut options = Options::new(style);
    options.put(KEY, count, format_args!(" {KEY} {count}"));
    (count > 0).then_some(options)
}

/// Returns the sum of the counts in the kind's own counters of two parts of one qdisc; `None` if it is 0.
pub(super) fn sum(one: Option<&Options>, other: Option<&Options>) -> Option<Options> {
    let parts = [one, other].into_iter().flatten();
    let count = parts
        .clone()
        .filter_map(|part| part.text().trim().strip_prefix(KEY)?.trim().parse::<u64>().ok())
        .sum();
    unknown_class(count, parts.last()?.style())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_parts_are_summed_and_all_else_is_left_out() {
        let shown = unknown_class(1, Style::default()).unwrap();
        assert_eq!(shown.json().to_string(), r#"{"unknown_class":1}"#);
        assert_eq!(sum(Some(&shown), Some(&shown)).unwrap().text(), " unknown_class 2");
        assert_eq!(sum(None, Some(&shown)), Some(shown));
        let mut others = Options::new(Style::default());
        others.number("maxpacket", 5);
        assert_eq!((sum(None, None), sum(Some(&others), Some(&others))), (None, None));
        assert_eq!(unknown_class(0, Style::default()), None);
    }
}
