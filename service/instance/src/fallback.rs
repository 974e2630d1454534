//! Measures how much attaching costs the kernel's own traffic, before anything is attached and before a
//! worker spins, and lets the choice of the path depend on it.

use std::net::IpAddr;

use twinpath_attach::path::choose::{Choice, Refusal, WhyNot, choose_without};
use twinpath_attach::path::facts::InterfaceFacts;
use twinpath_bpf::TcAttach;
use twinpath_claims::Claim;
use twinpath_config::{Path, PathAsked};
use twinpath_observe::report;

use crate::plan::Plan;

/// The question to measure, for one path.
#[derive(Clone, Debug)]
pub struct FallbackQuestion {
    /// The path; one of the fast ones.
    pub path: Path,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Addresses of the host, as in the table of claims.
    pub addresses: Vec<IpAddr>,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How the packet path's program is attached.
    pub tc: TcAttach,
    /// Whether to compare with an unchanged link: only a veth itself suffers the cost of running XDP on a
    /// veth.
    pub bare: bool,
    /// The share that the path may cost: 0.1 is a tenth.
    pub loss_max: f64,
}

/// Measures what a path costs the kernel's own traffic; the error is a sentence. It blocks for about 3 s.
/// The caller provides it, because it needs a load generator, which the instance does not contain.
pub type MeasureFallback = fn(&FallbackQuestion) -> Result<report::Fallback, String>;

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Fallback {
    /// For each path measured, in order.
    pub reports: Vec<report::Fallback>,
    /// Paths that lost too much: `auto` does not choose them for the life of the instance.
    pub ruled_out: Vec<WhyNot>,
}

impl Fallback {
    /// Chooses a path. If the plan asks for it, `measure` is used to skip a path that costs the kernel more
    /// than allowed. Without `measure`, the report and the log say that nothing was measured.
    ///
    /// # Errors
    /// The requested path is not available.
    pub(super) fn settle(
        plan: &Plan,
        facts: &InterfaceFacts,
        addresses: &[IpAddr],
        measure: Option<MeasureFallback>,
    ) -> Result<(Choice, Self), Refusal> {
        let question = |path| FallbackQuestion {
            path,
            claims: plan.claims(),
            addresses: addresses.to_vec(),
            ring_frames: plan.ring_frames,
            tc: facts.tc_attach(),
            bare: facts.kind == "veth",
            loss_max: plan.fallback_loss_max,
        };
        let Some(measure) = measure else { return Self::settle_without(plan, facts) };
        Self::settle_with(plan, facts, |path| measure(&question(path)))
    }

    fn settle_without(plan: &Plan, facts: &InterfaceFacts) -> Result<(Choice, Self), Refusal> {
        let choice = choose_without(facts, plan.path, &[])?;
        let error = "this program is built without the feature `measure-fallback` of the library".to_owned();
        let reports = plan.measure_fallback.then(|| not_measured(plan, choice.path, error));
        Ok((choice, Self { reports: reports.into_iter().collect(), ruled_out: Vec::new() }))
    }

    fn settle_with(
        plan: &Plan,
        facts: &InterfaceFacts,
        measure: impl Fn(Path) -> Result<report::Fallback, String>,
    ) -> Result<(Choice, Self), Refusal> {
        let mut fallback = Self::default();
        loop {
            let choice = choose_without(facts, plan.path, &fallback.ruled_out)?;
            let seen = fallback.reports.iter().any(|report| report.path == choice.path.name());
            if !plan.measure_fallback || choice.path == Path::Kernel || seen {
                return Ok((choice, fallback));
            }
            let report = measure(choice.path).unwrap_or_else(|error| not_measured(plan, choice.path, error));
            let beyond = report.beyond.clone();
            fallback.reports.push(report);
            let Some(reason) = beyond else { return Ok((choice, fallback)) };
            if plan.path != PathAsked::Auto {
                tracing::warn!("{} was asked for and stays, though {reason}", choice.path);
                return Ok((choice, fallback));
            }
            tracing::warn!("not {}: {reason}", choice.path);
            fallback.ruled_out.push(WhyNot { path: choice.path, reason });
        }
    }
}

/// Says in the log and in the report that nothing was measured, and why.
fn not_measured(plan: &Plan, path: Path, error: String) -> report::Fallback {
    tracing::warn!("what {path} costs the kernel's own traffic was not measured: {error}");
    report::Fallback {
        path: path.name().to_owned(),
        loss_max: plan.fallback_loss_max,
        not_measured: Some(error),
        ..report::Fallback::default()
    }
}

#[cfg(test)]
mod tests {
    use twinpath_time::Duration;
    use twinpath_worker::idle::IdleConfig;

    use twinpath_attach::path::facts::{InterfaceFacts, Support, XdpFeatures};
    use twinpath_attach::path::privileges::Capabilities;

    use super::*;
    use crate::plan::ServicePlan;

