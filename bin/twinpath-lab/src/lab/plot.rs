//! Draws the plots of a run, as SVG that takes its text colour from the page around it.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use twinpath_measure::axis::{Unit, scalable};

use super::model::{Better, Ratio};
use super::stats::quantile_ns;
use super::table;

/// The width: narrow enough for a phone; a wider screen scales it up.
pub(super) const WIDTH: u32 = 480;
/// Placeholder for the page's text colour until the SVG is finished.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
/// Placeholder for the page's faint lines.
pub(super) const FAINT: RGBColor = RGBColor(3, 2, 1);
/// Percentile steps per factor of ten.
const STEPS_PER_DECADE: u32 = 40;

/// The ends of a logarithmic axis that has all of these values, with room at both, and `factor` between its ends at least. A
/// value that is not above zero has no place on it.
pub(super) fn ends(values: impl Iterator<Item = f64>, factor: f64) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| *value > 0.0 && value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let low = if low.is_finite() { low * 0.8 } else { 1.0 };
    (low, (high * 1.25).max(low * factor))
}

/// The values that have a line and a number on a logarithmic axis, so many at most: 1, 2 and 5 of each power of ten, or the
/// powers alone if the axis is long. The ends are above zero (see [`ends`]).
pub(super) fn marks((low, high): (f64, f64), most: usize) -> Vec<f64> {
    let powers = (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|power| 10_f64.powi(power));
    let is_here = |value: &f64| (low..=high).contains(value);
    let all: Vec<f64> =
        powers.clone().flat_map(|power| [power, 2.0 * power, 5.0 * power]).filter(is_here).collect();
    if all.len() <= most { all } else { powers.filter(is_here).collect() }
}

/// One line of a latency plot.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) colour: RGBColor,
    /// Round trips: highest value of a bucket in ns, and its count; ascending.
    pub(crate) histogram: Vec<(u64, u64)>,
    /// Whether it is drawn thick.
    pub(crate) ours: bool,
}

/// Percentile curves: time over the share of faster round trips, with a logarithmic axis towards 100 %.
pub(crate) fn percentiles(curves: &[Curve]) -> anyhow::Result<String> {
    let points: Vec<Vec<(f64, f64)>> =
        curves.iter().map(|curve| percentile_points(&curve.histogram)).collect();
    let all = || points.iter().flatten();
    let right = all().map(|point| point.0).fold(1.0, f64::max);
    let (low, high) = ends(all().map(|point| point.1), 10.0);
    let unit = Unit::from(low);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 360)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..right, (low..high).log_scale().with_key_points(marks((low, high), 8)))
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_labels(right.ceil() as usize + 1)
            .y_labels(8)
            .x_label_formatter(&|decades| percentile_name(*decades))
            .y_label_formatter(&|us| unit.tick(*us))
            .x_desc("share of round trips that were faster")
            .y_desc(format!("round trip, {}", unit.name))
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .axis_style(INK.mix(0.6))
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(drawing)?;
        for (curve, points) in curves.iter().zip(points) {
            let style = curve.colour.stroke_width(if curve.ours { 3 } else { 2 });
            let points = points.into_iter().map(|(x, us)| (x, us.max(low)));
            chart.draw_series(LineSeries::new(points, style)).map_err(drawing)?;
        }
        area.present().map_err(drawing)?;
    }
    Ok(for_page(&svg, (WIDTH, 360)))
}

/// The points (decades towards 100 %, us): 0 is the fastest, 1 is p90, 2 is p99, as far as the counts allow.
fn percentile_points(histogram: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return Vec::new();
    }
    let decades = (total as f64).log10();
    let steps = (decades * f64::from(STEPS_PER_DECADE)).floor() as u32;
    let point = |step: u32| {
        let x = f64::from(step) / f64::from(STEPS_PER_DECADE);
        Some((x, quantile_ns(histogram, 1.0 - 10_f64.powf(-x))? as f64 / 1000.0))
    };
    (0..=steps).filter_map(point).collect()
}

