//! Replies that take several messages, made part by part (section 7.3.5): a long one stalls nothing, and takes no memory
//! beyond its present part.

use twinpath_openflow_wire::{
    Aggregate, BadRequest, Count, ErrorCode, FlowStats, FlowStatsRequest, GroupDesc, GroupStats, MeterConfig,
    MeterModFailed, MeterStats, MultipartReply, MultipartRequest, PortStats, QueueOpFailed,
    TableFeaturesFailed, TableStats, number,
};
use twinpath_time::Instant;

use crate::openflow::datapath::Datapath;
use crate::openflow::describe::{self, SwitchInfo};
use crate::openflow::entry::{Filter, FlowEntry};
use crate::openflow::tables::{Tables, duration};

/// Flows, used or not, that one step looks at.
const FLOWS_EACH: usize = 128;
/// Other entries in one part.
const ENTRIES_EACH: usize = 32;

/// The progress of a reply.
#[derive(Debug)]
pub(crate) enum Walk {
    /// All in one part.
    Once(Box<MultipartReply>),
    Flows {
        request: Box<FlowStatsRequest>,
        next: u32,
    },
    Aggregate {
        request: Box<FlowStatsRequest>,
        next: u32,
        sums: Aggregate,
    },
    Tables {
        next: u8,
    },
    TableFeatures {
        next: u8,
    },
    Ports {
        which: u32,
        next: u32,
        describes: bool,
    },
    Groups {
        which: u32,
        next: u32,
        describes: bool,
    },
    Meters {
        which: u32,
        next: u32,
        describes: bool,
    },
}

/// One step of a reply.
pub(crate) struct Step {
    /// A part; `None`: nothing was found in this step.
    pub(crate) part: Option<MultipartReply>,
    pub(crate) is_done: bool,
}

impl Walk {
    /// The start of a reply.
    ///
    /// # Errors
    /// What was asked of is not there.
    pub(crate) fn start<D: Datapath>(
        request: MultipartRequest,
        tables: &Tables<D>,
        info: &SwitchInfo,
    ) -> Result<Self, ErrorCode> {
        let once = |reply| Self::Once(Box::new(reply));
        Ok(match request {
            MultipartRequest::Desc => once(MultipartReply::Desc(Box::new(info.desc.clone()))),
            MultipartRequest::Flow(request) => Self::Flows { request: Box::new(request), next: 0 },
            MultipartRequest::Aggregate(request) => {
                Self::Aggregate { request: Box::new(request), next: 0, sums: Aggregate::default() }
            }
            MultipartRequest::Table => Self::Tables { next: 0 },
            MultipartRequest::PortStats(which) => {
                if which != number::port::ANY && !tables.ports.contains_key(&which) {
                    return Err(BadRequest::BadPort.into());
                }
                Self::Ports { which, next: 0, describes: false }
            }
            MultipartRequest::PortDesc => Self::Ports { which: number::port::ANY, next: 0, describes: true },
            // There are no queues (section 7.3.5.8).
            MultipartRequest::Queue { port, queue_id } => {
                if port != number::port::ANY && !tables.ports.contains_key(&port) {
                    return Err(QueueOpFailed::BadPort.into());
                }
                if queue_id != number::QUEUE_ALL {
                    return Err(QueueOpFailed::BadQueue.into());
                }
                once(MultipartReply::Queue(Vec::new()))
            }
            // For a group that is not there, the list is empty (section 7.3.5.9).
            MultipartRequest::Group(which) => Self::Groups { which, next: 0, describes: false },
            MultipartRequest::GroupDesc => {
                Self::Groups { which: number::group::ALL, next: 0, describes: true }
            }
            MultipartRequest::GroupFeatures => {
                once(MultipartReply::GroupFeatures(describe::group_features(info.flows_max)))
            }
            MultipartRequest::Meter(which) | MultipartRequest::MeterConfig(which)
                if which != number::meter::ALL && !tables.meters.contains_key(&which) =>
            {
                return Err(MeterModFailed::UnknownMeter.into());
            }
            MultipartRequest::Meter(which) => Self::Meters { which, next: 0, describes: false },
            MultipartRequest::MeterConfig(which) => Self::Meters { which, next: 0, describes: true },
            MultipartRequest::MeterFeatures => {
                once(MultipartReply::MeterFeatures(describe::meter_features(info.flows_max)))
            }
            // What tables do cannot be changed.
            MultipartRequest::TableFeatures(wanted) if !wanted.is_empty() => {
                return Err(TableFeaturesFailed::Eperm.into());
            }
            MultipartRequest::TableFeatures(_) => Self::TableFeatures { next: 0 },
            MultipartRequest::Experimenter(_) => return Err(BadRequest::BadExperimenter.into()),
        })
    }