    fn plan(path: PathAsked) -> Plan {
        Plan {
            services: vec![ServicePlan {
                name: "echo".to_owned(),
                rpcbind: Vec::new(),
                exports: Vec::new(),
                udp: Some(7),
                tcp: None,
                fast_tcp: false,
                ethertype: None,
                addresses: Vec::new(),
                flows: Vec::new(),
                sources: Vec::new(),
                tcp_limits: Default::default(),
                reply_rate: 0,
                any_source_port: false,
                pool: Default::default(),
                reflex: None,
                no_reflex: String::new(),
            }],
            interface: "eth0".to_owned(),
            path,
            attach: Default::default(),
            reflex: Default::default(),
            reflex_rate: 0,
            kept_replies: 0,
            measure_fallback: true,
            fallback_loss_max: 0.1,
            workers: 1,
            cpus: Vec::new(),
            idle: IdleConfig::default(),
            machine: Default::default(),
            drain: Duration::ZERO,
            peers_max: 1,
            ring_frames: 64,
            fail_open: Duration::ZERO,
            take_over: None,
            stand_by: None,
            take_over_patience: Duration::ZERO,
            sandbox: twinpath_config::Sandbox::Off,
            socket: None,
            metrics: None,
            settings: Vec::new(),
        }
    }

    /// A network card with native XDP, on a kernel that has everything.
    fn nic() -> InterfaceFacts {
        InterfaceFacts {
            name: "eth0".to_owned(),
            ifindex: 2,
            kind: "ice".to_owned(),
            software: false,
            loopback: false,
            ethernet: true,
            mtu: 1500,
            port_of: None,
            rx_queues: 8,
            tx_queues: 8,
            xdp_features: Some(XdpFeatures {
                basic: true,
                redirect: true,
                transmit: true,
                zero_copy: false,
                multi_buffer: false,
                zero_copy_segments: 0,
            }),
            vlan_rx_offload: Some(false),
            foreign_xdp: None,
            crossed: false,
            has_addresses: true,
            af_xdp: Support::Yes,
            tc: Ok(TcAttach::Tcx),
            capabilities: Capabilities::ALL,
            program: "twinpath".to_owned(),
        }
    }

    /// A report of a path that costs this share.
    fn found(path: Path, lost: f64) -> report::Fallback {
        let beyond = (lost > 0.1).then(|| format!("{:.1} % lost", lost * 100.0));
        report::Fallback {
            path: path.name().to_owned(),
            loss_max: 0.1,
            beyond,
            ..report::Fallback::default()
        }
    }

    #[test]
    fn auto_goes_on_from_a_path_that_costs_the_kernel_too_much_and_says_so_with_figures() {
        let settle = |native: f64, packet: f64| {
            Fallback::settle_with(&plan(PathAsked::Auto), &nic(), |path| {
                Ok(found(path, if path == Path::Packet { packet } else { native }))
            })
            .unwrap()
        };
        let (choice, fallback) = settle(0.05, 0.9);
        assert_eq!((choice.path, fallback.reports.len()), (Path::XdpNative, 1));
        let (choice, fallback) = settle(0.2, 0.05);
        assert_eq!((choice.path, fallback.reports.len()), (Path::Packet, 2));
        let not = choice.why_not.iter().find(|not| not.path == Path::XdpNative).unwrap();
        assert_eq!(not.reason, "20.0 % lost");
        assert_eq!(fallback.reports[0].beyond.as_ref(), Some(&not.reason));
        // Only the kernel path is left, and both paths have a reason.
        let (choice, _) = settle(0.2, 0.2);
        let named: Vec<Path> = choice.why_not.iter().map(|not| not.path).collect();
        assert_ne!(choice.path, Path::XdpNative);
        assert!(named.contains(&Path::XdpNative) && named.contains(&Path::Packet), "{choice:?}");
    }

    #[test]
    fn what_was_asked_for_stays_and_what_cannot_be_measured_rules_out_nothing() {
        let (choice, fallback) =
            Fallback::settle_with(&plan(PathAsked::Packet), &nic(), |path| Ok(found(path, 0.5))).unwrap();
        assert_eq!(choice.path, Path::Packet);
        assert!(fallback.reports[0].beyond.is_some() && fallback.ruled_out.is_empty());
        let (choice, fallback) =
            Fallback::settle_with(&plan(PathAsked::Auto), &nic(), |_| Err("no namespace".to_owned()))
                .unwrap();
        assert_eq!(choice.path, Path::XdpNative);
        assert_eq!(fallback.reports[0].not_measured.as_deref(), Some("no namespace"));
        for (asked, path) in [(PathAsked::Auto, Path::XdpNative), (PathAsked::Kernel, Path::Kernel)] {
            let (choice, fallback) = Fallback::settle(&plan(asked), &nic(), &[], None).unwrap();
            assert_eq!(choice.path, path);
            assert!(fallback.reports[0].not_measured.as_ref().is_some_and(|why| why.contains("feature")));
        }
        let unasked = Plan { measure_fallback: false, ..plan(PathAsked::Auto) };
        let (_, fallback) = Fallback::settle_with(&unasked, &nic(), |_| panic!("not asked for")).unwrap();
        assert!(fallback.reports.is_empty());
    }
}
