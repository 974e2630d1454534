//! The control loop: what changes while an instance serves, what is asked of it, and its end.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use twinpath_attach::{Attachment, kernel_ring_bytes, learn_facts, tidy};
use twinpath_command::{self as command, Request, Server, Topic};
use twinpath_config::{Path, mark_set};
use twinpath_host::{
    ASKED_MAX, RETRY_INTERVAL, Ready, Signalled, Signals, Watchdog, any_readable, flush, hand_over, notify,
    report_process, watched,
};
use twinpath_machine::Answer;
use twinpath_metrics as metrics;
use twinpath_mirror::Event;
use twinpath_mirror::table::Link;
use twinpath_path::choose::choose_without;
use twinpath_path::{Announced, facts};
use twinpath_report::{self as report, Report};
use twinpath_serve::ServeCommand;
use twinpath_time::Duration;
use twinpath_worker::Command;
use twinpath_worker::idle::Mode;

use super::drain::{self, Drain};
use super::foreign;
use super::hold::hold_frames;
use super::reload;
use super::stand_by::StandingBy;
use super::stand_in::{self, StandIn};
use super::workers::WorkerHandle;
use super::{Asked, Instance, InstanceError, ServicePlan};

/// How often to look whether the workers are at rest: what waking up costs is measured again then, in its time.
const REST_INTERVAL: Duration = Duration::from_secs(60);

/// What woke the loop.
enum Woken {
    Mirror(Event),
    Announced(Announced),
    Worker,
    Stuck,
    Asked(Asked),
    Look,
    Watchdog,
    Rest,
    Retry,
    Signal(Signalled),
    Leaving,
    Drain(drain::Next),
}

impl Instance {
    /// Answers at the command socket, says that all is ready, and serves until a signal ends it.
    pub(super) async fn listen_and_serve(
        &mut self,
        signals: &mut Signals,
        server: &Server,
        ready: impl FnOnce(&Ready),
    ) -> Result<(), InstanceError> {
        let (ask, asked) = mpsc::channel::<Asked>(ASKED_MAX);
        let ask_loop = |request| {
            let ask = ask.clone();
            async move { hand_over(&ask, "the instance", |answer| Asked::Request(request, answer)).await }
        };
        let scrape = || {
            let ask = ask.clone();
            async move {
                let (answer, wait) = oneshot::channel();
                ask.send(Asked::Scrape(answer)).await.ok()?;
                wait.await.ok().map(metrics::encode)
            }
        };
        // If the loop is so far behind, the client finds its connection closed.
        let aside = |request, stream| {
            drop(match request {
                Request::Capture(wish) => ask.try_send(Asked::Capture(wish, stream)),
                Request::Drain(how) => ask.try_send(Asked::Drain(how, stream)),
                Request::StandBy => ask.try_send(Asked::StandBy(stream)),
                _ => ask.try_send(Asked::Sockets(stream)),
            });
        };
        ready(&Ready {
            socket: server.path().to_owned(),
            metrics: self.offered.borrow().as_ref().map(|server| server.address()),
            report: self.report(),
        });
        notify::ready();
        let scraped = metrics::serve_where_offered(self.offered.subscribe(), scrape);
        tokio::select! {
            outcome = self.serve(asked, &ask, signals) => outcome,
            never = server.serve_aside(ask_loop, Some(aside)) => match never {},
            never = scraped => match never {},
        }
    }

