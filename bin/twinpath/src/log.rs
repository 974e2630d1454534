//! What a running instance says: to its standard error, from `info` on, or as `RUST_LOG` asks.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Sets it up, once.
pub(crate) fn start() {
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    let understood = asked.as_deref().map(str::parse::<Targets>);
    let (filter, fault) = match understood {
        Some(Ok(filter)) => (filter, None),
        Some(Err(fault)) => (Targets::new().with_default(LevelFilter::INFO), Some(fault)),
        None => (Targets::new().with_default(LevelFilter::INFO), None),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(fault) = fault {
        tracing::warn!(
            "RUST_LOG is not understood ({fault}): write `debug`, or `twinpath_control=debug,info`"
        );
    }
}
