//! What control does for OpenFlow in its loop: controllers' turn, versions of the tables for workers, frames between both.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{
    Forwarding, LENT_MAX, PacketInBuffer, PacketOut, SAMPLES_MAX, Sample, SwitchCommand, SwitchEngine,
};
use twinpath_config::Endpoint;
use twinpath_forwarding::openflow::Request;
use twinpath_forwarding::openflow::pipeline::Snapshot;
use twinpath_host::WorkerHandle;
use twinpath_openflow_wire::port_config;
use twinpath_sys::clock;
use twinpath_worker::Command;

use crate::controllers::News;
use crate::openflow_control::OpenFlow;
use crate::openflow_control::datapath::Tables;
use crate::openflow_control::packets::{self, FRAME_MAX};

/// Maximum number of controllers' requests that are done in one turn.
const REQUESTS_EACH: usize = 64;

/// The workers of a switch, in the order of their numbers.
pub type Workers = [WorkerHandle<SwitchEngine>];

impl OpenFlow {
    /// Tells new workers what they need, and lends them memory for packet-ins.
    pub fn equip(&self, workers: &mut Workers) {
        for worker in workers {
            worker.tell(Command::Engine(SwitchCommand::PacketInRate(self.packet_in_rate)));
            for _ in 0..LENT_MAX {
                let buffer = Box::new(PacketInBuffer::new(FRAME_MAX));
                worker.tell(Command::Engine(SwitchCommand::Lend(buffer)));
            }
        }
    }

    /// Lends workers memory for samples, by which the kernel gets flows.
    pub(crate) fn lend_samples(&self, workers: &mut Workers) {
        for worker in workers {
            for _ in 0..SAMPLES_MAX {
                worker.tell(Command::Engine(SwitchCommand::LendSample(Box::default())));
            }
        }
    }

    /// A worker has forwarded a frame. Its memory goes back to it.
    pub fn sampled(&mut self, worker: &mut WorkerHandle<SwitchEngine>, mut sample: Box<Sample>) {
        let Tables { kernel, pipeline, .. } = self.tables();
        sample.was_useless = !kernel.sampled(clock::now(), pipeline, &sample);
        worker.tell(Command::Engine(SwitchCommand::LendSample(sample)));
    }

    /// The kernel forwards flows only while frames go by flows, and nothing has to see all of them.
    pub(crate) fn suspend_kernel(&mut self) {
        let is_suspended = self.is_captured || self.fail.forwarding() == Forwarding::Learning;
        self.tables().kernel.suspend(is_suspended);
    }

    /// Adds to flows and ports what the kernel has counted for them.
    pub fn record(&mut self) {
        let Tables { kernel, pipeline, .. } = self.tables();
        kernel.record(clock::now(), pipeline);
    }

    /// Takes what controllers have sent, does it, and answers. What one of them can have done in a turn is bounded, so that
    /// everything else gets its turn, too.
    pub fn turn(&mut self, workers: &mut Workers) {
        let now = clock::now();
        self.record();
        let Tables { kernel, pipeline, .. } = self.tables();
        kernel.expire_kept(now, pipeline);
        self.controllers.turn(now);
        self.controllers.take_news().iter().for_each(log);
        for late in self.versions.take_late(now) {
            tracing::error!(
                "worker {late} does not turn: changes of the tables go on without it; what it finds waiting when it goes on \
                 is dropped until it has taken them (worker_stuck)"
            );
        }
        // What a late worker has is not waited for.
        self.count_done();
        self.enforce();
        self.follow_controllers(workers);
        self.finish(workers);
    }

    /// Has workers forward as the fail mode says.
    pub(crate) fn follow_controllers(&mut self, workers: &mut Workers) {
        let has_controller = self.controllers.has_controller();
        let Some(forwarding) = self.fail.follow(clock::now(), has_controller) else { return };
        match forwarding {
            Forwarding::Tables => tracing::info!("frames go by the controllers' flows again"),
            Forwarding::Learning => tracing::warn!(
                "no controller is connected: frames go by learned addresses until one is (fail_mode = \"standalone\")"
            ),
        }
        self.suspend_kernel();
        for worker in workers {
            worker.tell(Command::Engine(SwitchCommand::Forward(forwarding)));
        }
    }

    /// Called after other events: tells workers what has changed in the tables, and gives them what controllers have sent.
    pub fn finish(&mut self, workers: &mut Workers) {
        self.publish(workers);
        self.send_packet_outs(workers);
    }

    /// Tells workers what has changed in the tables, unless they have yet to take what they were told before, or more
    /// changes are just coming.
    fn publish(&mut self, workers: &mut Workers) {
        let has_changed = self.tables().pipeline.barrier() > self.versions.told();
        if !has_changed || !self.versions.is_settled() {
            return;
        }
        if self.controllers.is_busy() && self.versions.collects(clock::now()) {
            return;
        }
        let Some(snapshot) = self.tables().pipeline.publish() else { return };
        for worker in self.versions.tell(snapshot.number(), clock::now()) {
            workers[worker].tell(Command::Engine(SwitchCommand::Tables(Arc::clone(&snapshot))));
        }
        self.last = Some(snapshot);
        self.enforce();
    }

