//! Formats the report about the procedures of services.

use twinpath_observe::report::{Procedure, ProcedureCounts, Report};

use super::grid::{cells, headers, table};

/// The procedures that were called.
pub(super) fn procedures(report: &Report) -> String {
    let called: Vec<_> = report.rpc.iter().filter(|procedure| procedure.calls() > 0).collect();
    match (report.rpc.as_slice(), called.as_slice()) {
        ([], _) => "rpc: no service counts its procedures".to_owned(),
        (_, []) => "rpc: no procedure was called".to_owned(),
        _ => {
            let counted = headers::<ProcedureCounts>();
            let columns = ["service", "program", "procedure"].into_iter().chain(counted);
            let mut table = table(&columns.chain(["p50 us", "p99 us"]).collect::<Vec<_>>(), 3);
            for procedure in called {
                let Procedure { service, program, procedure, counts } = procedure;
                let which = [service, program, procedure].map(String::clone);
                let times = [0.5, 0.99].map(|quantile| micros(counts.took.quantile(quantile)));
                table.add_row(which.into_iter().chain(cells(counts)).chain(times));
            }
            table.to_string()
        }
    }
}

fn micros(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{:.1}", nanos as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::Times;

    use super::*;

    fn procedure(name: &str, calls: u64) -> Procedure {
        let took = Times { sum_ns: calls, buckets: vec![(1_535, calls), (98_303, calls / 8)] };
        let counts = ProcedureCounts { took, failed: 3, bytes_in: 160, bytes_out: 32_768 };
        let [service, program, procedure] = ["files", "nfs", name].map(str::to_owned);
        Procedure { service, program, procedure, counts }
    }

    #[test]
    fn each_procedure_that_was_called_is_a_row() {
        let report = Report { rpc: vec![procedure("READ", 8), procedure("LINK", 0)], ..Report::default() };
        let text = procedures(&report);
        let words: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert!(
            words.contains(&vec!["files", "nfs", "READ", "9", "3", "160", "32768", "1.5", "98.3"]),
            "{text}"
        );
        let header = ["service", "program", "procedure", "calls", "failed", "bytes", "in", "bytes", "out"];
        assert!(words.iter().any(|line| line.starts_with(&header)), "{text}");
        assert!(!text.contains("LINK"), "{text}");
    }

    #[test]
    fn without_a_row_a_sentence_says_why() {
        assert_eq!(procedures(&Report::default()), "rpc: no service counts its procedures");
        let report = Report { rpc: vec![procedure("LINK", 0)], ..Report::default() };
        assert_eq!(procedures(&report), "rpc: no procedure was called");
    }
}
