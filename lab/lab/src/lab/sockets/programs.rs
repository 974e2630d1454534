//! The rows of unmodified programs: servers of Debian under `twinpath run`, against the same ones alone.

use std::time::Duration;

use anyhow::bail;

use crate::lab::asking::{asked, cpu_of_queries, round_trips};
use crate::lab::client::RATE;
use crate::lab::model::Sample;
use crate::lab::peers;
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;

/// The same of the server that runs alone, asked by turns with the other one.
const RATE_ALONE: &str = "requests_per_s_alone";

const PORT: u16 = 7011;
/// Of the server beside it, where two are asked by turns.
const OTHER_PORT: u16 = 7012;
/// Time for start-up, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);
/// Queries a second: about half of what nsd alone answers here.
const QUERIES_PER_S: u32 = 40_000;
/// Requests to redis for each second of measured time: about half of what it answers here.
const REDIS_PER_S: u32 = 40_000;
/// How often each of two servers is asked.
const TURNS: usize = 7;

/// Measures a row once; `None` if it is none of these.
pub(super) async fn measure(session: &Session, time: Duration, row: &str) -> Option<anyhow::Result<Sample>> {
    let (kind, run) = row.strip_suffix("-run").map_or((row, ""), |kind| (kind, " --run adaptive"));
    let server = format!("plain program {kind} --listen {}{run}", peers::server(PORT));
    let alone = format!("plain program {kind} --listen {}", peers::server(OTHER_PORT));
    Some(match kind {
        "memcached" | "memcached-threads" => memcached(session, time, &server).await,
        "nsd" => {
            // The client takes whole seconds.
            let time = Duration::from_secs(time.as_secs().max(1));
            let args = ask("nsd", time, &format!("--rate {QUERIES_PER_S}"));
            cpu_of_queries(session, &server, &args, time + SLACK).await
        }
        "redis" => rates(session, time, &server, &alone).await,
        _ => return None,
    })
}

fn ask(kind: &str, time: Duration, more: &str) -> Vec<String> {
    ask_at(PORT, kind, time, more)
}

fn ask_at(port: u16, kind: &str, time: Duration, more: &str) -> Vec<String> {
    let target = peers::server(port);
    words(&format!("plain ask {kind} {target} --duration {:.3} {more}", time.as_secs_f64()))
}

async fn memcached(session: &Session, time: Duration, server: &str) -> anyhow::Result<Sample> {
    let measure = async |_: &Server| {
        let ask = ask("memcached", time, "");
        round_trips(&session.launcher.client(Side::Client, &ask, time + SLACK, None).await?.stdout)
    };
    session.launcher.beside(Side::Server, &words(server), measure).await
}

/// Both servers run all the time and are asked by turns, as the speed of a machine changes by more in a second than what is looked for.
async fn rates(session: &Session, time: Duration, server: &str, alone: &str) -> anyhow::Result<Sample> {
    let server = session.launcher.server(Side::Server, &words(server)).await?;
    let rates = match session.launcher.server(Side::Server, &words(alone)).await {
        Ok(alone) => {
            let rates = by_turns(session, time).await;
            session.launcher.stop(alone).await?;
            rates
        }
        Err(error) => Err(error),
    };
    session.launcher.stop(server).await?;
    let [Some(under_run), Some(alone)] = rates?.map(|rates| twinpath_load::median(&rates)) else {
        bail!("no server was asked");
    };
    Ok(Sample { values: [(RATE, under_run), (RATE_ALONE, alone)].into(), ..Sample::default() })
}

/// Requests a second of both servers, in each turn.
async fn by_turns(session: &Session, time: Duration) -> anyhow::Result<[Vec<f64>; 2]> {
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..TURNS {
        // Each comes first in turns, too.
        for at in [turn % 2, 1 - turn % 2] {
            let args = ask_at([PORT, OTHER_PORT][at], "redis", time, &format!("--rate {REDIS_PER_S}"));
            let client = session.launcher.client(Side::Client, &args, time + SLACK, None).await?;
            rates[at].push(asked(&client.stdout)?.requests_per_s);
        }
    }
    Ok(rates)
}
