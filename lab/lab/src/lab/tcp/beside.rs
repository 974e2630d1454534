//! What `lab tcp` measures beside a load that is not asked for: forged SYNs, and connections that say nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::ensure;

use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{FAST_PORT, frame_source};
use crate::lab::process::{self, Side};
use crate::lab::rpc::burden::{Memory, connections, hold, open};
use crate::lab::session::Session;
use crate::lab::topology::{CLIENT, REMOTE, SERVER};
use crate::plain::switch::Sent;

/// The connections beside forged SYNs, each with one call under way.
pub(super) const CALLS: &str = "--connections 100";
/// From their beginning to the first call that counts. The flood begins halfway.
pub(super) const SETTLED: Duration = Duration::from_millis(1000);
/// How long they count.
pub(super) const TIME: Duration = Duration::from_millis(2000);
/// A quarter of what is asked: on a pair of virtual interfaces the sender's CPU, which is also the client's, does all that the
/// server's kernel does for a SYN, which takes 5 us with a cookie.
const SYNS_PER_S: u32 = 50_000;
/// SYNs that come at once.
const BATCH: usize = 16;

/// Measures `calls` beside SYNs to `target` with random sources behind the client's network.
pub(super) async fn syns(
    session: &Session,
    target: SocketAddr,
    calls: impl Future<Output = anyhow::Result<Sample>>,
) -> anyhow::Result<Sample> {
    let (launcher, topology) = (&session.launcher, session.launcher.topology());
    topology.further_networks()?;
    let options = format!(
        "--syns-to {target} --sources {}/{} --batch {BATCH} --rate {SYNS_PER_S} --duration {:.3}",
        REMOTE.0,
        REMOTE.1,
        (SETTLED + TIME).as_secs_f64()
    );
    let args = frame_source(CLIENT.interface, CLIENT.mac, SERVER.mac, &options);
    let flood = async {
        tokio::time::sleep(SETTLED / 2).await;
        launcher.background(Side::Client, &args)
    };
    let (measured, flood) = tokio::join!(calls, flood);
    let printed = launcher.finish(flood?).await;
    topology.no_further_networks()?;
    let sent: Sent = process::json(&printed?, "plain frame-source")?;
    let mut sample = measured?;
    let offered = sent.frames as f64 / sent.duration_s;
    ensure!(offered > f64::from(SYNS_PER_S) / 2.0, "the source sent {offered:.0} SYNs/s only");
    sample.values.insert("offered_per_s", offered);
    Ok(sample)
}

/// Connections that say nothing, and how many of them a process holds.
pub(super) const IDLE: usize = 100_000;
const HELD_MAX: usize = 25_000;

/// Our own memory for [`IDLE`] connections, or as many as a process may have here. A client's address has ports for some 60,000 at
/// one of ours, so half of them are over IPv6.
pub(super) async fn idle(session: &Session, instance: &Instance) -> anyhow::Result<Sample> {
    let targets: [IpAddr; 2] = [SERVER.ipv4.into(), SERVER.ipv6.into()];
    let (wanted, fewer) = connections(IDLE);
    let before = Memory::of(instance).await?;
    let (mut holders, mut left) = (Vec::new(), wanted);
    let held = async {
        for ip in targets.into_iter().cycle() {
            let here = left.min(HELD_MAX);
            holders.push(hold(session, instance, SocketAddr::new(ip, FAST_PORT), here, false).await?);
            left -= here;
            if left == 0 {
                break;
            }
        }
        let grown = Memory::of(instance).await?.since(&before);
        anyhow::Ok((grown, open(instance).await?))
    };
    let held = held.await;
    for holder in holders {
        session.launcher.stop(holder).await?;
    }
    let (grown, kept) = held?;
    ensure!(kept >= wanted as u64, "only {kept} of {wanted} connections were still open");
    let notes = fewer.into_iter().collect();
    Ok(Sample { values: grown.per_connection(kept).into(), notes, ..Sample::default() })
}
