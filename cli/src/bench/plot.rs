//! Plots the distribution of round-trip times twice: above, the count of each time; below, the percentiles, where each
//! decade to the right is ten times rarer. Both mark the usual percentiles.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use hdrhistogram::Histogram;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use twinpath_clients::measure::axis::{Unit, scalable};

const SIZE: (u32, u32) = (1000, 800);
/// Points per decade of rarity: enough for a smooth curve.
const POINTS_PER_DECADE: u32 = 40;
/// Bars of the upper half.
const BARS: usize = 400;
/// The upper plot ends here at the latest, and at this multiple of the distance from the fastest to nine tenths of the
/// replies: a long tail would leave no room for the rest.
const CLIPPED_AT: f64 = 0.999;
const BULKS: u64 = 4;
/// The marked percentiles: name, and the number of replies of which one is slower.
const MARKED: [(&str, f64); 4] = [("p50", 2.0), ("p90", 10.0), ("p99", 100.0), ("p99.9", 1_000.0)];
/// The labels are one below the other in the upper plot, at this distance in pixels.
const LABEL_HEIGHT: i32 = 18;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Writes an SVG file. The histogram holds round-trip times in ns, at least one.
pub(crate) fn draw(title: &str, histogram: &Histogram<u64>, file: &Path) -> anyhow::Result<()> {
    let svg = picture(title, histogram).map_err(|error| anyhow!("{error}"))?;
    Ok(fs::write(file, scalable(&svg, SIZE))?)
}

fn picture(title: &str, histogram: &Histogram<u64>) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (upper, lower) = root.titled(title, ("sans-serif", 18))?.split_vertically(SIZE.1 / 2 - 16);
        draw_bars(&upper, histogram)?;
        draw_percentiles(&lower, histogram)?;
        root.present()?;
    }
    Ok(svg)
}

/// A percentile for which there are enough replies: name, the number of replies of which one is slower, time in us.
fn marked(histogram: &Histogram<u64>) -> impl Iterator<Item = (&'static str, f64, f64)> {
    let told = MARKED.into_iter().filter(|(_, rarity)| *rarity <= histogram.len() as f64);
    told.map(|(name, rarity)| (name, rarity, histogram.value_at_quantile(1.0 - 1.0 / rarity) as f64 / 1000.0))
}

fn draw_bars(area: &Area<'_>, histogram: &Histogram<u64>) -> Drawn {
    let (from_us, width_us, bars) = bars(histogram);
    let shown = bars.iter().sum::<u64>() as f64 * 100.0 / histogram.len().max(1) as f64;
    let highest = bars.iter().copied().max().unwrap_or(1).max(1);
    let to_us = from_us + width_us * bars.len() as f64;
    // Room for the labels above the highest bar.
    let top = highest + highest / 3 + 1;
    let unit = Unit::from(from_us);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(from_us..to_us, 0..top)?;
    chart
        .configure_mesh()
        .x_desc(format!("round-trip time, {} ({shown:.2} % of the replies)", unit.name))
        .y_desc("replies")
        .x_label_formatter(&|us| unit.tick(*us))
        .label_style(("sans-serif", 13))
        .draw()?;
    let bar = |(index, count): (usize, &u64)| {
        let left = from_us + index as f64 * width_us;
        Rectangle::new([(left, 0), (left + width_us, *count)], BLUE.filled())
    };
    chart.draw_series(bars.iter().enumerate().filter(|(_, count)| **count > 0).map(bar))?;
    for (index, (name, _, us)) in marked(histogram).enumerate() {
        let is_beyond = us > to_us;
        if !is_beyond {
            chart
                .draw_series(std::iter::once(PathElement::new([(us, 0), (us, top)], RED.stroke_width(1))))?;
        }
        let arrow = if is_beyond { " →" } else { "" };
        let text = format!("{name} {} {}{arrow}", unit.tick(us), unit.name);
        // Near the right edge the label is left of its line.
        let is_right = us > to_us - 0.2 * (to_us - from_us);
        draw_label(&mut chart, text, (us.min(to_us), top), is_right, 2 + index as i32 * LABEL_HEIGHT)?;
    }
    Ok(())
}

/// The start of the bars, their width, and the number of round trips in each.
fn bars(histogram: &Histogram<u64>) -> (f64, f64, Vec<u64>) {
    let from_ns = histogram.min();
    let bulk_ns = BULKS * (histogram.value_at_quantile(0.9).saturating_sub(from_ns) + 1);
    let to_ns = histogram.value_at_quantile(CLIPPED_AT).clamp(from_ns + 1, from_ns + bulk_ns);
    let width_ns = (to_ns - from_ns) as f64 / BARS as f64;
    // Not narrower than the histogram's resolution, which would cause gaps without meaning.
    let width_ns = width_ns.max(histogram.equivalent_range(to_ns) as f64).max(1.0);
    let mut bars = vec![0; ((to_ns - from_ns) as f64 / width_ns) as usize + 1];
    for bucket in histogram.iter_recorded() {
        let value = bucket.value_iterated_to().max(from_ns);
        if let Some(bar) = bars.get_mut(((value - from_ns) as f64 / width_ns) as usize) {
            *bar += bucket.count_at_value();
        }
    }
    (from_ns as f64 / 1000.0, width_ns / 1000.0, bars)
}

