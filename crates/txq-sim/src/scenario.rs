//! A scenario: a machine, a workload and the way between them, what was measured there, and what may be fitted to it.
//!
//! A scenario is a TOML file. `[setup]` is one point; each `[[variant]]` is the same with some fields changed, by their
//! TOML paths, as a sweep changes them. `[[published]]` says what was measured of a variant, and how near a simulation
//! has to come. Of all the fields one may be fitted, to one figure of one variant: that is what `[fit]` says, and why the
//! value is plausible. Everything else is predicted.

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
    /// What it is called in reports and on the command line.
    pub name: String,
    /// What it is about, in a line.
    pub title: String,
    /// Where the figures were published.
    #[serde(default)]
    pub source: String,
    /// The fields that all variants have; [`Setup`] says which there are.
    setup: Table,
    /// The points that are compared, in their order.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
    /// What was measured.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What was fitted.
    pub fit: Option<Fit>,
    /// The folder of its file, which other files' paths are relative to.
    #[serde(skip)]
    folder: PathBuf,
}

/// A point of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What it is called: `before`, `after`, `8 instances`.
    pub name: String,
    /// What differs from `[setup]`: TOML paths and values.
    #[serde(default)]
    pub change: Table,
}

/// A measured figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of which variant.
    pub variant: String,
    /// Which figure of a report.
    pub figure: String,
    /// The variant whose figure it is divided by, where a ratio was published.
    pub over: Option<String>,
    /// What was measured. Of [`Rule::Rises`] and [`Rule::Falls`] nothing but that is known.
    pub value: Option<f64>,
    /// How near the simulation has to come.
    #[serde(default)]
    pub rule: Rule,
}

/// How near a simulated figure has to come to the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Within 25 %.
    #[default]
    Within25,
    /// Of the same order: within a factor of the square root of ten.
    Order,
    /// To the same side as the published one of the same figure of the variant that it was published for first.
    Direction,
    /// More than 1, for a ratio.
    Rises,
    /// Less than 1, for a ratio.
    Falls,
    /// As much or more.
    AtLeast,
    /// In the same bucket of powers of two, or a neighbour of it.
    Bucket,
}

/// The field that was fitted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The field's TOML path in `[setup]`.
    pub field: String,
    /// The least value that is looked at.
    pub from: f64,
    /// The greatest.
    pub to: f64,
    /// The variant that it was fitted to.
    pub variant: String,
    /// The figure of that variant.
    pub figure: String,
    /// Why the value is plausible.
    pub why: String,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*] };
}

/// The scenarios of the published results, in their order.
const BUILT_IN: &[(&str, &str)] =
    built_in!["p0-unpinned", "p0-pinned", "p1", "p2", "p3-pktgen", "p3-wrk", "p4"];

impl Scenario {
    /// The names of the scenarios that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A scenario by its name, or from a file.
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

    /// A scenario from a file's text; `file` is for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let wrong =
            |source: toml::de::Error| ScenarioError::Toml { file: file.to_owned(), source: Box::new(source) };
        let mut scenario: Scenario = toml::from_str(text).map_err(wrong)?;
        scenario.folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        scenario.check().map_err(|why| ScenarioError::Wrong { file: file.to_owned(), why })?;
        Ok(scenario)
    }

    /// The names of all points: the variants', or the scenario's own where it has none.
    pub fn points(&self) -> Vec<&str> {
        if self.variants.is_empty() {
            vec![&self.name]
        } else {
            self.variants.iter().map(|variant| variant.name.as_str()).collect()
        }
    }

    /// A point, with `changes` made to it.
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

    /// What the file has in a field of a point, if it says anything of it.
    pub fn field(&self, point: &str, path: &str) -> Option<&Value> {
        let variant = self.variants.iter().find(|variant| variant.name == point);
        if let Some(value) = variant.and_then(|variant| variant.change.get(path)) {
            return Some(value);
        }
        let mut names = path.split('.');
        let first = self.setup.get(names.next()?);
        names.try_fold(first?, |value, name| value.get(name))
    }

    /// What the file's syntax does not tell: names that name nothing, and points that cannot be.
    fn check(&self) -> Result<(), String> {
        let points = self.points();
        let known = |point: &str| {
            let text = || format!("there is no variant \"{point}\": use one of {}", points.join(", "));
            points.contains(&point).then_some(()).ok_or_else(text)
        };
        for figure in &self.published {
            known(&figure.variant)?;
            figure.over.as_deref().map_or(Ok(()), known)?;
            let needless = matches!(figure.rule, Rule::Rises | Rule::Falls);
            if !(needless || figure.value.is_some_and(f64::is_finite)) {
                return Err(format!(
                    "\"{}\" of \"{}\" has no value: give it a number",
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
