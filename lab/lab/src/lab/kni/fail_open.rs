//! `fail-open-ms`: stops a worker of a serving twinpath under load, as a debugger would, and lets it run again later.
//! Measures how long clients notice either.
//!
//! Two flows over each family send requests all the time, and a TCP connection is opened at each stop. One server
//! serves through all stops. Requests answered twice are counted: a single one misses the target, whatever the times.
//! Requests without an answer are counted too: they were in the worker's rings, or arrived before the kernel took over.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use twinpath_test_plain::stuck_watch::{
    DEADLINE, Felt, RequestCounts, StuckWatch, StuckWatchConfig, StuckWatchError, Victim,
};

use crate::lab::instance::{Facts, Instance, worker_thread};
use crate::lab::model::Sample;
use crate::lab::peers::{self, FAST_PORT, TCP_PORT};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// A path of claimed frames to their worker.
pub(super) struct Way {
    pub(super) row: &'static str,
    path: &'static str,
    mode: &'static str,
    /// Whether the whole process is stopped, beside a standby instance.
    whole: bool,
}

/// The packet socket, which a sleeping worker uses; the direct ring, for a worker that never sleeps; AF_XDP; and
/// stopping a whole process.
pub(super) const PATHS: [Way; 4] = [
    Way { row: "fail-open-packet", path: "packet", mode: "interrupt", whole: false },
    Way { row: "fail-open-direct", path: "packet", mode: "poll", whole: false },
    Way { row: "fail-open-xdp", path: "xdp", mode: "interrupt", whole: false },
    Way { row: "fail-open-standby", path: "packet", mode: "interrupt", whole: true },
];

/// Flows over each family.
const FLOWS: usize = 2;

/// Stops the worker `stops` times. Values: `worst_ms` and `median_ms` from a stop until every flow had an answer,
/// `back_worst_ms` and `back_median_ms` from its end until the fast path served; `stops`, `requests`, `lost`, `twice`.
pub(super) async fn measure(session: &Session, way: &Way, stops: usize) -> anyhow::Result<Sample> {
    let socket = session.run_dir.path().join(format!("{}.sock", way.row));
    let mut serve = peers::serve_in(way.path, way.mode, session.cpus[1], &socket);
    serve.extend(["--tcp".to_owned(), TCP_PORT.to_string()]);
    let instance = Instance::start(&session.launcher, &serve).await?;
    let stopped = match standby(session, way, serve, &socket).await {
        Ok(standby) => {
            let stopped = stop_all(session, &instance, &socket, way, stops).await;
            if let Some(standby) = standby {
                standby.stop(&session.launcher).await?;
            }
            stopped
        }
        Err(error) => Err(error),
    };
    // The server is stopped after a failure, too. The first failure is the one to report.
    let ended = instance.stop(&session.launcher).await;
    let sample = stopped?;
    ended?;
    Ok(sample)
}

/// A standby instance for the one at `socket`, if this setup has one.
async fn standby(
    session: &Session,
    way: &Way,
    mut serve: Vec<String>,
    socket: &Path,
) -> anyhow::Result<Option<Instance>> {
    if !way.whole {
        return Ok(None);
    }
    let own = socket.with_extension("standby.sock");
    for argument in &mut serve {
        if Path::new(&*argument) == socket {
            *argument = own.display().to_string();
        }
    }
    serve.extend(["--standby".to_owned(), socket.display().to_string()]);
    Ok(Some(Instance::start(&session.launcher, &serve).await?))
}

async fn stop_all(
    session: &Session,
    instance: &Instance,
    socket: &Path,
    way: &Way,
    stops: usize,
) -> anyhow::Result<Sample> {
    let found = instance.report().await?.path();
    if !found.starts_with(way.path) {
        bail!("the path is {found}: there are no claims on {} to withdraw", way.path);
    }
    let victim = match way.whole {
        true => Victim::Process(instance.pid()),
        false => Victim::Thread(worker_thread(instance.pid())?),
    };
    let (client, socket) = (session.launcher.topology().client.duplicate()?, socket.to_owned());
    let families = [IpAddr::V4(SERVER.ipv4), IpAddr::V6(SERVER.ipv6)];
    let udp = families.into_iter().flat_map(|ip| vec![SocketAddr::new(ip, FAST_PORT); FLOWS]).collect();
    let config = StuckWatchConfig { udp, tcp: peers::server(TCP_PORT) };
    let watch = move || {
        client.run(|| -> Result<(Vec<Felt>, RequestCounts), StuckWatchError> {
            let mut watch = StuckWatch::open(&config)?;
            // A socket with a path can be reached from any network namespace.
            let felt =
                (0..stops).map(|_| watch.stop(victim, || frames_in(&socket))).collect::<Result<_, _>>()?;
            Ok((felt, watch.end()?))
        })
    };
    let (felt, asked) = tokio::task::spawn_blocking(watch).await.context("the watch panicked")???;
    let mut sample = summarise(&felt, asked).context("the worker was never stopped")?;
    sample.path = Some(found);
    Ok(sample)
}

fn summarise(felt: &[Felt], asked: RequestCounts) -> Option<Sample> {
    let ms = |time: twinpath_time::Duration| time.as_secs_f64() * 1e3;
    let sorted = |of: fn(&Felt) -> twinpath_time::Duration| {
        let mut times: Vec<_> = felt.iter().map(of).collect();
        times.sort();
        times
    };
    let (stuck, back) = (sorted(Felt::worst), sorted(|felt| felt.back));
    let mut sample = Sample::default();
    sample.values.extend([
        ("worst_ms", ms(*stuck.last()?)),
        ("median_ms", ms(stuck[stuck.len() / 2])),
        ("back_worst_ms", ms(*back.last()?)),
        ("back_median_ms", ms(back[back.len() / 2])),
        ("stops", felt.len() as f64),
        ("requests", asked.requests as f64),
        ("lost", asked.lost as f64),
        ("twice", asked.twice as f64),
    ]);
    let (name, time) = felt.iter().flat_map(|felt| &felt.flows).max_by_key(|flow| flow.1)?;
    let silent = if *time >= DEADLINE { ", where it was given up" } else { "" };
    sample.notes.push(format!("slowest of {} stops: {name}, {:.1} ms{silent}", felt.len(), ms(*time)));
    Some(sample)
}

/// Frames that a server's workers have received on the fast path. It does not use the event loop, because only the
/// thread that has stopped a worker can let it run again.
fn frames_in(socket: &Path) -> io::Result<u64> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"{\"show\":\"workers\"}\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: serde_json::Value = serde_json::from_str(&line)?;
    let workers = answer["ok"]["workers"].as_array().ok_or_else(|| io::Error::other(line.clone()))?;
    Ok(workers.iter().filter_map(|worker| worker["frames_in"].as_u64()).sum())
}
