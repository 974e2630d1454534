//! Plots one value of rows against another as SVG: lines over two logarithmic axes.

use plotters::prelude::*;

use super::plot::{FAINT, INK, WIDTH, drawing, ends, for_page, marks};
use super::table;

const HEIGHT: u32 = 360;
/// The ends of an axis are so many times apart, at least.
const FACTOR_MIN: f64 = 5.0;

/// Numbers along an axis, at most.
const ACROSS_MAX: usize = 6;
const UP_MAX: usize = 8;

/// One line, with its points in order.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) colour: RGBColor,
    /// Whether it is drawn thick.
    pub(crate) ours: bool,
    pub(crate) points: Vec<Point>,
}

/// A point; a value of zero has no place on these axes and is drawn at their ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Where a thin upward line from the point ends.
    pub(crate) up_to: Option<f64>,
}

/// Draws the lines, with these titles of the axes.
pub(crate) fn draw(lines: &[Line], across: &str, up: &str) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = ends(points().map(|point| point.x), FACTOR_MIN);
    let y = ends(points().flat_map(|point| [point.y, point.up_to.unwrap_or(point.y)]), FACTOR_MIN);
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
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .x_desc(across)
            .y_desc(up)
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .axis_style(INK.mix(0.6))
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(drawing)?;
        for line in lines {
            let place = |point: &Point| (point.x.max(x.0), point.y.max(y.0));
            let style = line.colour.stroke_width(if line.ours { 3 } else { 2 });
            chart.draw_series(LineSeries::new(line.points.iter().map(place), style)).map_err(drawing)?;
            let dots = line.points.iter().map(|point| Circle::new(place(point), 4, line.colour.filled()));
            chart.draw_series(dots).map_err(drawing)?;
            let upward = line.points.iter().filter_map(|point| {
                let (from, to) = (place(point), point.up_to?.max(y.0));
                Some(PathElement::new([from, (from.0, to)], line.colour.mix(0.5).stroke_width(1)))
            });
            chart.draw_series(upward).map_err(drawing)?;
        }
        area.present().map_err(drawing)?;
    }
    Ok(for_page(&svg, (WIDTH, HEIGHT)))
}

/// What stands at a line of an axis.
fn tick(value: f64) -> String {
    if value >= 1.0 { table::thousands(value) } else { table::short(value) }
}

/// A value as the legends have it.
pub(crate) fn number(value: f64) -> String {
    if value >= 100.0 { table::thousands(value) } else { table::short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_line_with_its_points_on_axes_that_have_them_all() {
        let point = |x, y, up_to| Point { x, y, up_to };
        let ours = vec![point(1.0, 300_000.0, None), point(64.0, 900_000.0, None)];
        let other = vec![point(1.0, 0.0, None), point(8.0, 400_000.0, Some(2e6))];
        let lines = [
            Line { colour: BLUE, ours: true, points: ours },
            Line { colour: RED, ours: false, points: other },
        ];
        let svg = draw(&lines, "frames per call", "frames/s").unwrap();
        assert_eq!((svg.matches("<circle").count(), svg.matches("NaN").count()), (4, 0), "{svg}");
        assert!(svg.contains("frames per call") && svg.contains("1,000,000"), "{svg}");
        assert!(svg.contains("\n10\n") && !svg.contains("10.0"), "{svg}");
        assert!(svg.contains("currentColor") && !svg.contains("#010203"));
        assert_eq!(ends([20.0, 0.0, 50.0].into_iter(), FACTOR_MIN), (16.0, 80.0));
        // Values that are all zero have a place, too.
        assert!(
            draw(&[Line { colour: RED, ours: false, points: vec![point(0.0, 0.0, None)] }], "", "").is_ok()
        );
    }
}