    /// The next part.
    pub(crate) fn step<D: Datapath>(&mut self, now: Instant, tables: &Tables<D>, info: &SwitchInfo) -> Step {
        match self {
            Self::Once(reply) => {
                let empty = MultipartReply::Queue(Vec::new());
                Step { part: Some(std::mem::replace(&mut **reply, empty)), is_done: true }
            }
            Self::Flows { request, next } => flows(now, tables, request, next),
            Self::Aggregate { request, next, sums } => aggregate(tables, request, next, sums),
            Self::Tables { next } => {
                let stats = |table_id| {
                    let count = tables.datapath.table_count(table_id);
                    TableStats {
                        table_id,
                        active: tables.flows.table_len(table_id) as u32,
                        lookups: count.lookups,
                        matched: count.matched,
                    }
                };
                // Short, so all tables together: some controllers read one part.
                let (part, is_done) = numbered(next, number::table::ALL.into(), stats);
                Step { part: Some(MultipartReply::Table(part)), is_done }
            }
            Self::TableFeatures { next } => {
                let features = |table_id| describe::table_features(table_id, info.flows_max);
                let (part, is_done) = numbered(next, ENTRIES_EACH, features);
                Step { part: Some(MultipartReply::TableFeatures(part)), is_done }
            }
            Self::Ports { which, next, describes } => ports(now, tables, *which, next, *describes),
            Self::Groups { which, next, describes } => groups(now, tables, *which, next, *describes),
            Self::Meters { which, next, describes } => meters(now, tables, *which, next, *describes),
        }
    }
}

fn is_asked<I>(request: &FlowStatsRequest, entry: &FlowEntry<I>) -> bool {
    (request.table_id == number::table::ALL || request.table_id == entry.table_id)
        && Filter::of(request).takes(entry)
        && request.matches.includes(&entry.matches)
}

fn flows<D: Datapath>(now: Instant, tables: &Tables<D>, request: &FlowStatsRequest, next: &mut u32) -> Step {
    let Some((end, entries)) = tables.flows.walk(*next, FLOWS_EACH) else {
        return Step { part: Some(MultipartReply::Flow(Vec::new())), is_done: true };
    };
    *next = end;
    let stats = |entry: &FlowEntry<D::FlowId>| {
        let Count { packets, bytes } = tables.datapath.flow_count(entry.id).count;
        let (duration_s, duration_ns) = duration(entry.created, now);
        FlowStats {
            table_id: entry.table_id,
            duration_s,
            duration_ns,
            priority: entry.priority,
            idle_timeout_s: entry.idle_timeout_s,
            hard_timeout_s: entry.hard_timeout_s,
            flags: entry.flags,
            cookie: entry.cookie,
            packets,
            bytes,
            matches: entry.matches.clone(),
            instructions: entry.instructions.clone(),
        }
    };
    let found: Vec<_> = entries.filter(|entry| is_asked(request, entry)).map(stats).collect();
    let is_done = tables.flows.walk(*next, 1).is_none();
    Step { part: (is_done || !found.is_empty()).then_some(MultipartReply::Flow(found)), is_done }
}

fn aggregate<D: Datapath>(
    tables: &Tables<D>,
    request: &FlowStatsRequest,
    next: &mut u32,
    sums: &mut Aggregate,
) -> Step {
    let Some((end, entries)) = tables.flows.walk(*next, FLOWS_EACH) else {
        return Step { part: Some(MultipartReply::Aggregate(*sums)), is_done: true };
    };
    *next = end;
    for entry in entries.filter(|entry| is_asked(request, entry)) {
        let count = tables.datapath.flow_count(entry.id).count;
        sums.packets = sums.packets.wrapping_add(count.packets);
        sums.bytes = sums.bytes.wrapping_add(count.bytes);
        sums.flows += 1;
    }
    Step { part: None, is_done: false }
}

