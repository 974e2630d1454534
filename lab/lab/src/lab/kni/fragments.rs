//! `fragments`: the share of datagrams sent in 2 to 45 fragments, in any order and with duplicates, that are answered
//! exactly once and byte by byte, while whole datagrams of the same flow take the fast path.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, ensure};
use twinpath_test_plain::fragments::{FragmentsConfig, FragmentsOutcome, ask_in_fragments};

use crate::lab::instance::{Facts, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{self, FAST_PORT};
use crate::lab::session::Session;
use crate::lab::topology::{CLIENT, End, SERVER};

/// Sends `datagrams` over each family to twinpath on `path`. Values: `share` and the number of `datagrams`;
/// `whole_share` of whole datagrams of the same flows; `fast_path_frames`.
pub(in crate::lab) async fn measure(
    session: &Session,
    path: &str,
    datagrams: u64,
    seed: u64,
) -> anyhow::Result<Sample> {
    let socket = session.run_dir.path().join("fragments.sock");
    let serve = peers::serve(path, session.cpus[1], &socket);
    measure_at(session, &serve, [CLIENT, SERVER], datagrams, seed).await
}

/// The same with these arguments of twinpath, from one of these ends to the other.
pub(in crate::lab) async fn measure_at(
    session: &Session,
    serve: &[String],
    [from, to]: [End; 2],
    datagrams: u64,
    seed: u64,
) -> anyhow::Result<Sample> {
    let instance = Instance::start(&session.launcher, serve).await?;
    let mut sample = Sample::default();
    let (mut sent, mut once, mut whole, mut whole_once) = (0, 0, 0, 0);
    for ip in [IpAddr::V4(to.ipv4), IpAddr::V6(to.ipv6)] {
        let client = session.launcher.topology().client.duplicate()?;
        let ask = move || {
            let target = SocketAddr::new(ip, FAST_PORT);
            let config = FragmentsConfig { interface: from.interface, mac: to.mac, target, datagrams, seed };
            client.run(|| ask_in_fragments(&config))
        };
        let outcome = tokio::task::spawn_blocking(ask).await.context("the client panicked")???;
        sent += outcome.sent;
        once += outcome.answered_once.saturating_sub(outcome.corrupt);
        whole += outcome.whole_sent;
        whole_once += outcome.whole_answered_once;
        sample.notes.push(note(ip, &outcome));
    }
    let report = instance.report().await?;
    instance.stop(&session.launcher).await?;
    ensure!(sent > 0, "no datagram was sent");
    sample.values.insert("share", once as f64 / sent as f64);
    sample.values.insert("datagrams", sent as f64);
    sample.path = Some(report.path());
    let fast = report.frames_in();
    sample.values.extend([
        ("whole_share", whole_once as f64 / whole.max(1) as f64),
        ("fast_path_frames", fast as f64),
    ]);
    sample.notes.push(format!("{fast} of {whole} whole datagrams of the same flows came by the fast path"));
    Ok(sample)
}

fn note(ip: IpAddr, outcome: &FragmentsOutcome) -> String {
    let FragmentsOutcome { sent, frames, answered_once, answered_again, missing, corrupt, .. } = outcome;
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    format!(
        "{family}: {sent} datagrams in {frames} frames: {answered_once} answered once, {answered_again} more than once, \
         {missing} not, {corrupt} changed; {} of {} whole ones answered once",
        outcome.whole_answered_once, outcome.whole_sent
    )
}
