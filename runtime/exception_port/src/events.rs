//! The control loop of an exception port: changes of either side, requests, and the end.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use twinpath_bridge::Side;
use twinpath_command::{Request, Server};
use twinpath_host::{
    ASKED_MAX, RETRY_INTERVAL, Ready, Signalled, Signals, Watchdog, any_readable, flush, hand_over, notify,
    report_process, watched,
};
use twinpath_machine::Answer;
use twinpath_metrics as metrics;
use twinpath_mirror::Event;
use twinpath_mirror::table::Link;
use twinpath_path::device;
use twinpath_report::{self as report, Report};
use twinpath_steer_bpf::Crossed;
use twinpath_sys::packet_socket;
use twinpath_worker::Event as WorkerEvent;

use super::links::state;
use super::sides::Action;
use super::start::{hold_port, kernel_addresses};
use super::workers::WorkerHandle;
use super::{Bridge, BridgeError, Carrier, PATH, Place};

/// The reason that a bridge refuses a reload.
const NO_RELOAD: &str = "there is no file to read again: a bridge is told everything on its command line; restart it with what is to change";

/// A request to the control loop, and where its answer goes.
enum Message {
    /// From the command socket.
    Request(Request, Answer),
    /// From a scraper of metrics.
    Scrape(oneshot::Sender<Report>),
}

/// The event that woke the loop.
enum Woken {
    Mirror(Event),
    Worker,
    Stuck,
    Watchdog,
    Message(Message),
    Retry,
    Signal(Signalled),
}

impl Bridge {
    /// Reports that all is ready, and carries frames until a signal ends it.
    pub(super) async fn listen_and_serve(
        &mut self,
        signals: &mut Signals,
        server: &Server,
        scrapes: Option<metrics::Server>,
        ready: impl FnOnce(&Ready),
    ) -> Result<(), BridgeError> {
        let (ask, asked) = mpsc::channel::<Message>(ASKED_MAX);
        let ask_loop = |request| {
            let ask = ask.clone();
            async move { hand_over(&ask, "the exception port", |answer| Message::Request(request, answer)).await }
        };
        let scrape = || {
            let ask = ask.clone();
            async move {
                let (answer, wait) = oneshot::channel();
                ask.send(Message::Scrape(answer)).await.ok()?;
                wait.await.ok().map(metrics::encode)
            }
        };
        let scraped = async {
            match &scrapes {
                Some(scrapes) => scrapes.serve(&scrape).await,
                None => std::future::pending().await,
            }
        };
        let offered = scrapes.as_ref().map(metrics::Server::address);
        ready(&Ready { socket: server.path().to_owned(), metrics: offered, report: self.report() });
        notify::ready();
        tokio::select! {
            outcome = self.serve(asked, signals) => outcome,
            never = server.serve(ask_loop) => match never {},
            never = scraped => match never {},
        }
    }

    async fn serve(
        &mut self,
        mut asked: mpsc::Receiver<Message>,
        signals: &mut Signals,
    ) -> Result<(), BridgeError> {
        let watched =
            watched(self.workers.iter().map(|worker| &worker.host)).map_err(BridgeError::Control)?;
        let mut watchdog = Watchdog::of_the_service_manager();
        loop {
            let flushed = flush(self.workers.iter_mut().map(|worker| &mut worker.host));
            let woken = tokio::select! {
                event = self.mirror.next() => Woken::Mirror(event?),
                () = any_readable(&watched) => Woken::Worker,
                () = self.stuck.is_due() => Woken::Stuck,
                () = watchdog.is_due() => Woken::Watchdog,
                Some(asked) = asked.recv() => Woken::Message(asked),
                signalled = signals.next() => Woken::Signal(signalled),
                () = tokio::time::sleep(RETRY_INTERVAL), if !flushed => Woken::Retry,
            };
            match woken {
                Woken::Mirror(event) => self.kernel_says(event).await,
                // This happens only while a worker's mailbox is full: the waiting messages are sent at the top of the
                // loop.
                Woken::Retry => {}
                Woken::Worker => self.read_workers().await,
                Woken::Stuck => self.look_at_stuck(),
                Woken::Watchdog => self.feed(&mut watchdog),
                // The client may have gone.
                Woken::Message(Message::Request(request, answer)) => drop(answer.send(self.answer(&request))),
                Woken::Message(Message::Scrape(answer)) => drop(answer.send(self.report())),
                Woken::Signal(Signalled::Reload) => {
                    notify::reloading();
                    tracing::error!("not reloaded: {NO_RELOAD}");
                    notify::ready();
                }
                Woken::Signal(Signalled::End) => {
                    notify::stopping();
                    return Ok(());
                }
            }
        }
    }

