use super::*;
use crate::report::{
    Drop, Fallback, FallbackMeasure, FallbackProgram, Interface, Offload, PortCounts, Procedure,
    ProcedureCounts, Queue, RequestCounts, ServeCounts, Service, ServiceClaim, Times, Worker, WorkerCounts,
};

fn report() -> Report {
    Report {
        interfaces: vec![Interface {
            name: "veth0".to_owned(),
            path: "packet".to_owned(),
            link: "up".to_owned(),
            device: crate::report::Device {
                speed_mbps: Some(10_000),
                offloads: vec![Offload { name: "rx-checksumming".to_owned(), on: true }],
                ..Default::default()
            },
            fallback: vec![Fallback {
                path: "packet".to_owned(),
                measures: vec![FallbackMeasure {
                    name: "kernel-rtt".to_owned(),
                    ratio: 1.25,
                    ..FallbackMeasure::default()
                }],
                programs: vec![FallbackProgram {
                    program: "xdp".to_owned(),
                    frame: "udp".to_owned(),
                    added_ns: 6.0,
                    ..FallbackProgram::default()
                }],
                ..Fallback::default()
            }],
            queues: vec![Queue {
                counts: PortCounts { frames_in: 42, ..PortCounts::default() },
                ..Queue::default()
            }],
            ..Interface::default()
        }],
        services: vec![Service {
            name: "echo".to_owned(),
            serve: ServeCounts { fast_requests: 9, kernel_requests: 1, ..ServeCounts::default() },
            requests: Some(RequestCounts { answered: 10, refused: 2, repeated: 1, forgotten: 4 }),
            claims: vec![ServiceClaim {
                claim: "udp port 7".to_owned(),
                path: "packet".to_owned(),
                ..Default::default()
            }],
            ..Service::default()
        }],
        rpc: vec![Procedure {
            service: "nfs".to_owned(),
            program: "nfs".to_owned(),
            procedure: "READ".to_owned(),
            counts: ProcedureCounts {
                took: Times { sum_ns: 500, buckets: vec![(255, 2)] },
                failed: 1,
                bytes_in: 160,
                bytes_out: 4_096,
            },
        }],
        workers: vec![Worker {
            mode: "poll".to_owned(),
            counts: WorkerCounts {
                cpu_ns: 1_500_000_000,
                service_time: Times { sum_ns: 3_000, buckets: vec![(255, 2), (271, 1), (1 << 33, 4)] },
                ..WorkerCounts::default()
            },
            ..Worker::default()
        }],
        drops: vec![Drop { place: "odd \"place\"\n".to_owned(), reason: "truncated".to_owned(), count: 3 }],
        ..Report::default()
    }
}

#[test]
fn a_report_is_written_as_open_metrics() {
    let text = encode(report(), Format::OpenMetrics);
    for line in [
        "twinpath_interface_path{interface=\"veth0\",path=\"packet\"} 1",
        "twinpath_interface_path{interface=\"veth0\",path=\"kernel\"} 0",
        "twinpath_interface_speed_bytes_per_second{interface=\"veth0\"} 1250000000",
        "twinpath_interface_offload{interface=\"veth0\",offload=\"rx-checksumming\"} 1",
        "twinpath_fallback_ratio{interface=\"veth0\",path=\"packet\",measure=\"kernel-rtt\"} 1.25",
        "twinpath_fallback_program_seconds{interface=\"veth0\",path=\"packet\",program=\"xdp\",frame=\"udp\"} 6e-9",
        "twinpath_queue_frames_received_total{interface=\"veth0\",queue=\"0\",worker=\"0\"} 42",
        "twinpath_service_requests_total{service=\"echo\",path=\"kernel\"} 1",
        "twinpath_service_requests_answered_total{service=\"echo\",outcome=\"answered\"} 7",
        "twinpath_service_requests_answered_total{service=\"echo\",outcome=\"refused\"} 2",
        "twinpath_service_replies_forgotten_total{service=\"echo\"} 4",
        "twinpath_rpc_call_seconds_count{service=\"nfs\",program=\"nfs\",procedure=\"READ\"} 2",
        "twinpath_rpc_calls_failed_total{service=\"nfs\",program=\"nfs\",procedure=\"READ\"} 1",
        "twinpath_rpc_bytes_total{service=\"nfs\",program=\"nfs\",procedure=\"READ\",direction=\"out\"} 4096",
        "twinpath_claim_fast{service=\"echo\",claim=\"udp port 7\"} 1",
        "twinpath_worker_mode{worker=\"0\",mode=\"poll\"} 1",
        "twinpath_worker_cpu_seconds_total{worker=\"0\"} 1.5",
        "twinpath_worker_service_time_seconds_count{worker=\"0\"} 7",
        "twinpath_worker_service_time_seconds_sum{worker=\"0\"} 0.000003",
        "twinpath_worker_service_time_seconds_bucket{le=\"2.55e-7\",worker=\"0\"} 2",
        "twinpath_worker_service_time_seconds_bucket{le=\"3.83e-7\",worker=\"0\"} 3",
        "twinpath_worker_service_time_seconds_bucket{le=\"+Inf\",worker=\"0\"} 7",
        "twinpath_drops_total{place=\"odd \\\"place\\\"\\n\",reason=\"truncated\"} 3",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    // Every line is a comment or a metric of a declared family.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(families().iter().any(|family| line.starts_with(family.name)), "{line}");
    }
}

