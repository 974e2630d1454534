//! Draws lines over two logarithmic axes, as SVG that takes its text colour from the page around it.

use anyhow::anyhow;
use plotters::prelude::*;
use twinpath_clients::measure::axis::{Unit, scalable};

use super::stats::quantile_ns;

/// The width: narrow enough for a phone; a wider screen scales it up.
const WIDTH: u32 = 480;
const HEIGHT: u32 = 360;
/// Placeholder for the page's text colour until the SVG is finished.
const INK: RGBColor = RGBColor(1, 2, 3);
/// Placeholder for the page's faint lines.
const FAINT: RGBColor = RGBColor(3, 2, 1);
/// Percentile steps per factor of ten.
const STEPS_PER_DECADE: u32 = 40;
/// Numbers along an axis, at most.
const ACROSS_MAX: usize = 6;
const UP_MAX: usize = 8;

/// An axis; a value that is not above its lower end is drawn there.
pub(crate) struct Axis {
    ends: (f64, f64),
    title: String,
    tick: Box<dyn Fn(f64) -> String>,
}

impl Axis {
    /// Times in us, by the unit that suits the shortest, with room at both ends.
    pub(crate) fn times(us: impl Iterator<Item = f64>, title: &str) -> Self {
        let ends = ends(us);
        let unit = Unit::from(ends.0);
        Self { ends, title: format!("{title}, {}", unit.name), tick: Box::new(move |us| unit.tick(us)) }
    }

    /// Shares of the fastest, towards 100 %, of lines from [`percentiles`].
    pub(crate) fn percentiles<'a>(lines: impl Iterator<Item = &'a Line>) -> Self {
        let right = lines.flat_map(|line| &line.points).map(|point| point.x).fold(10.0, f64::max);
        let title = "share of round trips that were faster".to_owned();
        Self { ends: (1.0, right), title, tick: Box::new(|x| percentile_name(x.log10())) }
    }
}

/// One line, with its points in order.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) colour: RGBColor,
    pub(crate) points: Vec<Point>,
    /// px
    pub(crate) width: u32,
}

/// A point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Line {
    pub(crate) fn new(colour: RGBColor, is_ours: bool, points: Vec<Point>) -> Self {
        Self { colour, points, width: if is_ours { 3 } else { 2 } }
    }
}

/// The points of a percentile curve: times in us over what is 1 for the fastest, 10 at p90, 100 at p99, as far as the counts
/// allow.
pub(crate) fn percentiles(histogram: &[(u64, u64)]) -> Vec<Point> {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return Vec::new();
    }
    let steps = ((total as f64).log10() * f64::from(STEPS_PER_DECADE)).floor() as u32;
    let point = |step: u32| {
        let x = 10_f64.powf(f64::from(step) / f64::from(STEPS_PER_DECADE));
        Some(Point { x, y: quantile_ns(histogram, 1.0 - 1.0 / x)? as f64 / 1000.0 })
    };
    (0..=steps).filter_map(point).collect()
}

/// Draws the lines.
pub(crate) fn draw(across: &Axis, up: &Axis, lines: &[Line]) -> anyhow::Result<String> {
    let (x, y) = (across.ends, up.ends);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(48)
            .y_label_area_size(92)
            .build_cartesian_2d(
                (x.0..x.1).log_scale().with_key_points(marks(x, ACROSS_MAX)),
                (y.0..y.1).log_scale().with_key_points(marks(y, UP_MAX)),
            )
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_labels(ACROSS_MAX)
            .y_labels(UP_MAX)
            .x_label_formatter(&|value| (across.tick)(*value))
            .y_label_formatter(&|value| (up.tick)(*value))
            .x_desc(&across.title)
            .y_desc(&up.title)
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .axis_style(INK.mix(0.6))
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(drawing)?;
        for line in lines {
            let place = |point: &Point| (point.x.max(x.0), point.y.max(y.0));
            let style = line.colour.stroke_width(line.width);
            chart.draw_series(LineSeries::new(line.points.iter().map(place), style)).map_err(drawing)?;
        }
        area.present().map_err(drawing)?;
    }
    Ok(for_page(&svg))
}

