//! Pictures of a run over time, as SVG.

use std::path::Path;

use plotters::prelude::*;

use super::ScaleReport;
use super::record::SecondRow;
use crate::contestant::{Failure, failed};

/// A picture: one line for each figure of a second.
struct Picture {
    file: &'static str,
    title: &'static str,
    y: &'static str,
    /// True if the axis is logarithmic.
    is_log: bool,
    lines: &'static [PictureLine],
}

/// The name of a line, and its figure of a second.
type PictureLine = (&'static str, fn(&SecondRow) -> f64);

const ALL: [Picture; 2] = [
    Picture {
        file: "latency.svg",
        title: "Latency from the planned time, in milliseconds",
        y: "ms",
        is_log: true,
        lines: &[
            ("p50", |row| row.latency_ms[0]),
            ("p99", |row| row.latency_ms[1]),
            ("p99.9", |row| row.latency_ms[2]),
            ("max", |row| row.latency_ms[3]),
        ],
    },
    Picture {
        file: "memory.svg",
        title: "Memory of the full master",
        y: "GB",
        is_log: false,
        lines: &[("used_memory", |row| row.master.used_memory as f64 / 1e9)],
    },
];

/// Writes all pictures to a directory.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn draw(report: &ScaleReport, directory: &Path) -> Result<(), Failure> {
    ALL.iter().try_for_each(|picture| picture.draw(&report.rows, &directory.join(picture.file)).map_err(failed))
}

impl Picture {
    fn draw(&self, rows: &[SecondRow], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        // A logarithmic axis is linear in the logarithm, with labels that undo it.
        let position = |figure: f64| if self.is_log { figure.max(0.01).log10() } else { figure };
        let points = |of: fn(&SecondRow) -> f64| rows.iter().map(move |row| (row.second as f64, position(of(row))));
        let all = || self.lines.iter().flat_map(|(_, of)| points(*of)).map(|(_, y)| y);
        let high = all().fold(f64::MIN, f64::max);
        let (low, high) = if self.is_log { (all().fold(f64::MAX, f64::min), high + 0.2) } else { (0.0, high * 1.15) };
        let last = rows.last().map_or(1.0, |row| row.second as f64).max(1.0);

        let area = SVGBackend::new(path, (960, 360)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, names) = area.split_horizontally(830);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..last, low..high)?;
        let label = |y: &f64| if self.is_log { format!("{:.2}", 10_f64.powf(*y)) } else { format!("{y:.1}") };
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc(self.y)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .draw()?;
        let mut below = 60;
        for (number, (name, of)) in self.lines.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            chart.draw_series(LineSeries::new(points(*of), style))?;
            names.draw(&PathElement::new([(0, below), (20, below)], style))?;
            names.draw(&Text::new(*name, (28, below - 7), ("sans-serif", 14)))?;
            below += 24;
        }
        area.present()?;
        Ok(())
    }
}
