//! The metric families of declared counters. This file only says where a report contains these counters.

use std::sync::LazyLock;

use twinpath_inspect::{Counts, Declared, Reading};

use super::rows::{by, of, on, times};
use super::{Family, Row, Value};
use crate::report::{
    ClaimCounts, FastTcpCounts, FlowTable, GuardCounts, IdleCounts, KeptReplies, OpenFlow, PortCounts,
    Procedure, ProcedureCounts, Program, RdsPath, RdsSocket, Report, RequestCounts, ServeCounts, ServiceKept,
    SessionCounts, Switch, SwitchCounts, SwitchPort, TcpCounts, Worker, WorkerCounts,
};

/// Counts, each with the values of its labels.
type Labelled<'a, T> = Vec<(Vec<String>, &'a T)>;

/// The place of the counts `T` in a report.
pub(super) struct Place<T: 'static> {
    /// The labels of their metrics.
    pub(super) labels: &'static [&'static str],
    /// The counts, each with the values of the labels.
    pub(super) each: fn(&Report) -> Labelled<'_, T>,
}

pub(super) const QUEUES: Place<PortCounts> = Place {
    labels: &["interface", "queue", "worker"],
    each: |report| {
        let queues = report.interfaces.iter().flat_map(|it| it.queues.iter().map(move |queue| (it, queue)));
        let labels = |queue: &crate::report::Queue| [queue.queue.to_string(), queue.worker.to_string()];
        queues.map(|(it, queue)| ([on(it), labels(queue).to_vec()].concat(), &queue.counts)).collect()
    },
};

pub(super) const CLAIMS: Place<ClaimCounts> = Place {
    labels: &["service", "claim"],
    each: |report| {
        let services = report.services.iter();
        let claims = services.flat_map(|service| service.claims.iter().map(move |claim| (service, claim)));
        claims
            .map(|(service, claim)| (vec![service.name.clone(), claim.claim.clone()], &claim.counts))
            .collect()
    },
};

pub(super) const SERVING: Place<ServeCounts> = Place {
    labels: &["service"],
    each: |report| report.services.iter().map(|service| (of(service), &service.serve)).collect(),
};

pub(super) const KEPT: Place<ServiceKept> = Place {
    labels: &["service"],
    each: |report| {
        let kept = report.services.iter().filter_map(|service| Some((of(service), service.kept.as_ref()?)));
        kept.collect()
    },
};

pub(super) const KEPT_ON_INTERFACE: Place<KeptReplies> = Place {
    labels: &["interface"],
    each: |report| {
        let kept =
            report.interfaces.iter().filter_map(|it| Some((on(it), it.reflexes.as_ref()?.kept.as_ref()?)));
        kept.collect()
    },
};

pub(super) const REQUESTS: Place<RequestCounts> = Place {
    labels: &["service"],
    each: |report| {
        let services = report.services.iter();
        services.filter_map(|service| Some((of(service), service.requests.as_ref()?))).collect()
    },
};

pub(super) const PROCEDURES: Place<ProcedureCounts> = Place {
    labels: &["service", "program", "procedure"],
    each: |report| {
        let labels = |it: &Procedure| vec![it.service.clone(), it.program.clone(), it.procedure.clone()];
        report.rpc.iter().map(|procedure| (labels(procedure), &procedure.counts)).collect()
    },
};

pub(super) const CONNECTIONS: Place<TcpCounts> = Place {
    labels: &["service"],
    each: |report| report.services.iter().map(|service| (of(service), &service.tcp)).collect(),
};

pub(super) const FAST_CONNECTIONS: Place<FastTcpCounts> = Place {
    labels: &["service"],
    each: |report| report.services.iter().map(|service| (of(service), &service.fast_tcp)).collect(),
};

pub(super) const SESSIONS: Place<SessionCounts> = Place {
    labels: &["service"],
    each: |report| report.services.iter().map(|service| (of(service), &service.sessions)).collect(),
};

pub(super) const WORKERS: Place<WorkerCounts> = Place {
    labels: &["worker"],
    each: |report| report.workers.iter().map(|worker| (by(worker), &worker.counts)).collect(),
};

pub(super) const WORKERS_IDLE: Place<IdleCounts> = Place {
    labels: &["worker"],
    each: |report| report.workers.iter().map(|worker| (by(worker), &worker.idle.counts)).collect(),
};

