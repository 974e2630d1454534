//! Makes a plan from a configuration.

use std::num::NonZeroU16;

use twinpath_config::{Config, Sandbox, Service, TcpPathAsked, Worker, goal};
use twinpath_host::machine::Wanted;
use twinpath_time::Duration;
use twinpath_worker::idle::IdleConfig;

use crate::plan::{Plan, ServicePlan};

/// The idle mode of workers with this configuration.
#[must_use]
pub fn idle_config(worker: &Worker) -> IdleConfig {
    IdleConfig {
        mode: worker.mode,
        goal: goal(worker.latency, worker.cpu),
        spin: worker.spin_us.map(Duration::from_micros),
        linger: worker.linger_ms.map(Duration::from_millis),
        ..IdleConfig::default()
    }
}

/// The machine settings that workers with this configuration want.
#[must_use]
pub fn wanted(worker: &Worker) -> Wanted {
    Wanted {
        request: worker.latency_request,
        scope: worker.latency_request_scope,
        max_exit_us: worker.latency_request_max_exit_us,
        priority: worker.priority,
        spin_share_max: Some(worker.spin_share_max),
    }
}

impl ServicePlan {
    /// The plan of one service of a configuration.
    #[must_use]
    pub fn of(config: &Config, service: &Service) -> Self {
        Self {
            name: service.shown_name().to_owned(),
            rpcbind: Vec::new(),
            exports: service.exports.iter().map(|export| export.path.clone()).collect(),
            udp: service.udp.map(NonZeroU16::get),
            tcp: service.tcp.map(NonZeroU16::get),
            fast_tcp: service.tcp_path == TcpPathAsked::Fast && service.tcp.is_some(),
            ethertype: service.ethertype,
            addresses: service.addresses.clone(),
            flows: service.flows.iter().map(|flow| flow.0).collect(),
            sources: service.sources.iter().map(|source| source.0).collect(),
            tcp_limits: config.limits_of(service).tcp(),
            reply_rate: config.limits_of(service).reply_rate,
            any_source_port: config.limits_of(service).any_source_port,
            pool: config.pool.limits(),
            reflex: None,
            no_reflex: String::new(),
        }
    }
}

impl Plan {
    /// The plan of a configuration; `None` if it names no interface.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        let interface = config.interface.name.clone()?;
        let worker = &config.worker;
        Some(Self {
            services: config.services.iter().map(|service| ServicePlan::of(config, service)).collect(),
            interface,
            path: config.interface.path,
            attach: config.interface.attach,
            reflex: config.interface.reflex,
            reflex_rate: config.limits.reflex_rate,
            kept_replies: config.limits.kept_replies,
            measure_fallback: config.interface.measure_fallback,
            fallback_loss_max: f64::from(config.interface.fallback_loss_max) / 100.0,
            workers: worker.count,
            cpus: worker.cpus.iter().map(|cpu| *cpu as usize).collect(),
            idle: idle_config(worker),
            machine: wanted(worker),
            drain: Duration::from_millis(u64::from(config.limits.drain_ms)),
            peers_max: config.limits.peers,
            ring_frames: config.interface.ring_frames,
            fail_open: Duration::from_millis(u64::from(worker.fail_open_ms)),
            take_over: None,
            stand_by: None,
            take_over_patience: Duration::from_millis(u64::from(config.limits.take_over_ms)),
            sandbox: config.control.sandbox.unwrap_or(Sandbox::Off),
            socket: config.control.socket.clone(),
            metrics: config.control.metrics.map(|address| address.0),
            settings: Vec::new(),
        })
    }
}
