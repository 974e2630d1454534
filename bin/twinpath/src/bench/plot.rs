//! The distribution as a percentile plot: each decade to the right is ten times rarer.

use std::path::Path;

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use plotters::prelude::*;

use super::report::BenchReport;

const SIZE: (u32, u32) = (900, 520);
/// Points per decade of rarity: the curve is smooth to the eye.
const POINTS_PER_DECADE: u32 = 40;

/// Writes an SVG file.
pub(crate) fn draw(report: &BenchReport, histogram: &Histogram<u64>, file: &Path) -> anyhow::Result<()> {
    let rtt = report.rtt_us.as_ref().context("there is nothing to draw: no reply came")?;
    let points = points(histogram);
    let rarest = points.last().map_or(10.0, |(rarity, _)| *rarity).max(10.0);
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let plot = || -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let caption = format!(
            "{}, {}, {} path, {}: {} replies",
            report.target, report.transport, report.path, report.mode, report.received
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, ("sans-serif", 18))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (1.0..rarest).log_scale(),
                ((rtt.min * 0.9).max(0.01)..rtt.max.max(rtt.min * 1.1) * 1.1).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("percentile")
            .y_desc("round-trip time, us")
            .x_label_formatter(&|rarity| percentile(*rarity))
            .y_label_formatter(&|us| format!("{us}"))
            .label_style(("sans-serif", 13))
            .draw()?;
        chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)))?;
        root.present()?;
        Ok(())
    };
    plot().map_err(|error| anyhow!("{error}"))
}

/// One in how many is slower, against the round-trip time in us.
fn points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let decades = (histogram.len().max(10) as f64).log10();
    let steps = (decades * f64::from(POINTS_PER_DECADE)) as u32;
    (0..=steps)
        .map(|step| {
            let rarity = 10_f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE));
            (rarity, histogram.value_at_quantile(1.0 - 1.0 / rarity) as f64 / 1000.0)
        })
        .collect()
}

/// 1 is the minimum, 10 the 90th percentile, 1000 the 99.9th.
fn percentile(rarity: f64) -> String {
    let digits = (rarity.log10().round() as usize).saturating_sub(2);
    format!("{:.digits$} %", 100.0 * (1.0 - 1.0 / rarity))
}
