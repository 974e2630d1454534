//! Formats the cost of attaching for the kernel's own traffic: for the start and `show`.

use twinpath_observe::report::{Fallback, FallbackMeasure};

/// A few lines about one measured path.
pub(crate) fn lines(fallback: &Fallback) -> Vec<String> {
    let path = &fallback.path;
    if let Some(why) = &fallback.not_measured {
        return vec![format!("cost of {path} to the kernel's own traffic: not measured: {why}")];
    }
    let mut lines =
        vec![format!("cost of {path} to the kernel's own traffic, on {}:", fallback.compared_with)];
    lines.extend(fallback.measures.iter().map(measure));
    lines.extend(programs(fallback));
    lines.push(match &fallback.beyond {
        Some(_) => format!("  more than the {:.0} % that it may cost", fallback.loss_max * 100.0),
        None => {
            format!("  within the {:.0} % that it may cost, as far as this tells", fallback.loss_max * 100.0)
        }
    });
    lines.push("  the driver of a real NIC is not in these figures: see docs/paths.md".to_owned());
    lines
}

fn measure(measure: &FallbackMeasure) -> String {
    let digits = if measure.before >= 1_000.0 { 0 } else { 2 };
    let [low, high] = measure.ratio_interval95;
    format!(
        "  {:12} {:.digits$} before, {:.digits$} after ({}): ratio {:.3}, {low:.3} to {high:.3}",
        measure.name, measure.before, measure.after, measure.unit, measure.ratio
    )
}

/// One line: for each program, its lowest and highest cost over the kinds of frame.
fn programs(fallback: &Fallback) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for program in fallback.programs.iter().map(|cost| cost.program.as_str()) {
        if seen.contains(&program) {
            continue;
        }
        seen.push(program);
        let of = fallback.programs.iter().filter(|cost| cost.program == program);
        let (low, high) = of
            .fold((f64::MAX, 0.0_f64), |(low, high), cost| (low.min(cost.added_ns), high.max(cost.added_ns)));
        said.push(format!("{program} {low:.0} to {high:.0}"));
    }
    (!said.is_empty())
        .then(|| format!("  programs, ns per frame that stays the kernel's: {}", said.join(", ")))
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::FallbackProgram;

    use super::*;

    #[test]
    fn a_measured_path_is_told_in_figures_and_an_unmeasured_one_with_its_reason() {
        let program = |frame: &str, added_ns| FallbackProgram {
            program: "xdp".to_owned(),
            frame: frame.to_owned(),
            added_ns,
            ..FallbackProgram::default()
        };
        let fallback = Fallback {
            path: "xdp-native".to_owned(),
            compared_with: "a link".to_owned(),
            loss_max: 0.1,
            measures: vec![FallbackMeasure {
                name: "kernel-rtt".to_owned(),
                unit: "us".to_owned(),
                before: 10.0,
                after: 10.5,
                ratio: 1.05,
                ratio_interval95: [1.01, 1.09],
                pairs: 8,
            }],
            programs: vec![program("udp", 6.0), program("tcp-ack", 8.0)],
            ..Fallback::default()
        };
        let text = lines(&fallback).join("\n");
        assert!(
            text.contains("kernel-rtt   10.00 before, 10.50 after (us): ratio 1.050, 1.010 to 1.090"),
            "{text}"
        );
        assert!(text.contains("xdp 6 to 8") && text.contains("within the 10 %"), "{text}");
        let not = Fallback { not_measured: Some("no namespace".to_owned()), ..fallback };
        assert_eq!(lines(&not).len(), 1);
    }
}