    /// Notifies the service manager's watchdog if the instance works.
    fn feed(&mut self, watchdog: &mut Watchdog) {
        let counters: Vec<_> = self.workers.iter().map(|worker| Arc::clone(&worker.host.counters)).collect();
        for late in watchdog.feed(counters.iter().map(|counters| &**counters)) {
            self.workers[late].host.wake();
        }
    }

    /// Closes the descriptors that workers give back. A queue of the kernel's interface that comes back unasked means
    /// that the interface is gone.
    async fn read_workers(&mut self) {
        let mut gone = false;
        for worker in &mut self.workers {
            worker.host.events.drain();
            while let Some(event) = worker.host.events.take() {
                if let WorkerEvent::Detached(queue) = event {
                    gone |= Side::of(queue.id()) == Side::Kernel;
                    worker.host.close(queue);
                }
            }
        }
        if gone && self.kernel.place != Place::Nowhere && !self.kernel.handle.exists() {
            self.kernel_removed().await;
        }
    }

    async fn kernel_says(&mut self, event: Event) {
        match event {
            Event::Link(link) if self.port.ifindex == Some(link.ifindex) => self.settle().await,
            Event::Link(link) if self.is_kernel(link.ifindex) => self.settle().await,
            Event::Link(link) if self.port.ifindex.is_none() && link.name == self.port.name => {
                self.port_is_back(&link).await;
            }
            Event::Link(link) if self.kernel.place == Place::Elsewhere => {
                self.kernel_may_be_back(&link).await
            }
            Event::Renamed { ifindex, to, .. } if self.port.ifindex == Some(ifindex) => {
                tracing::info!("{} is now called {to}", self.port.name);
                self.port.name = to;
            }
            Event::Renamed { ifindex, to, .. } if self.is_kernel(ifindex) => {
                tracing::info!("{} is now called {to}", self.kernel.name);
                self.kernel.name = to;
            }
            Event::LinkGone { ifindex, .. } if self.port.ifindex == Some(ifindex) => {
                self.port_is_gone(ifindex).await
            }
            Event::LinkGone { ifindex, .. } if self.is_kernel(ifindex) => {
                if self.kernel.handle.exists() {
                    self.kernel_moved().await;
                } else {
                    self.kernel_removed().await;
                }
            }
            // The name that an interface could not get may be free now.
            Event::LinkGone { .. } | Event::Renamed { .. } if self.kernel.place == Place::Nowhere => {
                self.make_kernel().await;
            }
            Event::Addresses { ifindex } if self.port.ifindex == Some(ifindex) => {
                self.warn_of_addresses(ifindex)
            }
            _ => {}
        }
    }

    fn is_kernel(&self, ifindex: u32) -> bool {
        self.kernel.place == Place::Home && self.kernel.ifindex == ifindex
    }

    fn warn_of_addresses(&self, ifindex: u32) {
        for (address, prefix) in kernel_addresses(self.mirror.tables(), ifindex) {
            let (port, kernel) = (&self.port.name, &self.kernel.name);
            tracing::warn!("{address}/{prefix} on {port} is out of reach there: move it to {kernel}");
        }
    }

    async fn port_is_gone(&mut self, ifindex: u32) {
        tracing::warn!("{} is gone: {} has no carrier until it is back", self.port.name, self.kernel.name);
        if let Err(error) = self.exclusive.release() {
            tracing::error!("{error}");
        }
        self.port.ifindex = None;
        (self.port.carrier, self.port.fails_open) = (Carrier::Workers, false);
        self.port.sockets.clear();
        for worker in &mut self.workers {
            worker.host.detach(ifindex);
        }
        self.settle().await;
    }

    async fn port_is_back(&mut self, link: &Link) {
        let held = hold_port(&mut self.exclusive, link, self.plan.queues);
        match held.and_then(|()| self.attach_port(link)) {
            Ok(()) => tracing::info!("{} is back", link.name),
            Err(error) => {
                // The kernel's stack gets the device, rather than no one.
                let _ = self.exclusive.release();
                tracing::error!("{} is back, but not in use: {error}", link.name);
            }
        }
        self.settle().await;
    }

    /// The kernel's interface continues to work in another namespace: the queues are descriptors.
    async fn kernel_moved(&mut self) {
        tracing::warn!(
            "{} was moved to another network namespace: frames go on; what is changed there (MTU, address, up or down) is \
             no longer mirrored to {}, whose carrier still is",
            self.kernel.name,
            self.port.name
        );
        self.kernel.place = Place::Elsewhere;
        self.settle().await;
    }

