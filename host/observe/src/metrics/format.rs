//! The two text formats, and the choice between them by the scraper's request.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0: families have names without suffixes, and the text has an end.
    OpenMetrics,
    /// Prometheus' text format 0.0.4: each metric's name is that of its family, and there is no info type.
    Text,
}

impl Format {
    /// OpenMetrics if the scraper accepts it (RFC 9110, 12.5.1) and does not prefer the text format.
    /// Otherwise the text format, which every scraper accepts.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let ranges = || {
            let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
            lists.flat_map(|list| list.split(',')).filter_map(Range::read)
        };
        let best = |wanted: fn(&Range<'_>) -> bool| {
            ranges().filter(wanted).map(|range| range.weight).fold(0.0, f32::max)
        };
        let open = best(|range| {
            range.kind.eq_ignore_ascii_case("application/openmetrics-text")
                && range.version.is_none_or(|version| version == "1.0.0")
        });
        let text = best(|range| {
            range.kind.eq_ignore_ascii_case("text/plain")
                && range.version.is_none_or(|version| version == "0.0.4")
        });
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Its content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// One of the media types that a scraper accepts.
struct Range<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    /// 0 to 1.
    weight: f32,
}

impl<'a> Range<'a> {
    /// `None` if its weight is invalid.
    fn read(written: &'a str) -> Option<Self> {
        let mut parts = written.split(';').map(str::trim);
        let mut range = Self { kind: parts.next()?, version: None, weight: 1.0 };
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "version" => range.version = Some(value),
                "q" | "Q" => {
                    range.weight = value.parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
                }
                _ => {}
            }
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_name_it() {
        for (accepts, format) in [
            (&[][..], Format::Text),
            (&["*/*"], Format::Text),
            (&["text/plain"], Format::Text),
            (&["text/plain;version=0.0.4;q=1,*/*;q=0.1"], Format::Text),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (&["APPLICATION/OpenMetrics-Text; version=\"1.0.0\""], Format::OpenMetrics),
            // Prometheus 3, and Prometheus 2.
            (
                &["application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                   application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                   text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
                Format::OpenMetrics,
            ),
            (
                &["application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
                Format::Text,
            ),
            (&["text/plain;version=0.0.4", "application/openmetrics-text;q=1.0"], Format::OpenMetrics),
            (&["application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.5"], Format::Text),
            (&["application/openmetrics-text;q=0"], Format::Text),
            (&["application/openmetrics-text;q=much"], Format::Text),
            (&["application/openmetrics-text;version=2.0.0"], Format::Text),
            (&[";;=,q=,,"], Format::Text),
        ] {
            let mut headers = HeaderMap::new();
            for list in accepts {
                headers.append(ACCEPT, list.parse().expect("a value"));
            }
            assert_eq!(Format::accepted(&headers), format, "{accepts:?}");
        }
    }
}
