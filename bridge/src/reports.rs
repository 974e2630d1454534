//! The report of an exception port.

use twinpath_attach::mirror::table::Link;
use twinpath_bpf::Crossed;
use twinpath_host::report_process;
use twinpath_inspect::ControlReason;
use twinpath_observe::report::{self as report, Report};
use twinpath_sys::packet_socket;

use super::workers;
use super::{Bridge, Carrier, Location, PATH};
use crate::engine::Side;

impl Bridge {
    /// The configuration keys, including changes by `twinpath set`.
    fn report_config(&self) -> Vec<twinpath_config::Setting> {
        let mut settings = self.plan.settings.clone();
        let workers: Vec<_> = self.workers.iter().map(|worker| (worker.mode(), worker.goal())).collect();
        twinpath_config::mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
    }

    /// The whole report.
    pub(super) fn report_all(&mut self) -> Report {
        // Reading a socket's count of lost frames resets it.
        for (socket, lost) in &mut self.port.sockets {
            *lost += u64::from(packet_socket::lost_frames(socket).unwrap_or(0));
        }
        let pool_bytes = self.workers.iter().map(|worker| worker.pool_bytes()).sum::<u64>();
        Report {
            instance: report::Instance {
                kind: report::InstanceKind::Bridge,
                ..report_process(self.started, pool_bytes, &self.confined)
            },
            interfaces: vec![self.report_interface(Side::Port), self.report_interface(Side::Kernel)],
            machine: Some(self.machine.costs.clone()),
            workers: self.workers.iter().map(|worker| worker.report(self.machine.request.clone())).collect(),
            rules: report::Rules {
                claims: vec![format!("everything that arrives on {}", self.port.name)],
                verdicts: self.report_counts(),
            },
            drops: self.report_drops(),
            config: self.report_config(),
            ..Report::default()
        }
    }

    /// The frames that have crossed within the kernel since the start, as seen from the device.
    fn crossed(&self) -> Crossed {
        self.exclusive.crossed().unwrap_or_default()
    }

    fn report_crossed(&self, side: Side) -> Option<report::Crossed> {
        if self.plan.carrier != Carrier::Kernel && self.plan.fail_open.is_zero() {
            return None;
        }
        let Crossed { frames_in, bytes_in, frames_out, bytes_out, .. } = self.crossed();
        Some(match side {
            Side::Port => report::Crossed { frames_in, frames_out, bytes_in, bytes_out },
            // A frame that was received on the other interface was sent on this one.
            Side::Kernel => report::Crossed {
                frames_in: frames_out,
                frames_out: frames_in,
                bytes_in: bytes_out,
                bytes_out: bytes_in,
            },
        })
    }

    fn report_interface(&self, side: Side) -> report::Interface {
        let link = self.seen[side as usize].as_ref();
        let (ifindex, kind, why) = match side {
            Side::Port => {
                let by = match self.port.carrier {
                    Carrier::Kernel => "frames cross within the kernel",
                    Carrier::Workers => "workers carry frames",
                };
                let (kernel, open) = (&self.kernel.name, self.fail_open_sentence());
                let why = format!("withheld from the kernel's stack, which lives on {kernel}; {by}{open}");
                (self.port.ifindex.unwrap_or(0), self.port.kind.clone(), why)
            }
            Side::Kernel => {
                let offloads = self.kernel.offloads.names();
                let place = match self.kernel.place {
                    Location::Home => "",
                    Location::Elsewhere => "; in another network namespace, where changes are not mirrored",
                    Location::Nowhere => {
                        "; removed, and not to be made again while another interface has its name"
                    }
                };
                let why =
                    format!("the kernel's own stack, for {}; left to us: {offloads}{place}", self.port.name);
                (self.kernel.ifindex, "tun".to_owned(), why)
            }
        };
        let lost = |queue: usize| match side {
            Side::Port => self.port.sockets.get(queue).map_or(0, |(_, lost)| *lost),
            Side::Kernel => 0,
        };
        let elsewhere = side == Side::Kernel && self.kernel.place == Location::Elsewhere;
        let gone = if elsewhere { "elsewhere" } else { "gone" };
        report::Interface {
            name: self.name_of(side).to_owned(),
            ifindex,
            kind,
            path: PATH.to_owned(),
            link: link.map_or(gone, Link::state).to_owned(),
            mtu: link.map_or(0, |link| link.mtu),
            why,
            queues: self
                .workers
                .iter()
                .enumerate()
                .filter_map(|(number, worker)| workers::report_queue(worker, side, lost(number)))
                .collect(),
            crossed: self.report_crossed(side),
            device: self.devices[side as usize].clone(),
            ..report::Interface::default()
        }
    }

    fn report_counts(&self) -> Vec<report::Count> {
        let count = |name: &str, counter| {
            let count = self.workers.iter().map(|worker| workers::of_queues(worker, counter)).sum();
            report::Count { name: name.to_owned(), count }
        };
        vec![
            count("checksums_completed", |queue| &queue.checksums_completed),
            count("super_frames_segmented", |queue| &queue.super_frames_segmented),
        ]
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let name_of = |side| self.name_of(side).to_owned();
        let of_workers = self.workers.iter().flat_map(|worker| workers::drops(worker, name_of));
        let lost = self.port.sockets.iter().enumerate().filter(|(_, (_, lost))| *lost > 0).map(
            |(queue, (_, lost))| report::Drop {
                place: format!("{} queue {queue}", self.port.name),
                reason: ControlReason::RingFull.name().to_owned(),
                count: *lost,
            },
        );
        let overruns = self.mirror.counters().overruns;
        let overruns = (overruns > 0).then(|| report::Drop {
            place: "control".to_owned(),
            reason: ControlReason::NetlinkOverrun.name().to_owned(),
            count: overruns,
        });
        of_workers.chain(lost).chain(overruns).collect()
    }
}
