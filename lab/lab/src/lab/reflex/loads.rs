//! Who answers, the programs or the worker, by load: `--reflex auto` decides, beside `always` and `off`.

use std::time::Duration;

use anyhow::Context;

use super::services::PORT;
use crate::lab::client;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{serve_by_one, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::CLIENT;

/// Until the decision stands.
const WARMUP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_millis(1000);
/// Start-up, attaching and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);

/// `load-HOW-N`: N requests on their way, from our client on AF_XDP, which spins.
pub(super) async fn measure(session: &Session, row: &str) -> anyhow::Result<Sample> {
    let (how, in_flight) = row
        .strip_prefix("load-")
        .and_then(|rest| rest.split_once('-'))
        .with_context(|| format!("no such row: {row}"))?;
    let serves = format!("rpc --udp {PORT} --path packet --reflex {how} --reflex-rate 10000000");
    let args = serve_by_one(session, &serves);
    let line = format!(
        "bench rpc {} --udp --on {} --path xdp --mode poll --inflight {in_flight} --duration {:.3} --warmup {:.3} --json",
        server(PORT),
        CLIENT.interface,
        TIME.as_secs_f64(),
        WARMUP.as_secs_f64()
    );
    let asked = words(&line);
    let measure = async |instance: &Instance| {
        let (side, deadline) = (Side::Client, WARMUP + TIME + SLACK);
        client::sample_of(&session.launcher.client(side, &asked, deadline, Some(instance.pid())).await?)
    };
    Instance::during(&session.launcher, &args, measure).await
}