    /// Keeps everything true until a signal ends it.
    pub(super) async fn serve(
        &mut self,
        mut asked: mpsc::Receiver<Asked>,
        ask: &mpsc::Sender<Asked>,
        signals: &mut Signals,
    ) -> Result<(), InstanceError> {
        let watched = watched(self.workers.iter().map(|worker| &**worker)).map_err(InstanceError::Control)?;
        self.watch_first(ask);
        self.watch_sockets(ask);
        let mut watchdog = Watchdog::of_the_service_manager();
        let mut rest = tokio::time::interval(REST_INTERVAL);
        loop {
            let (due, cut) = (self.drain_due(), self.reloads.cut_due());
            let flushed = self.flush_outboxes();
            let woken = tokio::select! {
                event = self.mirror.next() => Woken::Mirror(event?),
                announced = self.announcements.next() => Woken::Announced(announced),
                () = any_readable(&watched) => Woken::Worker,
                () = stand_in::look_due(self.interface.stuck_said.as_ref(), self.stand_in.as_ref()) => Woken::Stuck,
                Some(asked) = asked.recv() => Woken::Asked(asked),
                () = foreign::look_due(&self.interface) => Woken::Look,
                _ = rest.tick() => Woken::Rest,
                () = watchdog.is_due() => Woken::Watchdog,
                signalled = signals.next() => Woken::Signal(signalled),
                () = reload::cut_is_due(cut) => Woken::Leaving,
                next = drain::next(due) => Woken::Drain(next),
                () = tokio::time::sleep(RETRY_INTERVAL), if !flushed => Woken::Retry,
            };
            if !self.follow(woken, ask, &mut watchdog).await {
                break;
            }
            if self.drain.as_ref().is_some_and(Drain::is_done) && !self.reloads.has_leaving() {
                break;
            }
            if let Some(error) = self.cannot_stand_by() {
                return Err(error);
            }
            self.answer_taker();
            self.attach_when_drained().await;
            self.look_at_device().await;
            self.look_at_queues().await;
        }
        self.tell_the_end();
        Ok(())
    }

    /// Does what follows from what woke the loop. Says whether it goes on.
    async fn follow(&mut self, woken: Woken, ask: &mpsc::Sender<Asked>, watchdog: &mut Watchdog) -> bool {
        match woken {
            Woken::Mirror(event) => self.kernel_says(event),
            Woken::Announced(Announced::Policies) => self.look_at_bypassed(),
            Woken::Announced(Announced::Device) => self.interface.queues_due = true,
            // Only while a worker's mailbox is full: what waits is said at the top of the loop.
            Woken::Retry => {}
            Woken::Worker => self.read_workers(),
            Woken::Stuck => self.look_at_stuck(),
            Woken::Asked(asked) => self.asked(asked, ask).await,
            Woken::Rest => self.measure_if_due(ask),
            Woken::Watchdog => self.feed(watchdog),
            Woken::Look => self.stay_in_front(),
            // It is told in the log.
            Woken::Signal(Signalled::Reload) => {
                drop(self.reload().await);
                self.watch_sockets(ask);
            }
            Woken::Leaving => self.cut_leaving(),
            Woken::Signal(Signalled::End) => return self.end_by_signal().await,
            Woken::Drain(drain::Next::Tell) => self.tell_followers(),
            Woken::Drain(drain::Next::Late) => return self.drained_late(),
        }
        true
    }

    /// A signal that ends it. Says whether there is something to wait for.
    async fn end_by_signal(&mut self) -> bool {
        notify::stopping();
        // First, so that nobody is sent here any more.
        std::mem::take(&mut self.registered).unset().await;
        self.stop_by_signal()
    }

    /// Does what somebody asks.
    async fn asked(&mut self, asked: Asked, ask: &mpsc::Sender<Asked>) {
        match asked {
            Asked::Request(Request::Measure, answer) => self.measure(Some(answer), ask),
            Asked::Request(Request::Reload, answer) => {
                let changed = self.reload().await;
                self.watch_sockets(ask);
                drop(answer.send(changed.map(|changed| serde_json::json!({ "changed": changed }))));
            }
            // Whoever asked may be gone by now.
            Asked::Request(request, answer) => drop(answer.send(self.answer(&request))),
            Asked::Measured(costs) => self.measured(*costs),
            Asked::Scrape(answer) => {
                self.look_at_foreign_programs();
                let _ = answer.send(self.report_without_neighbours());
            }
            Asked::Capture(wish, stream) => self.capture(wish, stream, ask.clone()),
            Asked::CaptureEnded(id) => self.capture_ended(id),
            Asked::Sockets(stream) => self.give_sockets(stream, ask),
            Asked::StandBy(stream) => self.give_to_stand_by(stream),
            Asked::First(first) => {
                self.first_is(first).await;
                self.watch_sockets(ask);
            }
            Asked::Unserved(found) => self.unserved(found),
            Asked::Taker(number, heard) => self.taker_heard(number, heard),
            Asked::Drain(command::Drain { timeout_ms }, stream) => {
                // First, so that nobody is sent here any more.
                std::mem::take(&mut self.registered).unset().await;
                let timeout = timeout_ms.map(|timeout| Duration::from_millis(timeout.into()));
                self.drain_by_command(timeout, stream);
            }
        }
    }
}

