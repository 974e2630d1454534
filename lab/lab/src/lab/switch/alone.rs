//! Rows that need no hosts: what a part of the switch does by itself.

use std::time::Duration;

use anyhow::bail;

use super::measure::Bench;
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::traffic::SLACK;

/// To make a table of a million addresses, and to learn them.
const LEARNING: Duration = Duration::from_secs(10);

impl Bench<'_> {
    pub(super) async fn alone(&self, row: &str) -> anyhow::Result<Sample> {
        match row {
            "l2-lookup" => self.l2_lookup().await,
            "memory-twinpath" => self.memory_twinpath().await,
            "memory-testpmd" => self.memory_testpmd().await,
            "flood-base" => self.flooded(false).await,
            "flood-limited" => self.flooded(true).await,
            "kill9-bridge" => self.kills().await,
            _ => bail!("{row} is not measured alone"),
        }
    }

    async fn l2_lookup(&self) -> anyhow::Result<Sample> {
        let cpu = self.session.cpus[1];
        let args = format!("plain l2-lookup --cpu {cpu} --duration {:.3}", self.time.as_secs_f64());
        let launcher = &self.session.launcher;
        let finished =
            launcher.client(Side::Server, &words(&args), self.time + SLACK + LEARNING, None).await?;
        Ok(Sample { values: finished.values("plain l2-lookup")?, ..Sample::default() })
    }
}
