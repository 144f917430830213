//! A recording as a drawing: the delay of each packet and the bytes in the link, over time.

use plotters::prelude::*;
use txq_sched::Instant;

use super::{Recording, What};
use crate::packet::Direction;

/// The drawing's width and the height of each of its two parts.
const SIZE: (u32, u32) = (900, 260);

const COLOURS: [RGBColor; 2] = [RGBColor(31, 119, 180), RGBColor(255, 127, 14)];

type Points = Vec<(f64, f64)>;

impl Recording {
    /// Returns a drawing as SVG: above, the delay of each packet that arrived, and a cross for each that was lost; below, the
    /// kilobytes in the qdiscs of each direction.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a String takes all text");
        svg
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, (SIZE.0, SIZE.1 * 2)).into_drawing_area();
        root.fill(&WHITE)?;
        let (above, below) = root.split_vertically(SIZE.1);
        let end = self.events.last().map_or(1.0, |event| seconds(event.at).max(1e-6));
        self.part(&above, "delay (ms)", end, |recording, direction| recording.delays(direction))?;
        self.part(&below, "in the link (kB)", end, |recording, direction| recording.backlogs(direction))?;
        root.present()?;
        Ok(())
    }

    /// Draws one part: a point for each pair of numbers; a cross on the axis for each packet lost.
    fn part(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        what: &str,
        end: f64,
        points: impl Fn(&Self, Direction) -> (Points, Points),
    ) -> Result<(), Box<dyn std::error::Error>> {
        let all = Direction::BOTH.map(|direction| points(self, direction));
        let top = all.iter().flat_map(|(points, _)| points).map(|point| point.1).fold(1e-3, f64::max) * 1.05;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart.configure_mesh().x_desc("time (s)").y_desc(what).light_line_style(WHITE).draw()?;
        for (direction, (points, lost)) in Direction::BOTH.into_iter().zip(all) {
            let colour = COLOURS[direction.index()];
            let dots = points.into_iter().map(|point| Circle::new(point, 1, colour.filled()));
            let series = chart.draw_series(dots)?;
            series.label(direction.name()).legend(move |(x, y)| Circle::new((x + 8, y), 3, colour.filled()));
            chart.draw_series(lost.into_iter().map(|point| Cross::new(point, 3, colour)))?;
        }
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        Ok(())
    }

    /// Returns the delays of a direction's packets, and where those are that were lost.
    fn delays(&self, direction: Direction) -> (Points, Points) {
        let (mut arrived, mut lost) = (Vec::new(), Vec::new());
        for event in self.events.iter().filter(|event| event.direction == direction) {
            match event.what {
                What::Arrived { .. } => {
                    arrived.push((seconds(event.at), (event.at - event.sent).as_secs_f64() * 1e3))
                }
                What::Lost { .. } => lost.push((seconds(event.at), 0.0)),
                What::Sent => {}
            }
        }
        (arrived, lost)
    }

    /// Returns the kilobytes in a direction's qdiscs.
    fn backlogs(&self, direction: Direction) -> (Points, Points) {
        let events = self.events.iter().filter(|event| event.direction == direction);
        (events.map(|event| (seconds(event.at), event.backlog.1 as f64 / 1e3)).collect(), Vec::new())
    }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}
