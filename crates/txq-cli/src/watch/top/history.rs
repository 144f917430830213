//! The rates of the last minute, drawn as bars of text.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::rates::Rates;

/// How far the bars reach back.
const HISTORY_SPAN: Duration = Duration::from_secs(60);
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The rates of the last minute.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When the snapshots were taken.
    times: VecDeque<Duration>,
    /// The rates by row, the last one at the end, NaN where there was none. Rows that are new have fewer than there are times.
    rows: HashMap<String, VecDeque<f32>>,
}

impl History {
    /// Adds a snapshot's rates, and forgets rows that have gone.
    pub(crate) fn add(&mut self, rates: &Rates) {
        self.times.push_back(rates.at);
        while self.times.front().is_some_and(|&first| rates.at.saturating_sub(first) > HISTORY_SPAN) {
            self.times.pop_front();
        }
        let mut old = std::mem::take(&mut self.rows);
        self.rows.reserve(rates.rows.len());
        for row in &rates.rows {
            let mut past = old.remove(&row.key).unwrap_or_default();
            past.push_back(row.speed.map_or(f32::NAN, |speed| speed.bits as f32));
            while past.len() > self.times.len() {
                past.pop_front();
            }
            self.rows.insert(row.key.clone(), past);
        }
    }

    /// Returns the bars of a row, the last minute in `width` characters. The highest bar is the highest rate of the row.
    pub(crate) fn bars(&self, key: &str, width: usize) -> String {
        let (Some(past), Some(&now)) = (self.rows.get(key), self.times.back()) else { return String::new() };
        // The age of each sample, and its rate, the newest first.
        let ages = self.times.iter().rev().map(|&time| now.saturating_sub(time).as_secs_f64());
        let samples: Vec<_> = ages.zip(past.iter().rev().map(|&rate| f64::from(rate))).collect();
        let most = samples.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        let each = HISTORY_SPAN.as_secs_f64() / width.max(1) as f64;
        let oldest = samples.last().map_or(0.0, |&(age, _)| age);
        let bar = |column: usize| {
            let (young, old) = (column as f64 * each, (column + 1) as f64 * each);
            if young > oldest {
                return ' ';
            }
            let inside: Vec<_> =
                samples.iter().filter(|(age, _)| (young..old).contains(age)).map(|&(_, rate)| rate).collect();
            // Without a snapshot in its time, a bar shows the rate of the next one, which counts this time, too.
            let next = || samples.iter().take_while(|(age, _)| *age < young).last().map(|&(_, rate)| rate);
            let known: Vec<_> = inside.iter().filter(|rate| !rate.is_nan()).collect();
            let rate = match (inside.len(), known.len()) {
                (0, _) => next().unwrap_or(f64::NAN),
                (_, 0) => f64::NAN,
                (_, count) => known.into_iter().sum::<f64>() / count as f64,
            };
            match rate {
                rate if rate.is_nan() => ' ',
                rate if rate <= 0.0 => BARS[0],
                rate => BARS[((rate / most * 7.0).round() as usize).min(7)],
            }
        };
        (0..width).rev().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::top::rates::Speed;
    use crate::watch::top::testing::{nested, rates};

    fn seen(rates_of: &[(u64, Option<f64>)]) -> History {
        let mut history = History::default();
        let mut sample = rates(&nested(1));
        for &(second, bits) in rates_of {
            sample.at = Duration::from_secs(second);
            sample.rows[0].speed = bits.map(|bits| Speed { bits, ..Speed::default() });
            history.add(&sample);
        }
        history
    }

    #[test]
    fn bars_show_the_last_minute_and_the_highest_is_full() {
        let history = seen(&[(0, None), (10, Some(4.0)), (20, Some(8.0)), (30, Some(0.0))]);
        assert_eq!(history.bars("null0", 6), "   ▅█▁");
        assert_eq!(history.bars("null0", 12).chars().count(), 12);
        assert_eq!((history.bars("other", 6), history.bars("null0", 0)), (String::new(), String::new()));
    }

    #[test]
    fn samples_older_than_a_minute_and_rows_that_went_are_forgotten() {
        let samples: Vec<_> = (0..1000).map(|second| (second, Some(1.0))).collect();
        let mut history = seen(&samples);
        assert_eq!((history.times.len(), history.rows["null0"].len()), (61, 61));
        assert_eq!(history.bars("null0", 60), "█".repeat(60));
        let mut sample = rates(&nested(1));
        (sample.at, sample.rows) = (Duration::from_secs(1000), Vec::new());
        history.add(&sample);
        assert!(history.rows.is_empty());
    }

    #[test]
    fn a_bar_between_two_samples_shows_the_later_one() {
        let history = seen(&[(0, Some(2.0)), (30, Some(4.0)), (60, Some(8.0))]);
        assert_eq!(history.bars("null0", 6), "▅▅▅███");
    }
}