fn draw_percentiles(area: &Area<'_>, histogram: &Histogram<u64>) -> Drawn {
    let points = points(histogram);
    let rarest = points.last().map_or(10.0, |(rarity, _)| *rarity).max(10.0);
    let (min_us, max_us) = (histogram.min() as f64 / 1000.0, histogram.max() as f64 / 1000.0);
    let lowest = (min_us * 0.9).max(0.01);
    let unit = Unit::from(lowest);
    let mut chart =
        ChartBuilder::on(area).margin(16).x_label_area_size(40).y_label_area_size(72).build_cartesian_2d(
            (1.0..rarest).log_scale(),
            (lowest..max_us.max(min_us * 1.1) * 1.1).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc(format!("round-trip time, {}", unit.name))
        .x_label_formatter(&|rarity| percentile(*rarity))
        .y_label_formatter(&|us| unit.tick(*us))
        .label_style(("sans-serif", 13))
        .draw()?;
    chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)))?;
    for (name, rarity, us) in marked(histogram) {
        let line = PathElement::new([(rarity, lowest), (rarity, us)], RED.stroke_width(1));
        chart.draw_series(std::iter::once(line))?;
        let text = format!("{name} {} {}", unit.tick(us), unit.name);
        // There is room below the curve, which rises to the right; near the right edge only left of the line.
        let is_right = rarity.log10() > 0.85 * rarest.log10();
        draw_label(&mut chart, text, (rarity, us), is_right, if is_right { -LABEL_HEIGHT } else { 4 })?;
    }
    Ok(())
}

/// Draws a label `down` pixels below the point, beside the line through it.
fn draw_label<'a, X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, Y>>,
    text: String,
    at: (X::ValueType, Y::ValueType),
    is_right: bool,
    down: i32,
) -> Drawn
where
    X: Ranged,
    Y: Ranged,
    X::ValueType: Clone + 'static,
    Y::ValueType: Clone + 'static,
{
    let (side, aside) = if is_right { (HPos::Right, -5) } else { (HPos::Left, 5) };
    let style = ("sans-serif", 14).into_font().color(&RED).pos(Pos::new(side, VPos::Top));
    let label = EmptyElement::at(at) + Text::new(text, (aside, down), style);
    chart.draw_series(std::iter::once(label))?;
    Ok(())
}

/// Points of the lower plot: the number of replies of which one is slower, and the round-trip time in us.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_without_a_tail_is_in_a_bar() {
        for values in [vec![5], vec![5_000; 7], (1..=1000).map(|index| index * 100).collect::<Vec<u64>>()] {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
            values.iter().for_each(|value| histogram.saturating_record(*value));
            let (from_us, width_us, bars) = bars(&histogram);
            assert!(from_us <= values[0] as f64 / 1000.0 && width_us > 0.0 && bars.len() <= BARS + 1);
            let (shown, all) = (bars.iter().sum::<u64>(), values.len() as u64);
            assert!(shown <= all && shown >= all - all / 1000 - 1, "{shown} of {all}");
        }
    }

    #[test]
    fn a_long_tail_leaves_the_bulk_its_room() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        (0..95).for_each(|index| histogram.saturating_record(10_000 + index * 10));
        (0..5).for_each(|_| histogram.saturating_record(50_000_000));
        let (from_us, width_us, bars) = bars(&histogram);
        assert!(from_us >= 10.0 && from_us + width_us * bars.len() as f64 <= 15.0);
        assert_eq!(bars.iter().sum::<u64>(), 95);
    }

    #[test]
    fn percentiles_are_marked_in_both_halves_and_the_picture_scales() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("marked.svg");
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        (0..20_000).for_each(|index| histogram.saturating_record(10_000 + index));
        (0..100).for_each(|_| histogram.saturating_record(50_000_000));
        draw("marked", &histogram, &file).unwrap();
        if let Ok(path) = std::env::var("BENCH_SAMPLE") {
            std::fs::copy(&file, path).unwrap();
        }
        let svg = std::fs::read_to_string(file).unwrap();
        assert!(svg.contains("width=\"100%\" viewBox=\"0 0 1000 800\""));
        for name in ["p50 20", "p90 28.1", "p99 29.9", "p99.9 50"] {
            assert_eq!(svg.matches(name).count(), 2, "{name}\n{svg}");
        }
        assert!(svg.contains("p99.9 50,004 us →"), "{svg}");
    }

    #[test]
    fn a_plot_of_one_reply_is_a_plot() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("one.svg");
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        histogram.saturating_record(12_345);
        draw("one", &histogram, &file).unwrap();
        assert!(std::fs::read_to_string(file).unwrap().contains("round-trip time"));
    }
}
