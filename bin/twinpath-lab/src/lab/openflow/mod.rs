//! `lab openflow`: switches that a controller sets the flows of: twinpath's and Open vSwitch.
//!
//! Controllers and hosts run on the first CPU, the thread that carries frames on the second.

mod judged;
mod measure;
mod restart;

use std::sync::LazyLock;
use std::time::Duration;

use fastrand::Rng;

use self::measure::{Bench, CONTENDERS};
use crate::lab::session::{InGuest, Lab, Session};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 5;
/// Pairs otherwise.
const QUICK_PAIRS: usize = 1;

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "openflow",
    about: "A switch and its OpenFlow controller: twinpath, Open vSwitch",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/openflow.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let contenders: Vec<_> =
        CONTENDERS.iter().filter(|contender| contender.rows().any(|row| session.wants(row))).collect();
    session.progress.expect(rounds * contenders.len());
    let in_round = async |round: usize| {
        let mut contenders = contenders.clone();
        Rng::with_seed(session.seed.wrapping_add(round as u64)).shuffle(&mut contenders);
        for contender in contenders {
            Bench { session, round }.measure(contender).await;
        }
    };
    Ok(session.in_rounds(rounds, Duration::MAX, in_round).await)
}
