//! Charts of the growth of costs, as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::contestant::{Failure, failed};
use crate::report::Report;
use crate::sample::Sample;

/// A chart, and the cases of its points.
#[derive(Debug, Clone, Copy)]
pub struct Chart {
    /// The file name, without its extension.
    pub name: &'static str,
    /// The heading of the chart.
    pub title: &'static str,
    x: &'static str,
    y: &'static str,
    /// Positions on the x axis, each with its case.
    points: &'static [(f64, &'static str)],
    figure: fn(&Sample) -> Option<f64>,
}

/// All charts.
pub const ALL: [Chart; 5] = [
    Chart {
        name: "tasks",
        title: "Decisions a second by tasks (1 000 keys, 100 000/s)",
        x: "tasks",
        y: "decisions/s",
        points: &[(1.0, "tasks-1"), (8.0, "tasks-8"), (64.0, "tasks-64"), (512.0, "tasks-512")],
        figure: |sample| Some(sample.per_second),
    },
    Chart {
        name: "keys",
        title: "Decisions a second by keys (64 tasks)",
        x: "keys",
        y: "decisions/s",
        points: &[(1.0, "one-key-64"), (1_000.0, "tasks-64"), (200_000.0, "keys-200000")],
        figure: |sample| Some(sample.per_second),
    },
    Chart {
        name: "max",
        title: "Decisions a second by limit (64 tasks, one key)",
        x: "calls a second",
        y: "decisions/s",
        points: &[(100.0, "denied-99"), (1_000.0, "max-1000"), (10_000.0, "max-10000"), (100_000.0, "max-100000")],
        figure: |sample| Some(sample.per_second),
    },
    Chart {
        name: "server",
        title: "Redis's own time a decision by limit (64 tasks, one key)",
        x: "calls a second",
        y: "µs",
        points: &[(100.0, "denied-99"), (1_000.0, "max-1000"), (10_000.0, "max-10000"), (100_000.0, "max-100000")],
        figure: |sample| sample.server_us,
    },
    Chart {
        name: "bytes",
        title: "Bytes of a key in Redis by permits",
        x: "permits",
        y: "bytes",
        points: &[(5.0, "bytes-5"), (1_000.0, "bytes-1000"), (10_000.0, "bytes-10000"), (100_000.0, "bytes-100000")],
        figure: |sample| sample.bytes,
    },
];

/// One contestant's line.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

impl Chart {
    /// Writes the chart if the report has at least two points of it. Returns whether it was written.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn draw(&self, report: &Report, directory: &Path) -> Result<bool, Failure> {
        let lines = self.lines(report);
        if lines.is_empty() {
            return Ok(false);
        }
        let path = directory.join(self.name).with_extension("svg");
        self.draw_lines(&lines, &path).map_err(failed)?;
        Ok(true)
    }

    fn lines<'a>(&self, report: &'a Report) -> Vec<Line<'a>> {
        let names = report.case(self.points[0].1).into_iter().flat_map(|case| &case.outcomes);
        let line = |name: &'a str| {
            let point = |&(x, case): &(f64, &str)| {
                let y = (self.figure)(&report.outcome(case, name)?.median)?;
                (y > 0.0).then_some((x, y)) // a logarithmic axis has no 0
            };
            (name, self.points.iter().filter_map(point).collect::<Vec<_>>())
        };
        names.map(|outcome| line(&outcome.contestant)).filter(|(_, points)| points.len() > 1).collect()
    }

    fn draw_lines(&self, lines: &[Line<'_>], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let points = || lines.iter().flat_map(|(_, points)| points);
        let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), &(_, y)| (low.min(y), high.max(y)));
        let (first, last) = (self.points[0].0, self.points[self.points.len() - 1].0);

        let area = SVGBackend::new(path, (960, 480)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, names) = area.split_horizontally(750);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((first..last).log_scale(), (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&short)
            .y_label_formatter(&short)
            .light_line_style(WHITE)
            .draw()?;
        let mut below = 60;
        for (number, (name, points)) in lines.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(if number == 0 { 4 } else { 2 });
            chart.draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?;
            names.draw(&PathElement::new([(0, below), (20, below)], style))?;
            names.draw(&Text::new(*name, (28, below - 7), ("sans-serif", 14)))?;
            below += 24;
        }
        area.present()?;
        Ok(())
    }
}

/// Formats a number for an axis, such as `150k` for 150 000.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that plotters requires")]
fn short(figure: &f64) -> String {
    match *figure {
        figure if figure >= 1e6 => format!("{}M", figure / 1e6),
        figure if figure >= 1e3 => format!("{}k", figure / 1e3),
        figure => format!("{figure}"),
    }
}
