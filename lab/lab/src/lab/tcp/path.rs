//! Which path the connections of a row were on, by the service's own report.

use anyhow::{Context, ensure};
use twinpath_observe::report::Report;

/// Fails unless all connections of the service were on that path.
pub(in crate::lab) fn all_on(report: &Report, path: &str) -> anyhow::Result<()> {
    let service = report.services.first().context("the report has no service")?;
    let (accepted, fast) = (service.tcp.accepted, service.fast_tcp.fast_accepted);
    let claims: Vec<_> = service
        .claims
        .iter()
        .map(|claim| format!("{}: {} ({})", claim.claim, claim.path, claim.why))
        .collect();
    let wanted = if path == "fast" { accepted } else { 0 };
    ensure!(
        accepted > 0 && fast == wanted,
        "{fast} of {accepted} connections were on the fast path, instead of {wanted}: {}",
        claims.join("; ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::Service;

    use super::*;

    #[test]
    fn a_connection_on_another_path_than_the_rows_is_an_error() {
        let of = |accepted, fast_accepted, path: &str| {
            let mut service = Service::default();
            service.tcp.accepted = accepted;
            service.fast_tcp.fast_accepted = fast_accepted;
            all_on(&Report { services: vec![service], ..Report::default() }, path)
        };
        assert!(of(3, 3, "fast").is_ok() && of(3, 0, "kernel").is_ok());
        for (accepted, fast_accepted, path) in
            [(3, 2, "fast"), (0, 0, "fast"), (3, 1, "kernel"), (0, 0, "kernel")]
        {
            assert!(of(accepted, fast_accepted, path).is_err(), "{accepted} {fast_accepted} {path}");
        }
    }
}
