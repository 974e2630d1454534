//! Rows that need no hosts: what a part of the switch does by itself.

use std::time::Duration;

use anyhow::bail;

use super::measure::{Bench, KILL9, number};
use super::memory::BURST;
use crate::lab::instructions::{NOTE, counted};
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::traffic::SLACK;
use crate::plain::l2_lookup::LookedUp;

/// To make a table of a million addresses, and to learn them.
const LEARNING: Duration = Duration::from_secs(10);

impl Bench<'_> {
    pub(super) async fn alone(&self, row: &str) -> anyhow::Result<Sample> {
        match row {
            "l2-lookup" => self.l2_lookup().await,
            "memory-twinpath" | "memory-twinpath-1" | "memory-twinpath-8" => {
                self.memory_twinpath(number(row).unwrap_or(BURST)).await
            }
            "memory-testpmd" => self.memory_testpmd().await,
            "loop-1" | "threads-1" | "loop-64" | "threads-64" => self.forwarder(row).await,
            "vxlan-bulk-kernel" | "vxlan-rtt-kernel" => self.vxlan_by_kernel(row).await,
            "vxlan-bulk-twinpath" | "vxlan-rtt-twinpath" => self.vxlan_by_twinpath(row).await,
            "flood-base" | "flood-limited" | "flood-unlimited" => self.flooded(row).await,
            KILL9 => self.kills().await,
            _ => bail!("{row} is not measured alone"),
        }
    }

    async fn l2_lookup(&self) -> anyhow::Result<Sample> {
        let cpu = self.session.cpus[1];
        let args = format!("plain l2-lookup --cpu {cpu} --duration {:.3}", self.time.as_secs_f64());
        let launcher = &self.session.launcher;
        let finished =
            launcher.client(Side::Server, &words(&args), self.time + SLACK + LEARNING, None).await?;
        let found: LookedUp = finished.json("plain l2-lookup")?;
        let mut sample = Sample { notes: vec![NOTE.to_owned()], ..Sample::default() };
        sample.values.insert("lookups_per_s", found.lookups_per_s);
        sample.values.insert("instructions_per_lookup", counted("l2-lookup")?);
        sample.values.insert("table_mib", found.table_mib);
        sample.values.insert("huge_mib", found.huge_mib);
        Ok(sample)
    }
}
