//! Draws ratios against their targets, as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{FAINT, INK, WIDTH, drawing, for_page};
use super::model::{Better, Ratio};
use super::table;

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