#[test]
fn in_the_text_format_a_metric_has_the_name_of_its_family() {
    let open = encode(report(), Format::OpenMetrics);
    let text = encode(report(), Format::Text);
    let metrics = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(metrics(&text), metrics(&open), "the metrics are the same");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    let mut family = ("", "");
    for line in text.lines() {
        match line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            Some(next) => family = next,
            None if line.starts_with("# HELP ") => {}
            None => {
                let (name, kind) = family;
                let suffixes: &[&str] =
                    if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                let named = line.split(['{', ' ']).next().expect("a name");
                assert!(
                    suffixes.iter().any(|suffix| named == format!("{name}{suffix}")),
                    "{line}: {family:?}"
                );
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{family:?}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{family:?}");
            }
        }
    }
    for line in ["# TYPE twinpath_build_info gauge", "# TYPE twinpath_drops_total counter"] {
        assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
    }
}

#[test]
fn every_bound_of_the_histogram_is_one_of_the_fine_one() {
    for bound in rows::bounds_ns() {
        let fine = twinpath_inspect::Histogram::default();
        fine.record(bound, 1);
        assert_eq!(fine.read().buckets, [(bound, 1)]);
    }
}

/// The families as rows of a table in Markdown.
fn rows_of_the_document() -> String {
    let row = |Family { name, kind, help, labels, .. }: &Family| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {help} | {} |\n", kind.name(), labels.join(", "))
    };
    families().iter().map(row).collect()
}

#[test]
fn the_document_lists_every_family_as_it_is_declared() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, rest) = document.split_once("|---|---|---|---|\n").expect("a table of the families");
    let after = &rest[rest.find("\n\n").expect("an end of the table") + 1..];
    let made = format!("{before}|---|---|---|---|\n{}{after}", rows_of_the_document());
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert_eq!(written, made, "docs/metrics.md is not what is declared: run `make documents`");
}

#[test]
fn every_count_is_in_one_family_and_every_row_has_its_labels() {
    let names: std::collections::HashSet<_> = families().iter().map(|family| family.name).collect();
    assert_eq!(names.len(), families().len(), "no family is declared twice");
    let report = report();
    for family in families() {
        for row in (family.rows)(&report) {
            assert_eq!(row.labels.len(), family.labels.len(), "{}", family.name);
        }
    }
}

/// The suffixes after a family's name in the text, by its type.
const SUFFIXES: [&str; 2] = ["_total", "_bucket"];

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let known: Vec<&str> = families().iter().map(|family| family.name).collect();
    let texts = [
        include_str!("../../../../docs/monitoring/alerts.yml"),
        include_str!("../../../../docs/monitoring/dashboard.json"),
    ];
    let mut asked = 0;
    for text in texts {
        let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        for word in words.filter(|word| word.starts_with("twinpath_")) {
            let name = SUFFIXES.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
            assert!(known.contains(&name), "there is no metric {word}");
            asked += 1;
        }
    }
    assert!(asked > 30, "{asked}");
}
