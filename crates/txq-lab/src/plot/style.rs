//! How curves are told apart: one colour for each enqueue discipline in every drawing, and marks where a colour repeats.

use plotters::prelude::*;

use super::Area;

/// The colours of the enqueue disciplines, which can be told apart without green and red.
const DISCIPLINES: [(&str, RGBColor); 5] = [
    ("spinlock", RGBColor(213, 94, 0)),
    ("busylock", RGBColor(230, 159, 0)),
    ("llist", RGBColor(0, 114, 178)),
    ("lockless", RGBColor(204, 121, 167)),
    ("combine", RGBColor(0, 158, 115)),
];
/// The colours of all other curves.
const OTHERS: [RGBColor; 6] = [
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
    RGBColor(110, 130, 20),
];
/// The colour of measured bars, and that of simulated ones.
pub(super) const FILLS: [RGBColor; 2] = [RGBColor(150, 150, 150), RGBColor(0, 114, 178)];
/// Radius of a mark in pixels.
const RADIUS: i32 = 3;

/// A curve's colour, and the number of curves before it that have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    pub(super) colour: RGBColor,
    before: usize,
}

impl Style {
    /// Returns the styles of curves by their names. A name with a discipline's name in it has that discipline's colour.
    pub(super) fn all<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<Self> {
        let mut styles: Vec<Self> = Vec::new();
        let mut others = 0;
        for name in names {
            let mut words = name.split(|c: char| !c.is_alphanumeric());
            let of = words.find_map(|word| DISCIPLINES.iter().find(|(known, _)| *known == word));
            let colour = match of {
                Some((_, colour)) => *colour,
                None => {
                    others += 1;
                    OTHERS[(others - 1) % OTHERS.len()]
                }
            };
            let before = styles.iter().filter(|style| style.colour == colour).count();
            styles.push(Self { colour, before });
        }
        styles
    }

    /// Returns the style of the curve's line: thinner where the colour repeats.
    pub(super) fn line(&self) -> ShapeStyle {
        self.colour.stroke_width(if self.before == 0 { 2 } else { 1 })
    }

    /// Draws the curve's mark at a pixel: a disc, a circle, a square or a cross.
    pub(super) fn mark(&self, area: &Area<'_>, (x, y): (i32, i32)) -> anyhow::Result<()> {
        let (fill, thin) = (self.colour.filled(), self.colour.stroke_width(1));
        match self.before % 4 {
            0 => area.draw(&Circle::new((x, y), RADIUS, fill))?,
            1 => {
                area.draw(&Circle::new((x, y), RADIUS, WHITE.filled()))?;
                area.draw(&Circle::new((x, y), RADIUS, thin))?;
            }
            2 => area.draw(&Rectangle::new([(x - RADIUS, y - RADIUS), (x + RADIUS, y + RADIUS)], fill))?,
            _ => area.draw(&Cross::new((x, y), RADIUS, thin))?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discipline_has_its_colour_whatever_else_is_drawn() {
        let styles = Style::all(["llist", "kernel, pfifo", "llist, near", "combine", "pool", "llisty"]);
        assert_eq!(styles[0].colour, DISCIPLINES[2].1);
        assert_eq!((styles[2].colour, styles[2].before), (DISCIPLINES[2].1, 1));
        assert_eq!(styles[3], Style { colour: DISCIPLINES[4].1, before: 0 });
        let others: Vec<_> = [1, 4, 5].map(|at: usize| styles[at].colour).to_vec();
        assert_eq!(others, OTHERS[..3]);
        for (name, _) in DISCIPLINES {
            name.parse::<txq::Discipline>().expect("a discipline");
        }
        assert_eq!(txq::Discipline::ALL.len(), DISCIPLINES.len());
    }
}
