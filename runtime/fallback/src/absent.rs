//! The choice of a path in a program that is built without the feature `measure`.

use std::net::IpAddr;

use twinpath_path::choose::{Choice, Refusal, WhyNot, choose_without};
use twinpath_path::facts::InterfaceFacts;
use twinpath_plan::Plan;
use twinpath_report as report;

/// Nothing is measured.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    /// If it was asked for, the reason that nothing was measured.
    pub reports: Vec<report::Fallback>,
    /// No path.
    pub ruled_out: Vec<WhyNot>,
}

impl Fallback {
    /// Chooses a path. If it was to be measured first, the report and the log say that it was not.
    ///
    /// # Errors
    /// The path asked for cannot be had.
    pub fn settle(plan: &Plan, facts: &InterfaceFacts, _: Vec<IpAddr>) -> Result<(Choice, Self), Refusal> {
        let choice = choose_without(facts, plan.path, &[])?;
        let mut fallback = Self::default();
        if plan.measure_fallback {
            let why = "this program is built without the feature `measure-fallback` of the library";
            tracing::warn!("what {} costs the kernel's own traffic was not measured: {why}", choice.path);
            fallback.reports.push(report::Fallback {
                path: choice.path.name().to_owned(),
                loss_max: plan.fallback_loss_max,
                not_measured: Some(why.to_owned()),
                ..report::Fallback::default()
            });
        }
        Ok((choice, fallback))
    }
}
