//! Paced datagrams from one host to the other, timed by the kernel between the hosts' interfaces. Their thread is before all
//! others on the hosts' CPU, so that they leave on time while controllers want that CPU.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_socket_load::Stop;
use twinpath_sys::affinity;
use twinpath_test_plain::{Pace, Stamped, StampedPair};
use twinpath_worker::thread::priority::Priority;

use super::model::Sample;
use super::topology::SwitchNetwork;
use super::traffic::address;

const PORT: u16 = 7200;
/// Above that of the bulk traffic.
const PRIORITY: Priority = Priority::Fifo(3);
/// A switch that passes nothing by then never will, and how long each try waits.
const START_DEADLINE: Duration = Duration::from_secs(10);
const TRY: twinpath_time::Duration = twinpath_time::Duration::from_millis(100);
/// How long the last datagrams are waited for: what comes later is lost.
const PATIENCE: twinpath_time::Duration = twinpath_time::Duration::from_secs(1);

/// The sockets of both hosts.
pub(crate) struct Probe(StampedPair);

impl Probe {
    /// The hosts know each other's address when this returns, and the kernel stamps frames.
    pub(crate) fn open(network: &SwitchNetwork) -> anyhow::Result<Self> {
        let pair = StampedPair::new(network.socket(0, 0)?, network.socket(1, PORT)?, address(PORT))?;
        let begun = Instant::now();
        while !pair.try_once(TRY)? {
            ensure!(begun.elapsed() < START_DEADLINE, "no packet comes through the switch");
        }
        Ok(Self(pair))
    }

    /// Sends at `pace` from `cpu`.
    pub(crate) async fn run(self, cpu: usize, pace: Pace) -> anyhow::Result<Sample> {
        let stop = Stop::new();
        let on_thread = move || -> anyhow::Result<Stamped> {
            affinity::pin_current_thread(cpu)?;
            PRIORITY.apply().context("the thread of paced frames")?;
            let timed = self.0.run(&pace, PATIENCE, &stop);
            // The thread serves other tasks of the lab afterwards.
            Priority::Normal.resume()?;
            Ok(timed?)
        };
        let timed = tokio::task::spawn_blocking(on_thread).await??;
        let times = RttUs::of(&timed.under_way).context("no paced frame has a stamp")?;
        let mut values = times.values();
        values.insert("lost", timed.lost as f64);
        values.insert("unstamped", timed.unstamped as f64);
        values.insert("sent", timed.sent as f64);
        values.insert("sent_late_p99_us", timed.sent_late.value_at_quantile(0.99) as f64 / 1e3);
        Ok(Sample { values, histogram: buckets(&timed.under_way), ..Sample::default() })
    }
}
