//! The library's example of a memcached, and memcached of Debian with one thread, asked by the same client.

use std::time::Duration;

use anyhow::bail;

use crate::lab::asking::{beside_busy, round_trips};
use crate::lab::model::Sample;
use crate::lab::peers::server;
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

const PORT: u16 = 7019;
const ASKING: Duration = Duration::from_millis(600);
/// Until peers are known, and an adaptive worker has seen the gaps between requests.
const WARMUP: Duration = Duration::from_millis(200);
/// Time for start-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);

pub(super) async fn measure(session: &Session, row: &str) -> anyhow::Result<Sample> {
    let (what, kind, more) = match row.strip_suffix("-alone") {
        Some(what) => (what, "memcached", String::new()),
        None => (row, "own-memcached", format!("--on {}", SERVER.interface)),
    };
    let (asks, busy) = match what {
        "mc-udp" => ("--bytes 100", false),
        "mc-tcp" => ("--bytes 100 --tcp", false),
        "mc-100k" => ("--bytes 100000 --tcp", false),
        "mc-busy" => ("--bytes 100", true),
        _ => bail!("no such row: {row}"),
    };
    let launcher = &session.launcher;
    let listen = server(PORT);
    let serves = words(&format!("plain program {kind} --listen {listen} {more}"));
    let running = launcher.server(Side::Server, &serves).await?;
    let ask = format!(
        "plain ask {kind} {listen} {asks} --duration {:.3} --warmup {:.3}",
        ASKING.as_secs_f64(),
        WARMUP.as_secs_f64()
    );
    let ask = words(&ask);
    let asked = launcher.client(Side::Client, &ask, ASKING + SLACK, None);
    let client = if busy { beside_busy(session, asked).await } else { asked.await };
    launcher.stop(running).await?;
    round_trips(&client?.stdout)
}
