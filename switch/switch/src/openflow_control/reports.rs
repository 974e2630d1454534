//! What `show` tells of OpenFlow.

use crate::engine::Forwarding;
use twinpath_forwarding::openflow::pipeline::{PartsCount, WhyNot};
use twinpath_forwarding::openflow::{FlowView, GroupView, MeterView};
use twinpath_inspect::ControlReason;
use twinpath_observe::report;
use twinpath_openflow_wire::{Action, Count, Instruction, Role, meter_flags, number};
use twinpath_sys::clock;

use crate::controllers::Stage;
use crate::offload::Hooks;
use crate::openflow_control::OpenFlow;

/// Maximum number of flows, groups or meters that are listed: some 10 MiB of an answer.
const LISTED_MAX: usize = 20_000;

/// Instructions in words.
fn in_words(instructions: &[Instruction]) -> String {
    let texts: Vec<_> =
        instructions.iter().map(ToString::to_string).filter(|text| !text.is_empty()).collect();
    if texts.is_empty() { "drop".to_owned() } else { texts.join(",") }
}

fn flow(view: &FlowView<'_>, place: Result<Hooks, Option<WhyNot>>) -> report::Flow {
    report::Flow {
        place: if place.is_ok() { "kernel" } else { "worker" }.to_owned(),
        hook: place.ok().map(|hooks| hooks.name().to_owned()),
        why_not: place.err().flatten().map(|why_not| why_not.name().to_owned()),
        table: view.table_id,
        priority: view.priority,
        matches: view.matches.to_string(),
        instructions: in_words(view.instructions),
        cookie: view.cookie,
        packets: view.count.count.packets,
        bytes: view.count.count.bytes,
        age_s: view.age.as_secs(),
        idle_timeout_s: view.idle_timeout_s,
        hard_timeout_s: view.hard_timeout_s,
    }
}

fn part(count: &PartsCount, at: usize) -> Count {
    count.parts.get(at).copied().unwrap_or_default()
}

fn group(view: &GroupView<'_>) -> report::Group {
    let bucket = |(at, bucket): (usize, &twinpath_openflow_wire::Bucket)| report::Bucket {
        actions: match &*bucket.actions {
            [] => "drop".to_owned(),
            actions => actions.iter().map(Action::to_string).collect::<Vec<_>>().join(","),
        },
        weight: bucket.weight,
        watch_port: Some(bucket.watch_port).filter(|port| *port != number::port::ANY),
        watch_group: Some(bucket.watch_group).filter(|group| *group != number::group::ANY),
        packets: part(&view.count, at).packets,
        bytes: part(&view.count, at).bytes,
    };
    report::Group {
        group: view.group_id,
        kind: view.group_type.name().to_owned(),
        flows: view.flows,
        packets: view.count.whole.packets,
        bytes: view.count.whole.bytes,
        buckets: view.buckets.iter().enumerate().map(bucket).collect(),
    }
}

fn meter(view: &MeterView<'_>) -> report::Meter {
    let band = |(at, band): (usize, &twinpath_openflow_wire::Band)| report::Band {
        band: band.to_string(),
        packets: part(&view.count, at).packets,
        bytes: part(&view.count, at).bytes,
    };
    let in_packets = view.flags & meter_flags::PKTPS != 0;
    report::Meter {
        meter: view.meter_id,
        unit: if in_packets { "packets/s" } else { "kbit/s" }.to_owned(),
        flows: view.flows,
        packets: view.count.whole.packets,
        bytes: view.count.whole.bytes,
        bands: view.bands.iter().enumerate().map(band).collect(),
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Slave => "slave",
        Role::Equal | Role::NoChange => "equal",
    }
}

impl OpenFlow {
    /// The flows, by table and priority.
    #[must_use]
    pub fn flows(&self) -> Vec<report::Flow> {
        let mut flows: Vec<_> = self.controllers.switch_ref().flows(clock::now()).collect();
        flows.sort_by_key(|(_, flow)| (flow.table_id, std::cmp::Reverse(flow.priority)));
        let kernel = &self.controllers.switch_ref().datapath_ref().kernel;
        flows.iter().take(LISTED_MAX).map(|(id, view)| flow(view, kernel.place(*id))).collect()
    }

    /// The controllers, and where some may come.
    #[must_use]
    pub fn controllers(&self) -> Vec<report::Controller> {
        let states = self.controllers.states(clock::now()).into_iter();
        states
            .map(|state| {
                let (stage, of, seconds) = match state.stage {
                    Stage::Listening => ("listening", None, None),
                    Stage::Waiting(left) => ("waiting", None, Some(left.as_secs())),
                    Stage::Connecting => ("connecting", None, None),
                    Stage::Connected { role, since } => ("connected", Some(role), Some(since.as_secs())),
                };
                report::Controller {
                    address: state.endpoint.to_string(),
                    peer: state.peer,
                    state: stage.to_owned(),
                    role: of.map(|of| role(of).to_owned()),
                    came: state.came,
                    seconds,
                    last_error: state.last_error,
                }
            })
            .collect()
    }

    /// What `show ports` and the metrics tell of it.
    #[must_use]
    pub fn summary(&self) -> report::OpenFlow {
        let switch = self.controllers.switch_ref();
        let (sizes, now) = (switch.sizes(), clock::now());
        let states = self.controllers.states(now);
        let is_connected = |stage| matches!(stage, Stage::Connected { .. });
        let tables = switch.tables().map(|table| report::FlowTable {
            table: table.table_id,
            flows: table.flows as u64,
            lookups: table.count.lookups,
            matched: table.count.matched,
        });
        report::OpenFlow {
            datapath_id: format!("{:016x}", self.datapath_id),
            fail_mode: self.fail.mode().name().to_owned(),
            forwarding: match self.fail.forwarding() {
                Forwarding::Tables => "flows",
                Forwarding::Learning => "addresses",
            }
            .to_owned(),
            connected: states.iter().filter(|state| is_connected(state.stage)).count() as u64,
            flows: sizes.flows as u64,
            flows_max: self.flows_max.into(),
            kept: self.kept() as u64,
            groups: sizes.groups as u64,
            meters: sizes.meters as u64,
            tables: tables.collect(),
            version: self.versions.told(),
            waiting_for: self.versions.late().map(|worker| worker as u32).collect(),
            packet_ins: self.packets.received,
            packet_outs: self.packets.sent,
        }
    }

    /// The groups, by number.
    #[must_use]
    pub fn groups(&self) -> Vec<report::Group> {
        self.controllers.switch_ref().groups().take(LISTED_MAX).map(|view| group(&view)).collect()
    }

    /// The meters, by number.
    #[must_use]
    pub fn meters(&self) -> Vec<report::Meter> {
        self.controllers.switch_ref().meters().take(LISTED_MAX).map(|view| meter(&view)).collect()
    }

    /// What was not sent to controllers, by reason, and the packet-outs that were not done.
    #[must_use]
    pub fn drops(&self) -> [(&'static str, Vec<(&'static str, u64)>); 2] {
        let dropped = self.controllers.switch_ref().dropped();
        let own = [
            (ControlReason::PacketInBudget, dropped.packet_in_rate),
            (ControlReason::PacketInUnread, dropped.packet_in_unread),
            (ControlReason::NewsUnread, dropped.news_unread),
            (ControlReason::ControllersRefused, self.controllers.refused()),
            (ControlReason::BrokenTls, self.controllers.broke_tls()),
        ];
        let own = own.into_iter().map(|(reason, count)| (reason.name(), count)).collect();
        [("controllers", own), ("packet-out", self.packets.refused().collect())]
    }
}
