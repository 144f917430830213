//! A scenario: a machine, a workload and the path between them, the published measurements, and the fitted field.
//!
//! A scenario is a TOML file. `[setup]` is one point; each `[[variant]]` is the same point with some fields changed, by
//! their TOML paths, as a sweep changes them. `[[published]]` gives a measurement of a variant, and how near a simulation
//! must come. One field may be fitted, to one figure of one variant; `[fit]` says which, and why its value is plausible.
//! Everything else is predicted.

mod error;
pub mod setup;
mod vary;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

pub use error::ScenarioError;
pub use setup::Setup;
use setup::Workload;
pub(crate) use vary::value_of;
pub use vary::{Change, set};

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name in reports and on the command line.
    pub name: String,
    /// Its subject, in one line.
    pub title: String,
    /// Where the figures were published.
    #[serde(default)]
    pub source: String,
    /// The fields that all variants share; [`Setup`] lists them.
    setup: Table,
    /// The points to compare, in order.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
    /// The published measurements.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The fitted field.
    pub fit: Option<Fit>,
    /// The folder of its file; other files' paths are relative to it.
    #[serde(skip)]
    folder: PathBuf,
}

/// A point of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name: `before`, `after`, `8 instances`.
    pub name: String,
    /// The fields that differ from `[setup]`: TOML paths and values.
    #[serde(default)]
    pub change: Table,
}

/// A measured figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The variant that was measured.
    pub variant: String,
    /// The name of the figure in a report.
    pub figure: String,
    /// The variant whose figure it is divided by, if a ratio was published.
    pub over: Option<String>,
    /// The published value, the lower end if a range was published. [`Rule::Rises`] and [`Rule::Falls`] need none.
    pub value: Option<f64>,
    /// The upper end of a published range.
    pub to: Option<f64>,
    /// How near the simulation must come.
    #[serde(default)]
    pub rule: Rule,
}

impl Published {
    /// Returns the published value nearest to a simulated one, which is the simulated one if it is in the published range.
    pub fn nearest(&self, simulated: f64) -> Option<f64> {
        let from = self.value?;
        let to = self.to.unwrap_or(from);
        Some(if simulated < from { from } else { simulated.min(to) })
    }

    /// Returns the middle of the published range.
    pub fn middle(&self) -> Option<f64> {
        middle(self.value, self.to)
    }
}

/// Returns the middle of a range, or the value where there is no upper end.
pub(crate) fn middle(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    from.map(|from| f64::midpoint(from, to.unwrap_or(from)))
}

/// How near a simulated figure must come to the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Within 25 %.
    #[default]
    Within25,
    /// Of the same order: within a factor of the square root of ten.
    Order,
    /// Changes in the same direction as the published figure, compared with the first variant for which that figure was
    /// published.
    Direction,
    /// More than 1, for a ratio.
    Rises,
    /// Less than 1, for a ratio.
    Falls,
    /// Equal or greater.
    AtLeast,
    /// In the same power-of-two bucket, or in a neighbouring one.
    Bucket,
}

/// The fitted field.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The field's TOML path in `[setup]`.
    pub field: String,
    /// Lower bound of the search.
    pub from: f64,
    /// Upper bound of the search.
    pub to: f64,
    /// The variant that it is fitted to.
    pub variant: String,
    /// The figure of that variant that it is fitted to.
    pub figure: String,
    /// Why its value is plausible.
    pub why: String,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*] };
}

/// The scenarios of the published results, in order.
const BUILT_IN: &[(&str, &str)] = built_in![
    "p0-unpinned",
    "p0-pinned",
    "p1",
    "p2",
    "p3-pktgen",
    "p3-wrk",
    "p4",
    "p5-bulk",
    "p6-pktgen",
    "p7-pktgen",
    "p7-forward",
    "p8-dequeue"
];