/// The ends of a logarithmic axis, which is a factor of ten long at least. A value that is not above zero has no place on it.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| *value > 0.0 && value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let low = if low.is_finite() { low * 0.8 } else { 1.0 };
    (low, (high * 1.25).max(low * 10.0))
}

/// The values that have a line and a number on a logarithmic axis, so many at most: 1, 2 and 5 of each power of ten, or the
/// powers alone if the axis is long. The ends are above zero (see [`ends`]).
fn marks((low, high): (f64, f64), most: usize) -> Vec<f64> {
    let powers = (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|power| 10_f64.powi(power));
    let is_here = |value: &f64| (low..=high).contains(value);
    let all: Vec<f64> =
        powers.clone().flat_map(|power| [power, 2.0 * power, 5.0 * power]).filter(is_here).collect();
    if all.len() <= most { all } else { powers.filter(is_here).collect() }
}

fn percentile_name(decades: f64) -> String {
    let whole = decades.round();
    match whole as u32 {
        // Between two powers there is no name.
        _ if (decades - whole).abs() > 0.01 => String::new(),
        0 => "min".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        n => format!("99.{} %", "9".repeat(n as usize - 2)),
    }
}

/// Gives text and lines the colours of the page, and the picture the page's width.
fn for_page(svg: &str) -> String {
    let ink = format!("#{:02X}{:02X}{:02X}", INK.0, INK.1, INK.2);
    let faint = format!("#{:02X}{:02X}{:02X}", FAINT.0, FAINT.1, FAINT.2);
    scalable(svg, (WIDTH, HEIGHT)).replace(&ink, "currentColor").replace(&faint, "var(--faint)")
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
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

    fn curve(histogram: &[(u64, u64)]) -> String {
        let line = Line::new(RED, true, percentiles(histogram));
        let up = Axis::times(line.points.iter().map(|point| point.y), "round trip");
        draw(&Axis::percentiles(std::iter::once(&line)), &up, std::slice::from_ref(&line)).unwrap()
    }

    #[test]
    fn a_curve_goes_as_far_as_its_counts_tell() {
        // 900 round trips of 2 us, 90 of 5, 9 of 10, 1 of 1000.
        let points = percentiles(&[(2000, 900), (5000, 90), (10_000, 9), (1_000_000, 1)]);
        let at = |decades: f64| {
            points.iter().find(|point| (point.x.log10() - decades).abs() < 1e-9).map(|point| point.y)
        };
        assert_eq!([0.0, 0.5, 1.5, 2.5].map(at), [2.0, 2.0, 5.0, 10.0].map(Some));
        assert!((points.last().unwrap().x - 1000.0).abs() < 1e-6);
        assert!(percentiles(&[]).is_empty());
        let svg = curve(&[(2000, 9), (9000, 1)]);
        assert!(svg.contains("currentColor") && svg.contains("90 %") && !svg.contains("#010203"));
        assert!(svg.contains("width=\"100%\" viewBox"), "{svg}");
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 4.0].map(percentile_name),
            ["min", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
    }

    /// A wake-up by a clock of another CPU may have taken no time.
    #[test]
    fn a_value_of_zero_is_drawn_at_the_end_of_its_axis() {
        assert_eq!(ends([0.0, 10.0, f64::INFINITY].into_iter()), (8.0, 80.0));
        assert_eq!(ends([0.0].into_iter()), (1.0, 10.0));
        for histogram in [vec![(0, 3), (9000, 1)], vec![(0, 3)]] {
            assert!(curve(&histogram).contains("round trip, us"));
        }
    }

    #[test]
    fn an_axis_in_us_has_no_tick_in_another_unit() {
        let svg = curve(&[(2_000, 900), (5_000, 90), (900_000_000, 10)]);
        assert!(svg.contains("round trip, us") && svg.contains("100,000"), "{svg}");
        assert!(!svg.contains(" ms"), "{svg}");
        let svg = curve(&[(8_000_000, 9)]);
        assert!(svg.contains("round trip, ms") && !svg.contains(" us"), "{svg}");
    }
}