fn percentile_name(decades: f64) -> String {
    match decades.round() as u32 {
        0 => "min".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        n => format!("99.{} %", "9".repeat(n as usize - 2)),
    }
}

/// Bars of ratios against their targets, on one scale: the used part of what is allowed. Bars left of the line meet the
/// target.
pub(crate) fn targets(ratios: &[&Ratio]) -> anyhow::Result<String> {
    const BAND: i32 = 50;
    let bars: Vec<(&Ratio, Bar)> =
        ratios.iter().filter_map(|ratio| Some((*ratio, Bar::of(ratio)?))).collect();
    let height = bars.len() as u32 * BAND as u32 + 34;
    let widest = bars.iter().map(|(_, bar)| bar.end()).fold(1.25, f64::max).min(BAR_END);
    let place = |share: f64| 8 + (share.clamp(0.0, widest) / widest * f64::from(WIDTH - 24)) as i32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        for (index, (ratio, bar)) in bars.iter().enumerate() {
            let top = index as i32 * BAND;
            draw_bar(&area, ratio, bar, top, &place)?;
        }
        let line = PathElement::new([(place(1.0), 0), (place(1.0), height as i32 - 24)], INK.stroke_width(2));
        area.draw(&line).map_err(drawing)?;
        let text = ("sans-serif", 14).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw(&Text::new("target", (place(1.0), height as i32 - 4), text)).map_err(drawing)?;
        area.present().map_err(drawing)?;
    }
    Ok(for_page(&svg, (WIDTH, height)))
}

/// Longer bars are cut, in units of the target.
const BAR_END: f64 = 2.5;
const HOLDS: RGBColor = RGBColor(0x2d, 0xa4, 0x4e);
const MISSES: RGBColor = RGBColor(0xe5, 0x53, 0x4b);
const UNDECIDED: RGBColor = RGBColor(0x8b, 0x94, 0x9e);

/// A ratio in units of its target, inverted if necessary so that less is better.
struct Bar {
    value: f64,
    /// The 95 % interval; `None` with too few pairs for one.
    interval: Option<[f64; 2]>,
}

impl Bar {
    fn of(ratio: &Ratio) -> Option<Self> {
        let (value, target) = (ratio.value?, ratio.target?);
        let used = |x: f64| match ratio.better {
            // With a target of zero, any value is beyond the line.
            Better::Lower if target == 0.0 => {
                if x > 0.0 {
                    BAR_END
                } else {
                    0.0
                }
            }
            Better::Lower => x / target,
            Better::Higher => {
                if x > 0.0 {
                    target / x
                } else {
                    BAR_END
                }
            }
        };
        let interval = ratio.interval95.map(|[low, high]| {
            let (low, high) = (used(low), used(high));
            [low.min(high), low.max(high)]
        });
        Some(Self { value: used(value), interval })
    }

    /// The rightmost point drawn.
    fn end(&self) -> f64 {
        self.interval.map_or(self.value, |[_, to]| to.max(self.value))
    }
}

fn draw_bar(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    ratio: &Ratio,
    bar: &Bar,
    top: i32,
    place: &impl Fn(f64) -> i32,
) -> anyhow::Result<()> {
    let colour = match ratio.holds {
        Some(true) => HOLDS,
        Some(false) => MISSES,
        None => UNDECIDED,
    };
    let text = ("sans-serif", 14).into_font().color(&INK);
    area.draw(&Text::new(ratio.id.clone(), (8, top + 6), text.clone())).map_err(drawing)?;
    let figures =
        format!("{}   {}", ratio.value.map_or_else(String::new, table::short), table::target(ratio));
    let right = text.pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(figures, (WIDTH as i32 - 12, top + 6), right)).map_err(drawing)?;
    let (bar_top, bar_end) = (top + 26, top + 40);
    area.draw(&Rectangle::new([(8, bar_top), (WIDTH as i32 - 12, bar_end)], FAINT.filled()))
        .map_err(drawing)?;
    area.draw(&Rectangle::new([(8, bar_top), (place(bar.value).max(10), bar_end)], colour.filled()))
        .map_err(drawing)?;
    let Some([from, to]) = bar.interval else { return Ok(()) };
    let whisker = PathElement::new([(place(from), top + 33), (place(to), top + 33)], INK.stroke_width(2));
    area.draw(&whisker).map_err(drawing)?;
    for end in [from, to] {
        let tick = PathElement::new([(place(end), top + 29), (place(end), top + 37)], INK.stroke_width(2));
        area.draw(&tick).map_err(drawing)?;
    }
    Ok(())
}

