//! Plots latency against CPU as SVG, one point per mode, with the Pareto front.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use twinpath_measure::axis::Unit;

use super::plot::{FAINT, INK, WIDTH, drawing, ends, for_page, marks};

/// One mode of waiting.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Share of a core.
    pub(crate) cpu: f64,
    pub(crate) latency_us: f64,
    pub(crate) colour: RGBColor,
    /// Whether it is drawn large.
    pub(crate) ours: bool,
}

/// Less CPU than this is drawn as this.
const CPU_MIN: f64 = 0.001;

/// Draws the points with numbers from 1, and a line along the front.
pub(crate) fn draw(points: &[Point]) -> anyhow::Result<String> {
    let cpu = |point: &Point| point.cpu.max(CPU_MIN) * 100.0;
    let low_x = points.iter().map(cpu).fold(100.0, f64::min) * 0.7;
    let (low, high) = ends(points.iter().map(|point| point.latency_us), 5.0);
    let unit = Unit::from(low);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 380)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(
                (low_x..140.0).log_scale().with_key_points(marks((low_x, 140.0), 8)),
                (low..high).log_scale().with_key_points(marks((low, high), 8)),
            )
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&|percent| format!("{percent} %"))
            .y_label_formatter(&|us| unit.tick(*us))
            .x_desc("CPU of the receiver, share of a core")
            .y_desc(format!("average round trip, {}", unit.name))
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .axis_style(INK.mix(0.6))
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(drawing)?;
        let along = front(points).into_iter().map(|at| (cpu(&points[at]), points[at].latency_us.max(low)));
        chart.draw_series(LineSeries::new(along, INK.mix(0.4).stroke_width(2))).map_err(drawing)?;
        for (at, point) in points.iter().enumerate() {
            let here = (cpu(point), point.latency_us.max(low));
            let size = if point.ours { 7 } else { 5 };
            let text = ("sans-serif", 14).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Bottom));
            let mark = EmptyElement::at(here)
                + Circle::new((0, 0), size, point.colour.filled())
                + Text::new((at + 1).to_string(), (8, -2), text);
            chart.draw_series(std::iter::once(mark)).map_err(drawing)?;
        }
        area.present().map_err(drawing)?;
    }
    Ok(for_page(&svg, (WIDTH, 380)))
}

/// The Pareto front by CPU: the points for which no other is better in both CPU and latency.
pub(crate) fn front(points: &[Point]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&points[*a], &points[*b]);
        a.cpu.total_cmp(&b.cpu).then(a.latency_us.total_cmp(&b.latency_us))
    });
    let mut least = f64::INFINITY;
    order.retain(|at| {
        let is_on = points[*at].latency_us < least;
        least = least.min(points[*at].latency_us);
        is_on
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beaten_in_both_is_not_on_the_front() {
        let point = |cpu, latency_us| Point { cpu, latency_us, colour: RED, ours: false };
        // Sleeping; spinning; worse than both; as good as spinning at more CPU; in between.
        let points =
            [point(0.02, 80.0), point(0.9, 5.0), point(0.95, 81.0), point(1.0, 5.0), point(0.1, 7.0)];
        assert_eq!(front(&points), [0, 4, 1]);
        assert_eq!(front(&[]), [0; 0]);
        let svg = draw(&points).unwrap();
        assert!(svg.contains("<circle") && svg.contains("currentColor") && !svg.contains("#010203"));
        // A point without any CPU also has a place on a logarithmic axis.
        assert!(draw(&[point(0.0, 3.0)]).is_ok());
    }
}
