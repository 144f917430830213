//! Links that many people have: files of tc's words, each with its source.

use crate::error::LinkError;

/// A link that many people have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// Its name, such as `lte`.
    pub name: &'static str,
    /// Its text, in tc's words, with the source of its numbers as a comment.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../presets/", $name, ".tc")) }),*]
    };
}

const PRESETS: &[Preset] = presets!("dsl" "cable" "3g" "lte" "starlink" "geo" "wifi" "conference");

/// Returns all presets. Their files are in the folder `presets` of this crate: copy one, change it, and hand its text to
/// [`Link::new`](crate::Link::new).
pub fn presets() -> &'static [Preset] {
    PRESETS
}

/// Returns the text of a preset.
pub(crate) fn text(name: &str) -> Result<&'static str, LinkError> {
    let found = PRESETS.iter().find(|preset| preset.name == name);
    found.map(|preset| preset.text).ok_or_else(|| {
        let known = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
        LinkError::Preset { name: name.to_owned(), known }
    })
}