pub(super) const WORKERS_GUARDED: Place<GuardCounts> = Place {
    labels: &["worker"],
    each: |report| {
        static NONE: LazyLock<GuardCounts> = LazyLock::new(GuardCounts::default);
        let workers = report.workers.iter();
        workers
            .map(|worker| (by(worker), worker.guard.as_ref().map_or(&*NONE, |guard| &guard.counts)))
            .collect()
    },
};

pub(super) const WORKERS_WHOLE: Place<Worker> = Place {
    labels: &["worker"],
    each: |report| report.workers.iter().map(|worker| (by(worker), worker)).collect(),
};

pub(super) const PORTS: Place<SwitchPort> = Place {
    labels: &["port"],
    each: |report| report.ports.iter().map(|port| (vec![port.name.clone()], port)).collect(),
};

pub(super) const SWITCH: Place<Switch> =
    Place { labels: &[], each: |report| report.switch.iter().map(|switch| (vec![], switch)).collect() };

pub(super) const SWITCHING: Place<SwitchCounts> = Place {
    labels: &[],
    each: |report| report.switch.iter().map(|switch| (vec![], &switch.counts)).collect(),
};

pub(super) const OPENFLOW: Place<OpenFlow> = Place {
    labels: &[],
    each: |report| {
        let openflow = report.switch.iter().filter_map(|switch| switch.openflow.as_ref());
        openflow.map(|openflow| (vec![], openflow)).collect()
    },
};

pub(super) const TABLES: Place<FlowTable> = Place {
    labels: &["table"],
    each: |report| {
        let openflow = report.switch.iter().filter_map(|switch| switch.openflow.as_ref());
        let tables = openflow.flat_map(|openflow| &openflow.tables);
        tables.map(|table| (vec![table.table.to_string()], table)).collect()
    },
};

pub(super) const PROGRAMS: Place<Program> = Place {
    labels: &["pid", "user", "program"],
    each: |report| {
        let labels =
            |program: &Program| vec![program.pid.to_string(), program.user.to_string(), program.name.clone()];
        report.programs.iter().map(|program| (labels(program), program)).collect()
    },
};

pub(super) const RDS_PATHS: Place<RdsPath> = Place {
    labels: &["peer", "local", "path"],
    each: |report| {
        let labels = |path: &RdsPath| vec![path.peer.clone(), path.local.clone(), path.path.to_string()];
        report.rds.iter().flat_map(|rds| &rds.paths).map(|path| (labels(path), path)).collect()
    },
};

pub(super) const RDS_SOCKETS: Place<RdsSocket> = Place {
    labels: &["socket", "pid"],
    each: |report| {
        let labels = |socket: &RdsSocket| vec![socket.local.clone(), socket.pid.to_string()];
        report.rds.iter().flat_map(|rds| &rds.sockets).map(|socket| (labels(socket), socket)).collect()
    },
};

impl<T: Counts> Place<T> {
    /// The families of the set, in the order of its declarations.
    pub(super) fn families(self) -> Vec<Family> {
        let mut families: Vec<(&'static Declared<T>, Vec<&'static Declared<T>>)> = Vec::new();
        for count in T::DECLARED {
            let Some(metric) = count.metric else { continue };
            let same = |first: &&Declared<T>| first.metric.is_some_and(|it| it.family == metric.family);
            match families.iter_mut().find(|(first, _)| same(first)) {
                Some((_, counts)) => counts.push(count),
                None => families.push((count, vec![count])),
            }
        }
        families.into_iter().filter_map(|(first, counts)| self.family(first, counts)).collect()
    }

    fn family(&self, first: &'static Declared<T>, counts: Vec<&'static Declared<T>>) -> Option<Family> {
        let metric = first.metric?;
        let label = metric.label.map(|(name, _)| name);
        let each = self.each;
        Some(Family {
            name: metric.family,
            kind: metric.kind,
            help: first.about_family(),
            labels: self.labels.iter().copied().chain(label).collect(),
            rows: Box::new(move |report| {
                let rows = each(report).into_iter().flat_map(|(labels, set)| {
                    let row = |count: &&'static Declared<T>| row(count, set, labels.clone());
                    counts.iter().filter_map(row).collect::<Vec<_>>()
                });
                rows.collect()
            }),
        })
    }
}

fn row<T>(count: &'static Declared<T>, set: &T, mut labels: Vec<String>) -> Option<Row> {
    let metric = count.metric?;
    labels.extend(metric.label.map(|(_, value)| value.to_owned()));
    let value = match count.read(set) {
        Reading::Count(count) if metric.is_ns => Value::Number(count as f64 / 1e9),
        Reading::Count(count) => Value::Count(count),
        Reading::Times(read) => times(read),
    };
    Some(Row { labels, value })
}