impl Scenario {
    /// Returns the names of the built-in scenarios.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Opens a built-in scenario by its name, or reads one from a file.
    pub fn open(name: &str) -> Result<Self, ScenarioError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let text = std::fs::read_to_string(Path::new(name)).map_err(|source| ScenarioError::File {
            name: name.to_owned(),
            known: Self::names().collect::<Vec<_>>().join(", "),
            source,
        })?;
        Self::parse(name, &text)
    }

    /// Parses a scenario's text; `file` is its name in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let wrong =
            |source: toml::de::Error| ScenarioError::Toml { file: file.to_owned(), source: Box::new(source) };
        let mut scenario: Scenario = toml::from_str(text).map_err(wrong)?;
        scenario.folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        scenario.check().map_err(|why| ScenarioError::Wrong { file: file.to_owned(), why })?;
        Ok(scenario)
    }

    /// Returns the names of all points: the variants, or the scenario's own name if it has none.
    pub fn points(&self) -> Vec<&str> {
        if self.variants.is_empty() {
            vec![&self.name]
        } else {
            self.variants.iter().map(|variant| variant.name.as_str()).collect()
        }
    }

    /// Returns the setup of a point, with `changes` applied.
    pub fn setup(&self, point: &str, changes: &[Change]) -> Result<Setup, ScenarioError> {
        let mut table = self.setup.clone();
        let wrong = |why: String| ScenarioError::Wrong { file: self.name.clone(), why };
        if let Some(variant) = self.variants.iter().find(|variant| variant.name == point) {
            for (path, value) in &variant.change {
                set(&mut table, path, value.clone()).map_err(wrong)?;
            }
        }
        for change in changes {
            set(&mut table, &change.path, change.value.clone()).map_err(wrong)?;
        }
        let mut setup = Setup::of(table).map_err(wrong)?;
        if let Workload::Trace { file, .. } = &mut setup.workload {
            *file = self.folder.join(&*file);
        }
        Ok(setup)
    }

    /// Returns the file's value of a point's field, if the file sets it.
    pub fn field(&self, point: &str, path: &str) -> Option<&Value> {
        let variant = self.variants.iter().find(|variant| variant.name == point);
        if let Some(value) = variant.and_then(|variant| variant.change.get(path)) {
            return Some(value);
        }
        let mut names = path.split('.');
        let first = self.setup.get(names.next()?);
        names.try_fold(first?, |value, name| value.get(name))
    }

    /// Checks what the syntax does not: unknown names, and invalid points.
    fn check(&self) -> Result<(), String> {
        let points = self.points();
        let known = |point: &str| {
            let text = || format!("there is no variant \"{point}\": use one of {}", points.join(", "));
            points.contains(&point).then_some(()).ok_or_else(text)
        };
        for figure in &self.published {
            known(&figure.variant)?;
            figure.over.as_deref().map_or(Ok(()), known)?;
            let needless = matches!(figure.rule, Rule::Rises | Rule::Falls) && figure.to.is_none();
            if !(needless || figure.value.is_some_and(f64::is_finite)) {
                return Err(format!(
                    "\"{}\" of \"{}\" has no value: give it a number",
                    figure.figure, figure.variant
                ));
            }
            if let (Some(from), Some(to)) = (figure.value, figure.to)
                && from.partial_cmp(&to) != Some(std::cmp::Ordering::Less)
            {
                return Err(format!(
                    "\"{}\" of \"{}\" is published from {from} to {to}: use a lesser number first",
                    figure.figure, figure.variant
                ));
            }
        }
        if let Some(fit) = &self.fit {
            known(&fit.variant)?;
            if fit.from.partial_cmp(&fit.to) != Some(std::cmp::Ordering::Less) {
                return Err(format!("a fit from {} to {}: use a lesser number first", fit.from, fit.to));
            }
            let mut table = self.setup.clone();
            set(&mut table, &fit.field, Value::Float(fit.from))?;
        }
        for point in points {
            self.setup(point, &[]).map_err(|error| format!("\"{point}\": {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
