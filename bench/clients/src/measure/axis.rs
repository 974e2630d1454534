//! Time axes of plots, with one unit for all ticks and the title; and the size at which an SVG is shown.

/// The unit of an axis whose values are in us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// As it is written in titles.
    pub name: &'static str,
    us: u32,
}

impl Unit {
    /// The unit of an axis that begins at `low_us`.
    #[must_use]
    pub fn from(low_us: f64) -> Self {
        match low_us {
            _ if low_us >= 1_000.0 => Self { name: "ms", us: 1_000 },
            _ => Self { name: "us", us: 1 },
        }
    }

    /// A tick label without the unit, which the title names. At most three significant digits below 100.
    #[must_use]
    pub fn tick(self, us: f64) -> String {
        let value = us / f64::from(self.us);
        let digits = match value.abs() {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            v if v >= 1.0 => 2,
            _ => 3,
        };
        let text = format!("{value:.digits$}");
        let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
        let mut grouped = String::new();
        for (place, digit) in whole.chars().enumerate() {
            if place > 0 && (whole.len() - place) % 3 == 0 && digit.is_ascii_digit() {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped + rest
    }
}

/// Makes the picture as wide as its window or page, in the proportions of its viewBox.
#[must_use]
pub fn scalable(svg: &str, (width, height): (u32, u32)) -> String {
    svg.replacen(&format!("width=\"{width}\" height=\"{height}\" viewBox"), "width=\"100%\" viewBox", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_of_an_axis_have_one_unit_the_title_s() {
        let us = Unit::from(2.0);
        assert_eq!(
            [0.2, 5.0, 12.5, 1_000.0, 250_000.0].map(|value| us.tick(value)),
            ["0.2", "5", "12.5", "1,000", "250,000"]
        );
        let ms = Unit::from(1_500.0);
        assert_eq!((us.name, ms.name), ("us", "ms"));
        assert_eq!([1_500.0, 1_000_000.0].map(|value| ms.tick(value)), ["1.5", "1,000"]);
        assert_eq!(us.tick(0.1 + 0.2), "0.3");
    }
}