/// Entries of up to `count` tables from `next` on, and whether these were the last.
fn numbered<T>(next: &mut u8, count: usize, entry: impl Fn(u8) -> T) -> (Vec<T>, bool) {
    let tables: Vec<u8> = (*next..=number::table::MAX).take(count).collect();
    let last = tables.last().copied().unwrap_or(number::table::MAX);
    *next = last.saturating_add(1);
    (tables.into_iter().map(entry).collect(), last == number::table::MAX)
}

/// Up to [`ENTRIES_EACH`] entries of a map from `next` on, all or one of them, and whether these were the last.
fn some_of<T, U>(
    map: &std::collections::BTreeMap<u32, T>,
    which: Option<u32>,
    next: &mut u32,
    entry: impl Fn(u32, &T) -> U,
) -> (Vec<U>, bool) {
    if let Some(which) = which {
        return (map.get(&which).map(|value| entry(which, value)).into_iter().collect(), true);
    }
    let mut found = Vec::new();
    for (number, value) in map.range(*next..).take(ENTRIES_EACH) {
        found.push(entry(*number, value));
        match number.checked_add(1) {
            Some(behind) => *next = behind,
            None => return (found, true),
        }
    }
    let is_done = map.range(*next..).next().is_none();
    (found, is_done)
}

fn ports<D: Datapath>(now: Instant, tables: &Tables<D>, which: u32, next: &mut u32, describes: bool) -> Step {
    let one = (which != number::port::ANY).then_some(which);
    if describes {
        let (part, is_done) = some_of(&tables.ports, one, next, |_, entry| entry.port.clone());
        return Step { part: Some(MultipartReply::PortDesc(part)), is_done };
    }
    let (part, is_done) = some_of(&tables.ports, one, next, |port_no, entry| {
        let (duration_s, duration_ns) = duration(entry.since, now);
        PortStats { port_no, duration_s, duration_ns, ..tables.datapath.port_count(port_no) }
    });
    Step { part: Some(MultipartReply::PortStats(part)), is_done }
}

fn groups<D: Datapath>(
    now: Instant,
    tables: &Tables<D>,
    which: u32,
    next: &mut u32,
    describes: bool,
) -> Step {
    let one = (which != number::group::ALL).then_some(which);
    let map = &tables.groups.entries;
    if describes {
        let (part, is_done) = some_of(map, one, next, |group_id, entry| GroupDesc {
            group_type: entry.group_type,
            group_id,
            buckets: entry.buckets.clone(),
        });
        return Step { part: Some(MultipartReply::GroupDesc(part)), is_done };
    }
    let (part, is_done) = some_of(map, one, next, |group_id, entry| {
        let (duration_s, duration_ns) = duration(entry.created, now);
        let count = tables.datapath.group_count(group_id);
        GroupStats {
            group_id,
            ref_count: tables.groups.ref_count(group_id),
            count: count.whole,
            duration_s,
            duration_ns,
            buckets: count.parts,
        }
    });
    Step { part: Some(MultipartReply::Group(part)), is_done }
}

fn meters<D: Datapath>(
    now: Instant,
    tables: &Tables<D>,
    which: u32,
    next: &mut u32,
    describes: bool,
) -> Step {
    let one = (which != number::meter::ALL).then_some(which);
    if describes {
        let (part, is_done) = some_of(&tables.meters, one, next, |meter_id, entry| MeterConfig {
            flags: entry.flags,
            meter_id,
            bands: entry.bands.clone(),
        });
        return Step { part: Some(MultipartReply::MeterConfig(part)), is_done };
    }
    let (part, is_done) = some_of(&tables.meters, one, next, |meter_id, entry| {
        let (duration_s, duration_ns) = duration(entry.created, now);
        let count = tables.datapath.meter_count(meter_id);
        MeterStats {
            meter_id,
            flows: entry.flows,
            count: count.whole,
            duration_s,
            duration_ns,
            bands: count.parts,
        }
    });
    Step { part: Some(MultipartReply::Meter(part)), is_done }
}