    /// Once all workers but late ones have the last version, the late ones may no longer judge by an older one. Then it is
    /// in force, and barriers that wait for it are answered.
    fn enforce(&mut self) {
        let told = self.versions.told();
        if self.versions.late().next().is_some() && self.versions.is_settled() {
            self.tables().pipeline.require(told);
            self.controllers.switch().advance(clock::now());
        }
    }

    /// A worker judges by that version of the tables. Once all do, what waits for that goes on, in the same turn.
    pub fn adopted(&mut self, worker: usize, version: u64, former: Arc<Snapshot>, workers: &mut Workers) {
        // What only it had is freed here.
        drop(former);
        let taken = self.versions.oldest();
        let adopted = self.versions.adopted(worker, version);
        if adopted.was_late {
            tracing::info!("worker {worker} turns again, and takes the changes of the tables");
        }
        if let (true, Some(last)) = (adopted.is_behind, &self.last) {
            self.versions.sent(worker, clock::now());
            workers[worker].tell(Command::Engine(SwitchCommand::Tables(Arc::clone(last))));
        }
        let oldest = self.versions.oldest();
        if oldest > taken {
            let Tables { kernel, pipeline, .. } = self.tables();
            kernel.settle(pipeline);
            pipeline.taken(oldest);
            // Numbers of flows that are gone may be used again from now on, so it takes note of these first.
            self.controllers.switch().advance(clock::now());
        }
        if self.versions.is_settled() {
            self.turn(workers);
        }
    }

    /// Gives a worker the frames that controllers want sent, as many as it may have. The rest waits in the state of the
    /// switch, and controllers are not read meanwhile. One worker sends all of them, by any port, so that they stay in
    /// order. The next worker takes over only while this one does not take changes of the tables.
    ///
    /// What was changed in the tables before a frame was sent is told to the worker before the frame.
    fn send_packet_outs(&mut self, workers: &mut Workers) {
        let told = self.versions.told();
        if self.tables().pipeline.barrier() > told {
            return;
        }
        // A late worker would judge by what it has. If all are late, the frames wait until one is back.
        let in_time = workers.iter_mut().enumerate().find(|(number, _)| !self.versions.is_late(*number));
        let Some((number, worker)) = in_time else { return };
        let room = self.packets.room(number).min(REQUESTS_EACH);
        for request in self.controllers.switch().take_requests(room) {
            match request {
                Request::PacketOut { in_port, actions, frame } => {
                    self.packets.goes(number);
                    let packet = Box::new(PacketOut::new(in_port, actions, frame));
                    worker.tell(Command::Engine(SwitchCommand::PacketOut(packet)));
                }
                // The tables have it already, and workers learn it with them.
                Request::PortConfig { port_no, config } => {
                    tracing::info!("a controller has set the configuration of port {port_no} to {config:#x}");
                    self.configured.insert(port_no, config & port_config::PORT_DOWN != 0);
                }
            }
        }
        self.count_done();
    }

    /// The ports that controllers have configured since the last call, with whether they are to be down. Their interfaces are not
    /// changed here.
    pub fn take_configured(&mut self) -> BTreeMap<u32, bool> {
        std::mem::take(&mut self.configured)
    }

    /// Tells what barriers wait for: the frames that controllers have sent before.
    fn count_done(&mut self) {
        let under_way = self.packets.under_way(|worker| self.versions.is_late(worker));
        self.controllers.switch().done_but(under_way);
    }

    /// A packet-out was done or refused.
    pub fn packet_out_is_back(&mut self, worker: usize, packet: &PacketOut) {
        self.packets.is_back(worker, packet.refused);
        self.count_done();
    }

    /// A worker has a frame for controllers. Its memory goes back to it.
    pub fn packet_in(&mut self, worker: &mut WorkerHandle<SwitchEngine>, mut buffer: Box<PacketInBuffer>) {
        if let Some(punt) = packets::punt(&buffer) {
            self.packets.received += 1;
            self.controllers.switch().packet_in(clock::now(), &punt);
        }
        buffer.about = None;
        worker.tell(Command::Engine(SwitchCommand::Lend(buffer)));
    }
}

/// Says what became of a connection. Tools come and go all the time where the switch listens.
fn log(news: &News) {
    let named = |endpoint: &Endpoint, peer: &str| {
        if peer.is_empty() { endpoint.to_string() } else { format!("{endpoint} ({peer})") }
    };
    match news {
        News::Connected { endpoint, is_outgoing: true, peer } => {
            tracing::info!("controller {} is connected", named(endpoint, peer));
        }
        News::Connected { endpoint, is_outgoing: false, peer } => {
            tracing::debug!("{peer} is connected at {endpoint}");
        }
        News::Lost { endpoint, is_outgoing: true, peer, had_greeted, why } => {
            let lost = if *had_greeted { "is lost" } else { "did not greet" };
            tracing::warn!("controller {} {lost}: {why}", named(endpoint, peer));
        }
        News::Lost { endpoint, is_outgoing: false, peer, why, .. } => {
            tracing::debug!("the connection of {peer} at {endpoint} has ended: {why}");
        }
        News::Unreachable { endpoint, why } => {
            tracing::warn!("controller {endpoint} cannot be reached: {why}; it is tried again until it can");
        }
    }
}