impl Instance {
    /// Tells the service manager that all is well, if it is.
    fn feed(&mut self, watchdog: &mut Watchdog) {
        for late in watchdog.feed(self.workers.iter().map(|worker| &*worker.counters)) {
            self.workers[late].wake();
        }
    }

    /// Measures what waking up costs, on another thread; the control loop goes on.
    fn measure(&mut self, answer: Option<Answer>, ask: &mpsc::Sender<Asked>) {
        let ask = ask.clone();
        // The loop may have ended by then.
        self.machine.measure(answer, move |costs| drop(ask.blocking_send(Asked::Measured(Box::new(costs)))));
    }

    fn measure_if_due(&mut self, ask: &mpsc::Sender<Asked>) {
        let busy_turns = self.workers.iter().map(|worker| worker.counters.turns_busy.get()).sum();
        let at_rest = self
            .workers
            .iter()
            .all(|worker| worker.mode() != Mode::Poll && worker.counters.request_held.get() == 0);
        if self.machine.is_due(busy_turns, at_rest) {
            self.measure(None, ask);
        }
    }

    fn measured(&mut self, costs: twinpath_costs::Costs) {
        if self.machine.learnt(costs) {
            let hold = self.machine.may_hold();
            let machine = self.machine.costs.machine(hold);
            for worker in &mut self.workers {
                worker.tell(Command::SetMachine(machine, hold));
            }
        }
    }

    fn kernel_says(&mut self, event: Event) {
        match event {
            Event::Egress(update) => {
                for worker in &mut self.workers {
                    worker.tell_services(ServeCommand::Egress(update));
                }
            }
            Event::Link(link) if self.interface.ifindex == Some(link.ifindex) => {
                // An offload that was switched comes as such a message, too.
                (self.interface.device_due, self.interface.queues_due) = (true, true);
                self.tell_link(false);
                self.look_at_foreign_programs();
                self.retarget();
                self.look_at_bypassed();
            }
            Event::SourceCheck { ifindex } if ifindex.is_none() || ifindex == self.interface.ifindex => {
                self.look_at_bypassed();
            }
            Event::TrafficControl { ifindex } if self.interface.ifindex == Some(ifindex) => {
                self.stay_in_front();
            }
            Event::Link(link) if self.interface.ifindex.is_none() && link.name == self.interface.name => {
                self.come_back(link.ifindex);
            }
            Event::LinkGone { ifindex, .. } if self.interface.ifindex == Some(ifindex) => {
                self.go_away(ifindex)
            }
            Event::Renamed { ifindex, to, .. } if self.interface.ifindex == Some(ifindex) => {
                tracing::info!("interface {} is now called {to}", self.interface.name);
                self.interface.name = to;
            }
            Event::Addresses { ifindex } if self.interface.ifindex == Some(ifindex) => {
                self.retarget();
                self.tell_addresses();
                self.look_at_bypassed();
            }
            _ => {}
        }
    }

    /// The interface has other addresses, or another link-layer address: the claim follows.
    fn retarget(&mut self) {
        let addresses = self.addresses();
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(mac) = self.mirror.tables().link(ifindex).and_then(|link| link.mac) else { return };
        let Some(attachment) = &mut self.interface.attachment else { return };
        let target = attachment.target();
        if target.mac == mac && target.addresses == addresses {
            return;
        }
        if let Err(error) = attachment.retarget(mac, addresses) {
            tracing::error!("claims on {} stay as they were: {error}", self.interface.name);
        }
    }

    /// The interface was removed or moved to another namespace: its programs went with it. The kernel path goes on.
    fn go_away(&mut self, ifindex: u32) {
        let rest = self.rest();
        tracing::warn!("interface {} is gone; {rest}", self.interface.name);
        self.detach(ifindex);
        self.interface.frame_claims.clear();
        self.interface.ifindex = None;
        self.interface.choice.path = Path::Kernel;
        "the interface is gone".clone_into(&mut self.interface.choice.why);
    }