    /// A link that appeared, or changed, may be the kernel's interface that was moved back.
    async fn kernel_may_be_back(&mut self, link: &Link) {
        let ours =
            self.kernel.handle.name().is_ok_and(|name| name == link.name) && self.kernel.handle.is_here();
        if ours {
            tracing::info!("{} is back in this network namespace", link.name);
            self.kernel.name.clone_from(&link.name);
            (self.kernel.ifindex, self.kernel.place) = (link.ifindex, Place::Home);
            self.settle().await;
        }
    }

    async fn kernel_removed(&mut self) {
        for worker in &mut self.workers {
            worker.host.detach(self.kernel.ifindex);
        }
        self.kernel.place = Place::Nowhere;
        self.choose_carrier();
        tracing::warn!("{} was removed by somebody else: making it again", self.kernel.name);
        self.make_kernel().await;
    }

    async fn make_kernel(&mut self) {
        match self.make_kernel_again() {
            Ok(()) => {
                let name = &self.kernel.name;
                tracing::warn!(
                    "{name} is there again, without addresses: the former ones went with it; add them anew"
                );
                self.settle().await;
            }
            Err(error) => tracing::error!("cannot make {} again: {error}", self.kernel.name),
        }
    }

    /// Reads both links and applies the changes that follow, until there are none.
    pub(super) async fn settle(&mut self) {
        // Each round either is the last one or follows a change made during the one before.
        for _ in 0..8 {
            self.seen = [self.link(Side::Port).await, self.link(Side::Kernel).await];
            let [port, kernel] =
                [Side::Port, Side::Kernel].map(|side| self.seen[side as usize].as_ref().and_then(state));
            let actions = self.sides.step(port, kernel);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action).await;
            }
        }
        self.choose_carrier();
        for side in [Side::Port, Side::Kernel] {
            self.devices[side as usize] = match &self.seen[side as usize] {
                Some(link) => report::Device { carrier: link.running, ..device::look(&link.name).await },
                None => report::Device::default(),
            };
        }
    }

    /// Lets frames cross within the kernel if that is wanted and possible, always or while a worker is stuck. The same
    /// words decide which frames a worker's socket takes, so no frame crosses twice.
    fn choose_carrier(&mut self) {
        if self.exclusive.ifindex().is_none() {
            return;
        }
        let (kernel, is_home) = (self.kernel.ifindex, self.kernel.place == Place::Home);
        let crossing = match self.plan.carrier {
            Carrier::Kernel if is_home => self.exclusive.cross_to(kernel).map(|()| (Carrier::Kernel, true)),
            Carrier::Workers if is_home && !self.plan.fail_open.is_zero() => {
                self.exclusive.cross_when_stuck(kernel).map(|()| (Carrier::Workers, true))
            }
            _ => self.exclusive.cross_no_more().map(|()| (Carrier::Workers, false)),
        };
        let (carrier, fails_open) = crossing.unwrap_or_else(|error| {
            // An event reports that an interface has just gone, and it is handled then.
            tracing::warn!("frames cannot cross within the kernel: {error}; workers carry them");
            if let Err(error) = self.exclusive.cross_no_more() {
                tracing::error!("{error}");
            }
            (Carrier::Workers, false)
        });
        let former = (self.port.carrier, self.port.fails_open);
        (self.port.carrier, self.port.fails_open) = (carrier, fails_open);
        if former.0 != carrier {
            tracing::debug!("{} carries frames of {}", carrier, self.port.name);
        }
        // If the kernel never could, `show` and the first log lines say so.
        if former.1 && !fails_open {
            let (port, why) = (&self.port.name, self.why_not_open());
            tracing::warn!("workers carry frames of {port}, and nobody does while one is stuck: {why}");
        }
    }

    async fn link(&self, side: Side) -> Option<Link> {
        match side {
            Side::Port => self.links.get(self.port.ifindex?).await,
            Side::Kernel if self.kernel.place == Place::Home => self.links.get(self.kernel.ifindex).await,
            Side::Kernel => None,
        }
    }

    async fn act(&mut self, action: Action) {
        let mut next = Some(action);
        while let Some(action) = next.take() {
            let outcome = match action {
                Action::Mtu(side, mtu) => self.links.set_mtu(self.ifindex(side), mtu).await,
                Action::Address(side, mac) => self.links.set_mac(self.ifindex(side), mac).await,
                Action::Up(side, up) => self.links.set_up(self.ifindex(side), up).await,
                Action::Carrier(carrier) => {
                    // This fails only for an interface that is gone, which an event reports.
                    let _ = self.kernel.handle.set_carrier(carrier);
                    Ok(())
                }
            };
            let Err(error) = outcome else { continue };
            let side = match action {
                Action::Mtu(side, _) | Action::Address(side, _) | Action::Up(side, _) => side,
                Action::Carrier(_) => Side::Kernel,
            };
            let now = self.link(side).await;
            // A link that is gone takes no change, and an event reports that.
            if now.is_some() {
                tracing::warn!("{} refuses {}: {error}", self.name_of(side), in_words(action));
            }
            next = self.sides.refused(action, now.as_ref().and_then(state));
        }
    }

    fn ifindex(&self, side: Side) -> u32 {
        match side {
            Side::Port => self.port.ifindex.unwrap_or(0),
            Side::Kernel => self.kernel.ifindex,
        }
    }

    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        match request {
            Request::Show(topic) => topic.of(&self.report()),
            Request::Sockets | Request::StandBy | Request::Drain(_) => {
                Err("a bridge has no connections of its own: end it with a signal".to_owned())
            }
            Request::Reload => Err(NO_RELOAD.to_owned()),
            Request::Measure => Err("a bridge measures what waking up costs at its start only".to_owned()),
            Request::Capture(_) => {
                Err("a bridge has no captures: tcpdump on the device sees all it carries".to_owned())
            }
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                change.meant(&mut self.workers)?.iter_mut().for_each(|worker| worker.host.set(mode, goal));
                Ok(serde_json::json!({}))
            }
        }
    }

    /// The whole report.
    fn report(&mut self) -> Report {
        // Reading a socket's lost frames resets them there.
        for (socket, lost) in &mut self.port.sockets {
            *lost += u64::from(packet_socket::lost_frames(socket).unwrap_or(0));
        }
        let pool_bytes = self.workers.iter().map(|worker| worker.host.pool_bytes()).sum::<u64>();
        Report {
            instance: report::Instance {
                service: "bridge".to_owned(),
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

    /// The configuration keys, with what `twinpath set` has changed since.
    fn report_config(&self) -> Vec<report::Setting> {
        let mut settings = self.plan.settings.clone();
        let workers: Vec<_> =
            self.workers.iter().map(|worker| (worker.host.mode(), worker.host.goal())).collect();
        twinpath_config::mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
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
            // Frames received on the device are sent to the stack here.
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
                    Place::Home => "",
                    Place::Elsewhere => "; in another network namespace, where changes are not mirrored",
                    Place::Nowhere => {
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
        let elsewhere = side == Side::Kernel && self.kernel.place == Place::Elsewhere;
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
                .filter_map(|(number, worker)| worker.report_queue(side, lost(number)))
                .collect(),
            crossed: self.report_crossed(side),
            device: self.devices[side as usize].clone(),
            ..report::Interface::default()
        }
    }

    fn report_counts(&self) -> Vec<report::Count> {
        let count = |name: &str, counter| {
            let count = self.workers.iter().map(|worker| worker.of_queues(counter)).sum();
            report::Count { name: name.to_owned(), count }
        };
        vec![
            count("checksums_completed", |queue| &queue.checksums_completed),
            count("super_frames_segmented", |queue| &queue.super_frames_segmented),
        ]
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let name_of = |side| self.name_of(side).to_owned();
        let of_workers = self.workers.iter().flat_map(|worker| worker.drops(name_of));
        let lost = self.port.sockets.iter().enumerate().filter(|(_, (_, lost))| *lost > 0).map(
            |(queue, (_, lost))| report::Drop {
                place: format!("{} queue {queue}", self.port.name),
                reason: "ring_full".to_owned(),
                count: *lost,
            },
        );
        let overruns = self.mirror.counters().overruns;
        let overruns = (overruns > 0).then(|| report::Drop {
            place: "control".to_owned(),
            reason: "netlink_overrun".to_owned(),
            count: overruns,
        });
        of_workers.chain(lost).chain(overruns).collect()
    }

    /// Ends the workers and returns the device to the kernel.
    pub(super) fn stop(mut self) {
        self.look_at_stuck();
        self.workers.into_iter().for_each(WorkerHandle::stop);
        drop((self.port, self.exclusive));
    }
}

fn in_words(action: Action) -> String {
    match action {
        Action::Mtu(_, mtu) => format!("an MTU of {mtu}"),
        Action::Address(_, mac) => format!("the address {mac}"),
        Action::Up(_, up) => format!("to be set {}", if up { "up" } else { "down" }),
        Action::Carrier(_) => "a change of carrier".to_owned(),
    }
}