/// Gives text and lines the colours of the page, and the picture the page's width.
pub(super) fn for_page(svg: &str, size: (u32, u32)) -> String {
    let ink = format!("#{:02X}{:02X}{:02X}", INK.0, INK.1, INK.2);
    let faint = format!("#{:02X}{:02X}{:02X}", FAINT.0, FAINT.1, FAINT.2);
    scalable(svg, size).replace(&ink, "currentColor").replace(&faint, "var(--faint)")
}

pub(super) fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_over_one_decade_has_numbers_that_values_can_be_read_by() {
        assert_eq!(marks((250_000.0, 2_500_000.0), 8), [500_000.0, 1_000_000.0, 2_000_000.0]);
        assert_eq!(marks((0.8, 80.0), 6), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(marks((0.5, 20_000.0), 8), [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn a_curve_goes_as_far_as_its_counts_tell() {
        // 900 round trips of 2 us, 90 of 5, 9 of 10, 1 of 1000.
        let points = percentile_points(&[(2000, 900), (5000, 90), (10_000, 9), (1_000_000, 1)]);
        let at = |decades: f64| points.iter().find(|point| (point.0 - decades).abs() < 1e-9).unwrap().1;
        assert_eq!([at(0.0), at(0.5), at(1.5), at(2.5)], [2.0, 2.0, 5.0, 10.0]);
        assert_eq!(points.last().unwrap().0, 3.0);
        assert!(percentile_points(&[]).is_empty());
        let svg =
            percentiles(&[Curve { colour: RED, histogram: vec![(2000, 9), (9000, 1)], ours: true }]).unwrap();
        assert!(svg.contains("currentColor") && svg.contains("90 %") && !svg.contains("#010203"));
        assert!(svg.contains("width=\"100%\" viewBox"), "{svg}");
    }

    /// A wake-up by a clock of another CPU may have taken no time.
    #[test]
    fn a_value_of_zero_is_drawn_at_the_end_of_its_axis() {
        assert_eq!(ends([0.0, 10.0, f64::INFINITY].into_iter(), 10.0), (8.0, 80.0));
        assert_eq!(ends([0.0].into_iter(), 10.0), (1.0, 10.0));
        for histogram in [vec![(0, 3), (9000, 1)], vec![(0, 3)]] {
            let svg = percentiles(&[Curve { colour: RED, histogram, ours: true }]).unwrap();
            assert!(svg.contains("round trip, us"), "{svg}");
        }
    }

    #[test]
    fn an_axis_in_us_has_no_tick_in_another_unit() {
        let histogram = vec![(2_000, 900), (5_000, 90), (900_000_000, 10)];
        let svg = percentiles(&[Curve { colour: RED, histogram, ours: true }]).unwrap();
        assert!(svg.contains("round trip, us") && svg.contains("100,000"), "{svg}");
        assert!(!svg.contains(" ms"), "{svg}");
        let svg = percentiles(&[Curve { colour: RED, histogram: vec![(8_000_000, 9)], ours: true }]).unwrap();
        assert!(svg.contains("round trip, ms") && !svg.contains(" us"), "{svg}");
    }

    #[test]
    fn percentiles_are_named_as_people_do() {
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 4.0].map(percentile_name),
            ["min", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
    }
}