    /// What is left while there is no fast path.
    fn rest(&self) -> &'static str {
        match self.plan.ethertype() {
            Some(_) => "frames are not served until it is back: the kernel has no socket for them",
            None => "serving goes on through the kernel",
        }
    }

    pub(super) fn detach(&mut self, ifindex: u32) {
        // The programs first: from here on the kernel serves, and no frame goes to a socket that is about to close.
        (self.interface.attachment, self.interface.stuck_said) = (None, None);
        self.mirror.serve_on([]);
        for worker in &mut self.workers {
            worker.detach(ifindex);
        }
    }

    /// Queues that workers have yet to give back.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().map(|worker| worker.leaving()).sum()
    }

    /// Says what waits for room in the mailboxes of workers. Says whether nothing waits any more.
    pub(super) fn flush_outboxes(&mut self) -> bool {
        flush(self.everyone_mut().map(|worker| &mut **worker))
    }

    /// An interface of the same name is there again.
    fn come_back(&mut self, ifindex: u32) {
        self.interface.ifindex = Some(ifindex);
        self.interface.attach_due = true;
        self.tell_addresses();
    }

    /// Tells the workers what has changed of the interface; `anew`: all of it, for queues that were just attached.
    pub(super) fn tell_link(&mut self, anew: bool) {
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(link) = self.mirror.tables().link(ifindex).map(Link::for_ports) else { return };
        if self.interface.link_told.replace(link) == Some(link) && !anew {
            return;
        }
        for worker in &mut self.workers {
            worker.tell(Command::LinkChanged { ifindex, link });
        }
    }

    fn tell_addresses(&mut self) {
        let addresses: Arc<[_]> = self.addresses().into();
        for worker in self.everyone_mut() {
            worker.tell_services(ServeCommand::Addresses(Arc::clone(&addresses)));
        }
    }

    /// Attaches, if that is due, once every former queue has come back and is closed: the kernel gives a queue to one
    /// socket at a time.
    async fn attach_when_drained(&mut self) {
        if !self.interface.attach_due || self.leaving() > 0 || self.stands_aside() {
            return;
        }
        self.interface.attach_due = false;
        let link = self.interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex)).cloned();
        if let Some(link) = link {
            self.attach_again(&link).await;
        }
    }

    async fn attach_again(&mut self, link: &Link) {
        tidy(link);
        self.interface.facts =
            learn_facts(&self.mirror, link, self.plan.ethertype().is_none(), self.plan.attach).await;
        match choose_without(&self.interface.facts, self.plan.path, &self.interface.fallback.ruled_out) {
            // The pools were sized at start, for another path.
            Ok(choice) if choice.path.is_xdp() && !self.pools_for_xdp => {
                self.interface.choice = choice;
                self.interface.choice.path = Path::Packet;
                "the frame memory taken at start suits the packet path only; restart to change that"
                    .clone_into(&mut self.interface.choice.why);
            }
            Ok(choice) => self.interface.choice = choice,
            Err(refusal) => {
                tracing::error!("{refusal}; {}", self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = refusal.to_string();
            }
        }
        if self.interface.choice.path == Path::Kernel || self.is_held_back() {
            return;
        }
        if let Err(held) = self.hold_frames_again(link.ifindex) {
            tracing::error!("{held}");
            self.interface.choice.path = Path::Kernel;
            self.interface.choice.why = held.to_string();
            return;
        }
        match self.attach().await {
            Ok(()) => tracing::info!("interface {} is back on {}", link.name, self.interface.choice.path),
            Err(error) => {
                tracing::error!("cannot attach to {}: {error}; {}", link.name, self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = format!("attaching failed: {error}");
            }
        }
    }

    /// Holds the frames on the interface as it is now: its index may be another one.
    fn hold_frames_again(&mut self, ifindex: u32) -> Result<(), InstanceError> {
        // First let go: nobody can hold them twice.
        self.interface.frame_claims.clear();
        self.interface.frame_claims = hold_frames(&self.plan.services, &self.plan.interface, ifindex)?;
        Ok(())
    }

    /// On the XDP path every queue has a socket: if their number changed, attach anew. Until then the kernel serves a queue without one.
    async fn look_at_queues(&mut self) {
        if !std::mem::take(&mut self.interface.queues_due) {
            return;
        }
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(link) = self.mirror.tables().link(ifindex).cloned() else { return };
        let attachment = self.interface.attachment.as_ref();
        let Some(attachment) = attachment.filter(|attachment| attachment.path().is_xdp()) else { return };
        let Some((rx_queues, _)) = facts::queues(&link.name).await else { return };
        if rx_queues == attachment.queues() {
            return;
        }
        tracing::info!("{} has {rx_queues} receive queues now: attaching anew", link.name);
        self.detach(ifindex);
        self.interface.attach_due = true;
    }

    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        // The kernel does not announce XDP programs that are attached by links.
        self.look_at_foreign_programs();
        match request {
            Request::Show(topic) if topic.has_neighbours() => topic.of(&self.report()),
            Request::Show(Topic::Config) => {
                Topic::Config.of(&Report { config: self.report_config(), ..Report::default() })
            }
            Request::Show(topic) => topic.of(&self.report_without_neighbours()),
            Request::Sockets | Request::StandBy | Request::Drain(_) => {
                Err("it is not answered here".to_owned())
            }
            Request::Measure | Request::Reload => Err("it is answered when it has ended".to_owned()),
            Request::Capture(_) => Err("a capture is not answered in a line".to_owned()),
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                change.meant(&mut self.workers)?.iter_mut().for_each(|worker| worker.set(mode, goal));
                let modes = self.workers.iter().map(|worker| worker.mode()).enumerate();
                Ok(command::with_notes(change.notes(modes)))
            }
        }
    }

    /// Everything `show` can tell.
    pub(super) fn report(&self) -> Report {
        let (neighbours, config) = (self.mirror.report(), self.report_config());
        Report { neighbours, config, ..self.report_without_neighbours() }
    }

    /// The configuration keys, with what `twinpath set` has changed since.
    fn report_config(&self) -> Vec<report::Setting> {
        let mut settings = self.plan.settings.clone();
        let workers: Vec<_> = self.workers.iter().map(|worker| (worker.mode(), worker.goal())).collect();
        mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
    }

    fn report_without_neighbours(&self) -> Report {
        let path = self.interface.choice.path;
        let attached = self.interface.attachment.as_ref();
        let queues = attached.map_or(0, Attachment::queues);
        let ring_bytes = kernel_ring_bytes(path, self.plan.ring_frames) * u64::from(queues);
        let pool_bytes = self.everyone().map(|worker| worker.pool_bytes()).sum::<u64>() + ring_bytes;
        Report {
            instance: report::Instance {
                service: self.plan.names(),
                ports: self.plan.services.iter().flat_map(ServicePlan::ports).collect(),
                draining: self.report_drain(),
                configuration: self.reloads.report(),
                standing_by: self.standing_by.as_ref().map(StandingBy::report),
                ..report_process(self.started, pool_bytes, &self.confined)
            },
            services: self.report_services(),
            interfaces: vec![self.report_interface()],
            rules: self.report_rules(),
            machine: Some(self.machine.costs.clone()),
            workers: self.workers.iter().map(|worker| worker.report(self.machine.request.clone())).collect(),
            neighbours: Vec::new(),
            drops: self.report_drops(),
            config: Vec::new(),
        }
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let mirror = self.mirror.counters();
        let control = [
            ("netlink_overrun", mirror.overruns),
            ("netlink_undecoded", mirror.undecoded),
            ("neighbours_refused", mirror.neighbours_refused),
            ("peers_refused", mirror.book.peers_refused),
            ("capture_missed", self.captures.missed()),
            ("take_over_failed", self.takers.failed.get()),
        ];
        let scrapers = self.scrapers.iter().flat_map(|scrapers| {
            [("metrics_clients", scrapers.refused_full.get()), ("metrics_cut_off", scrapers.cut_off.get())]
        });
        let of_control =
            control.into_iter().chain(scrapers).filter(|(_, count)| *count > 0).map(|(reason, count)| {
                report::Drop { place: "control".to_owned(), reason: reason.to_owned(), count }
            });
        let queues = self.workers.iter().flat_map(|worker| worker.queues());
        let lost = queues.filter_map(|queue| {
            let count = self.interface.attachment.as_ref()?.lost_frames(queue.id);
            let place = format!("{} queue {}", self.interface.name, queue.id.queue);
            (count > 0).then(|| report::Drop { place, reason: "ring_full".to_owned(), count })
        });
        let of_workers = self.everyone().flat_map(|worker| worker.drops(&self.interface.name));
        of_workers.chain(lost).chain(of_control).collect()
    }

    /// Takes the programs off, then ends the workers.
    pub(super) fn stop(mut self) {
        self.look_at_stuck();
        self.interface.attachment = None;
        self.end_captures();
        self.workers.into_iter().for_each(WorkerHandle::stop);
        if let Some(StandIn { worker, .. }) = self.stand_in {
            worker.stop();
        }
    }
}
