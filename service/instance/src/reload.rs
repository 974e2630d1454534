//! Reloads the configuration while serving, and applies all of it or nothing.
//!
//! First the whole file is checked. Then come the steps that can fail, before any step that a peer could
//! notice. New ports are bound. Sockets that both configurations have are held by a duplicate descriptor.
//! The workers get the new services, which do not serve yet. The claims are changed. After that nothing can
//! fail: one message to each worker starts new services, makes removed ones leave as in a drain, and
//! changes limits. Sockets and connections of a service that stays are not touched.
//! `service/lifecycle/src/reload.rs` has the order of the steps, and what a failed one undoes.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_config::{Changes, Config, Fault, Origin};
use twinpath_host::metrics;
use twinpath_host::notify;
use twinpath_lifecycle::{Event, Outcome};
use twinpath_observe::command::Set;
use twinpath_observe::report;
use twinpath_serve::{DemuxCommand, PARTS_MAX, Prepare, Prototype, Routes, Served, ServiceLimits, Switch};
use twinpath_sys::{FrameClaim, clock};
use twinpath_time::Instant;
use twinpath_worker::Command;

use super::addresses::{OwnAddresses, check_addresses, named};
use super::begin::CHANGE_PATIENCE;
use super::lifecycle::limits_of;
use super::{Instance, InstanceError, needs_fast_path};
use crate::hold::{Held, Inherited, hold_all_ports, hold_frames};
use crate::plan::{FormerReflexes, Plan, ServicePlan};
use crate::rpcbind::Registered;
use crate::serving::{NewService, ServiceHandle, limits_for};

/// The answer of an instance that has no file to reload.
const NO_FILE: &str = "there is no file to read again: this instance was told everything on its command line; restart it with what is to \
                       change, or start it with --config FILE";

/// A reloaded configuration that is valid.
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The plan that follows from it.
    pub plan: Plan,
    /// The services, in the order of the plan.
    pub services: Vec<Box<dyn Prototype>>,
    /// Called once the configuration is in force.
    pub applied: Option<Box<dyn FnOnce()>>,
}

/// The file that the configuration came from.
pub struct Source {
    /// The path of the file.
    pub file: PathBuf,
    /// The configuration in force, as read.
    pub config: Config,
    /// Reads the file again; an error has one line per mistake. Called on the control thread.
    pub read: Box<dyn Fn() -> Result<Loaded, String>>,
}

/// The source of the configuration, and the state of reloads.
pub(super) struct Reloads {
    source: Option<Source>,
    /// Whether the service manager is notified: not by an instance that is only a part of a program.
    pub(super) notifies: bool,
    read_at: Instant,
    done: u64,
    refused: u64,
    refusal: Option<String>,
    /// The number of the last change sent to the workers.
    number: u32,
    /// Answers that workers still owe.
    owed: usize,
    /// Workers that have prepared that change, and the errors they reported.
    prepared: usize,
    faults: Vec<String>,
    /// The change that is being made.
    change: Option<Change>,
    /// Why the last step failed.
    error: Option<String>,
    /// How the reload has ended: the changes, one line for each, or the reasons.
    pub(super) outcome: Option<Result<Vec<String>, String>>,
}

/// A change of the configuration that is being made.
struct Change {
    /// Whether anything but the source of a value differs.
    differs: bool,
    changes: Changes,
    config: Config,
    lines: Vec<String>,
    /// The new plan; once it is in force, the former one.
    plan: Rc<Plan>,
    services: Vec<Box<dyn Prototype>>,
    applied: Option<Box<dyn FnOnce()>>,
    former: FormerReflexes,
    /// Whether there was memory for kept replies before.
    had_store: bool,
    staged: Staged,
    handles: Vec<Vec<ServiceHandle>>,
}

impl Reloads {
    /// Whether a change is being made.
    pub(super) const fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    pub(super) fn new(source: Option<Source>) -> Self {
        Self {
            source,
            notifies: false,
            read_at: clock::now(),
            done: 0,
            refused: 0,
            refusal: None,
            number: 0,
            owed: 0,
            prepared: 0,
            faults: Vec::new(),
            change: None,
            error: None,
            outcome: None,
        }
    }

    /// A worker has prepared change `number`.
    pub(super) fn prepared(&mut self, number: u32, worker: usize, outcome: Result<(), Errno>) {
        self.owed -= 1;
        if number == self.number {
            self.prepared += 1;
            let fault = |error| format!("worker {worker} cannot watch what a new service needs: {error}");
            self.faults.extend(outcome.err().map(fault));
        }
    }

    /// A worker has switched to the new services.
    pub(super) const fn switched(&mut self) {
        self.owed -= 1;
    }

    fn note(&mut self, outcome: &Result<Vec<String>, String>) {
        match outcome {
            Ok(_) => {
                (self.read_at, self.refusal) = (clock::now(), None);
                self.done += 1;
            }
            Err(why) => {
                self.refusal = Some(why.clone());
                self.refused += 1;
            }
        }
    }

    /// The state of reloads for `show`.
    pub(super) fn report(&self) -> Option<report::Configuration> {
        let Self { read_at, done, refused, refusal, .. } = self;
        Some(report::Configuration {
            file: self.source.as_ref()?.file.display().to_string(),
            read_s: clock::now().since(*read_at).as_secs_f64(),
            reloads: *done,
            refused: *refused,
            refusal: refusal.clone(),
        })
    }
}

/// Everything made for a change and not used yet. Dropping it undoes it.
#[derive(Default)]
struct Staged {
    /// For each service of the new plan that is new: its part and sockets.
    fresh: Vec<Option<Held>>,
    /// The new services of each worker.
    services: Vec<Vec<NewService>>,
    frame_claims: Vec<FrameClaim>,
    /// The new listener for metrics, or none, if that changes.
    metrics: Option<Option<Rc<metrics::Server>>>,
}

impl Staged {
    fn parts(&self) -> Vec<usize> {
        self.fresh.iter().flatten().map(|held| held.part).collect()
    }
}

impl Instance {
    /// Reloads the configuration and applies it. Returns the changes, one line for each.
    ///
    /// # Errors
    ///
    /// Nothing was changed; there is one line for each reason.
    pub(super) async fn read_again(&mut self) -> Result<Vec<String>, String> {
        notify::if_told(self.reloads.notifies, notify::reloading);
        self.on(Event::ReloadAsked).await;
        let stopping = || Err("the instance is stopping".to_owned());
        let outcome = self.reloads.outcome.take().unwrap_or_else(stopping);
        match &outcome {
            Ok(changed) if changed.is_empty() => {
                tracing::info!("the configuration was read again: nothing differs");
            }
            Ok(changed) => tracing::info!("reloaded: {}", changed.join("; ")),
            Err(why) => tracing::error!("not reloaded, and nothing was changed: {why}"),
        }
        self.reloads.note(&outcome);
        self.registered.look_again();
        notify::if_told(self.reloads.notifies, notify::ready);
        outcome
    }

    /// Notes why a step failed.
    fn step_failed(&mut self, why: impl Into<String>) -> Outcome {
        self.reloads.error = Some(why.into());
        Outcome::Failed
    }

    /// The claims of the new configuration are refused.
    pub(super) fn claims_refused(&mut self, error: impl std::fmt::Display) -> Outcome {
        self.step_failed(format!("the claims of the new configuration are refused: {error}"))
    }

    /// Reads the configuration again, and compares it with the one in force.
    pub(super) fn read_configuration(&mut self) -> Outcome {
        match self.read_change() {
            Ok(change) => {
                let outcome = if change.differs { Outcome::Done } else { Outcome::Nothing };
                self.reloads.change = Some(change);
                outcome
            }
            Err(why) => self.step_failed(why),
        }
    }

    fn read_change(&self) -> Result<Change, String> {
        let source = self.reloads.source.as_ref().ok_or(NO_FILE)?;
        if self.reloads.owed > 0 {
            return Err(
                "a worker has not yet answered the last reload: it is stuck or very busy (twinpath show \
                        workers); try again"
                    .to_owned(),
            );
        }
        let Loaded { config, plan, services, applied } = (source.read)()?;
        let former = &source.config;
        let refused = |faults: Vec<Fault>| {
            let lines: Vec<_> =
                faults.iter().map(|fault| format!("{}: {fault}", source.file.display())).collect();
            lines.join("\n")
        };
        let changes = Changes::between(former, &config).map_err(refused)?;
        let lines = changes.lines(former, &config);
        let (take_over, stand_by) = (self.plan.take_over.clone(), self.plan.stand_by.clone());
        Ok(Change {
            differs: config != *former,
            former: self.plan.former_reflexes(&changes.services),
            had_store: self.reflexes.kept().is_some(),
            changes,
            config,
            lines,
            plan: Rc::new(Plan { take_over, stand_by, ..plan }),
            services,
            applied,
            staged: Staged::default(),
            handles: Vec::new(),
        })
    }

    /// Binds the new ports and makes the new services.
    pub(super) async fn stage(&mut self) -> Outcome {
        let Some(mut change) = self.reloads.change.take() else { return Outcome::Failed };
        let plan = self.reflexes.allow((*change.plan).clone(), &change.services, &change.former);
        let plan = self.with_known_ports(plan, &change.changes);
        let staged = self.stage_services(&change.changes, plan, &change.services).await;
        let outcome = match staged {
            Ok((staged, plan)) => {
                change.plan = Rc::new(self.reflexes.settle(plan));
                change.staged = staged;
                Outcome::Done
            }
            Err(error) if self.lifecycle.has_leaving() => self.step_failed(format!(
                "{error}\na service that left at an earlier reload has connections yet, and may hold that port: try again \
                 once they have ended (limits.drain_ms)"
            )),
            Err(error) => self.step_failed(error.to_string()),
        };
        self.reloads.change = Some(change);
        outcome
    }

    /// Gives the workers the new services and waits until all have taken them.
    pub(super) fn prepare(&mut self) -> Outcome {
        let Some(mut change) = self.reloads.change.take() else { return Outcome::Failed };
        let prepared = self.prepare_services(&change.plan, &mut change.staged);
        let outcome = match prepared {
            Ok(handles) => {
                change.handles = handles;
                Outcome::Done
            }
            Err(why) => self.step_failed(why),
        };
        self.reloads.change = Some(change);
        outcome
    }

    /// Makes the new plan the one in force.
    pub(super) fn adopt(&mut self) {
        let former = self.plan.claims();
        self.exchange_plans();
        self.keep_leaving_claims(former);
    }

    /// Makes the former plan the one in force again.
    pub(super) fn restore(&mut self) {
        self.exchange_plans();
    }

    fn exchange_plans(&mut self) {
        if let Some(change) = &mut self.reloads.change {
            std::mem::swap(&mut self.plan, &mut change.plan);
        }
        self.lifecycle.set_limits(limits_of(&self.plan));
    }

    /// Replaces the stand-in by one with the services of the plan.
    pub(super) fn renew_stand_in_of_change(&mut self) {
        if let Some(change) = self.reloads.change.take() {
            self.renew_stand_in(&change.services);
            self.reloads.change = Some(change);
        }
    }

    /// Reports how the reload has ended.
    pub(super) fn finish_reload(&mut self, done: bool) {
        let change = self.reloads.change.take();
        if !done {
            if let Some(change) = change {
                self.reflexes.refuse(change.had_store);
            }
            self.reloads.outcome = Some(Err(self.reloads.error.take().unwrap_or_default()));
            return;
        }
        let Some(change) = change else { return };
        let settings = if change.differs {
            self.reflexes.forget(&change.former);
            self.set_workers(&change.changes, &change.config);
            self.plan.settings.clone()
        } else {
            // A file may now give a value that was a default before; the report distinguishes the two.
            change.plan.settings.clone()
        };
        self.plan = Rc::new(Plan { settings, ..(*self.plan).clone() });
        self.reloads.source.iter_mut().for_each(|source| source.config.clone_from(&change.config));
        change.applied.into_iter().for_each(|applied| applied());
        self.reloads.outcome = Some(Ok(change.lines));
    }
}

impl Instance {
    /// The plan, in which a service keeps the ports that the kernel has chosen for it.
    fn with_known_ports(&self, plan: Plan, changes: &Changes) -> Plan {
        let known = |asked: Option<u16>, former: Option<u16>| match asked {
            Some(0) => former.or(asked),
            asked => asked,
        };
        let planned = plan.services.into_iter().zip(&changes.services);
        let services = planned.map(|(planned, origin)| match origin {
            Origin::Kept(before, _) | Origin::Replaces(before, _) => {
                let former = &self.plan.services[*before];
                let (udp, tcp) = (known(planned.udp, former.udp), known(planned.tcp, former.tcp));
                ServicePlan { udp, tcp, ..planned }
            }
            Origin::New => planned,
        });
        Plan { services: services.collect(), ..plan }
    }

    /// Binds the new ports and makes the new services. Returns the plan with the ports that the kernel has chosen.
    async fn stage_services(
        &mut self,
        changes: &Changes,
        plan: Plan,
        services: &[Box<dyn Prototype>],
    ) -> Result<(Staged, Plan), InstanceError> {
        let metrics = match plan.metrics {
            same if same == self.plan.metrics => None,
            None => Some(None),
            Some(address) => Some(Some(Rc::new(metrics::Server::bind(address)?))),
        };
        let is_fresh = |origin: &&Origin| !matches!(origin, Origin::Kept(..));
        let mut own = Inherited::own(changes.leaving.iter().map(|at| &self.held[*at]))
            .map_err(InstanceError::Control)?;
        let fresh = changes.services.iter().zip(&plan.services).filter(|(origin, _)| is_fresh(origin));
        let planned = fresh.clone().map(|(_, plan)| plan);
        let was_served = |_: &ServicePlan, address| {
            self.plan.services.iter().flat_map(named).any(|known| known == address)
        };
        check_addresses(planned, was_served, &self.mirror, &self.interface.name)?;
        // While the interface is gone, nothing says which VRF it is in. The former services are still in the last one.
        let vrf = self.interface.ifindex.map_or(self.interface.vrf, |at| self.mirror.tables().vrf_of(at));
        let bound = hold_all_ports(fresh.clone().map(|(_, plan)| plan), plan.workers, &mut own, vrf)?;
        let named = fresh.zip(&bound).map(|((_, plan), sockets)| sockets.name_ports(plan.clone())).collect();
        let plan = with_fresh(plan, changes, named);
        let fresh = changes.services.iter().zip(&plan.services).zip(services);
        let fresh: Vec<_> = fresh.filter(|((origin, _), _)| is_fresh(origin)).collect();
        let held = |ethertype| self.interface.frame_claims.iter().any(|it| it.ethertype() == ethertype);
        let types: Vec<ServicePlan> = fresh
            .iter()
            .map(|((_, plan), _)| (*plan).clone())
            .filter(|plan| plan.ethertype.is_some_and(|ethertype| !held(ethertype)))
            .collect();
        if !types.is_empty() {
            needs_fast_path(&plan, &self.interface.choice)?;
        }
        let frame_claims = match self.interface.ifindex {
            Some(ifindex) => hold_frames(&types, &plan.interface, ifindex)?,
            None => Vec::new(),
        };
        let mut free = (0..PARTS_MAX).filter(|part| {
            !self.held.iter().any(|held| held.part == *part) && !self.lifecycle.is_leaving(*part)
        });
        let parts: Vec<_> = free.by_ref().take(fresh.len()).collect();
        if parts.len() < fresh.len() {
            return Err(InstanceError::TooMany);
        }
        let count = self.workers.len();
        let workers = self.for_workers(count, true);
        let mut each: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let (mut helds, mut guarded) = (Vec::new(), Vec::new());
        for ((((_, plan), service), sockets), part) in fresh.into_iter().zip(bound).zip(parts) {
            let held = Held::of(part, &sockets).map_err(InstanceError::Control)?;
            let plan = self.connections.guarded(plan, &held);
            let new = workers.service(&plan, part, &**service, sockets)?;
            each.iter_mut().zip(new).for_each(|(worker, new)| worker.push(new));
            helds.push(held);
            guarded.push(plan);
        }
        let plan = with_fresh(plan, changes, guarded);
        let mut helds = helds.into_iter();
        let fresh = changes.services.iter().map(|origin| if is_fresh(&origin) { helds.next() } else { None });
        Ok((Staged { fresh: fresh.collect(), services: each, frame_claims, metrics }, plan))
    }

    /// Gives the workers the new services and waits until all have taken them. From then on the new
    /// services get frames that are claimed for no former service.
    fn prepare_services(
        &mut self,
        plan: &Plan,
        staged: &mut Staged,
    ) -> Result<Vec<Vec<ServiceHandle>>, String> {
        let former = self.plan.services.iter().zip(&self.held);
        let fresh = plan.services.iter().zip(&staged.fresh);
        let fresh = fresh.filter_map(|(plan, held)| Some((plan, held.as_ref()?)));
        let all: Vec<(usize, Served)> =
            former.chain(fresh).map(|(plan, held)| (held.part, plan.served())).collect();
        let reloads = &mut self.reloads;
        reloads.number = reloads.number.wrapping_add(1);
        reloads.prepared = 0;
        reloads.faults.clear();
        let mut handles = Vec::new();
        for (worker, new) in self.workers.iter_mut().zip(std::mem::take(&mut staged.services)) {
            let (mut services, mut ends) = (Vec::new(), Vec::new());
            for new in new {
                let (service, handle) = new.split();
                services.push((handle.part, service));
                ends.push(handle);
            }
            let routes = Routes::of(all.iter().map(|(part, served)| (*part, served)));
            let number = self.reloads.number;
            worker.tell(Command::Engine(DemuxCommand::Prepare(Box::new(Prepare {
                number,
                services,
                routes,
            }))));
            self.reloads.owed += 1;
            handles.push(ends);
        }
        let count = self.workers.len();
        if !self.wait_for_workers(CHANGE_PATIENCE, |instance| instance.reloads.prepared < count) {
            let prepared = self.reloads.prepared;
            return Err(format!(
                "{prepared} of {count} workers have taken the new configuration in, and the others are stuck or very busy: try again"
            ));
        }
        if self.reloads.faults.is_empty() { Ok(handles) } else { Err(self.reloads.faults.join("\n")) }
    }

    /// Changes the claims of the attached programs to those of the present plan, which is the new one; restores those
    /// of the former one if that fails.
    pub(super) fn change_claims(&mut self) -> Outcome {
        let claims = self.claims();
        if claims.is_empty() {
            return Outcome::Nothing;
        }
        if self.is_held_back() {
            return Outcome::Withheld;
        }
        if self.reflexes.need_other_programs(&self.plan, self.interface.attachment.as_ref()) {
            return Outcome::OtherPrograms;
        }
        let former = self.reloads.change.as_ref().map(|change| change.plan.claims()).unwrap_or_default();
        let former = self.claims_beside_leaving(former);
        let Some(attachment) = &mut self.interface.attachment else { return Outcome::Nothing };
        let Err(error) = attachment.claim(claims) else { return Outcome::Done };
        // The error may come from the clean-up after the new claims were in force.
        if let Err(error) = attachment.claim(former) {
            tracing::error!("the former claims cannot be put back: {error}");
        }
        self.claims_refused(error)
    }

    /// The steps that cannot fail: new services begin, removed ones leave, and limits change.
    pub(super) fn switch(&mut self) -> Outcome {
        let own = OwnAddresses::now(&self.plan.services, &self.mirror, self.interface.ifindex);
        self.own.services_changed(own);
        // An address that a new service names may be claimed now.
        self.retarget();
        let Some(mut change) = self.reloads.change.take() else { return Outcome::Failed };
        let (staged, handles) = (std::mem::take(&mut change.staged), std::mem::take(&mut change.handles));
        let outcome = self.switch_services(&change.changes, staged, handles, &change.services);
        self.reloads.change = Some(change);
        outcome
    }

    fn switch_services(
        &mut self,
        changes: &Changes,
        staged: Staged,
        handles: Vec<Vec<ServiceHandle>>,
        services: &[Box<dyn Prototype>],
    ) -> Outcome {
        let begin = staged.parts();
        let Staged { fresh, frame_claims, metrics, .. } = staged;
        let mut former: Vec<_> = std::mem::take(&mut self.held).into_iter().map(Some).collect();
        let mut limits: Vec<Vec<(usize, ServiceLimits)>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (at, (origin, fresh)) in changes.services.iter().zip(fresh).enumerate() {
            let held = match origin {
                Origin::Kept(before, _) => former[*before].take(),
                Origin::Replaces(..) | Origin::New => fresh,
            };
            // Each kept service is in the former plan, and each other one was staged.
            let Some(held) = held else { continue };
            if matches!(origin, Origin::Kept(_, differences) if !differences.is_empty()) {
                let new = limits_for(&self.plan.services[at], &*services[at], self.workers.len() as u32);
                limits.iter_mut().zip(new).for_each(|(worker, new)| worker.push((held.part, new)));
            }
            self.held.push(held);
        }
        let leave: Vec<_> = former.into_iter().flatten().map(|held| held.part).collect();
        let routes: Vec<_> = self.workers.iter().map(|_| self.routes()).collect();
        let (number, expected) = (self.reloads.number, self.begun + begin.len() * self.workers.len());
        for (((worker, handles), routes), limits) in
            self.workers.iter_mut().zip(handles).zip(routes).zip(limits)
        {
            worker.services.extend(handles);
            // Frames that arrived for removed services before the claims changed are answered first.
            worker.tell(Command::ServeRings);
            let (begin, leave) = (begin.clone(), leave.clone());
            let switch = Switch { number, routes, begin, leave, limits };
            worker.tell(Command::Engine(DemuxCommand::Switch(Box::new(switch))));
            self.reloads.owed += 1;
        }
        if !self.wait_for_workers(CHANGE_PATIENCE, |instance| instance.reloads.owed > 0)
            || self.begun < expected
        {
            tracing::warn!(
                "not every worker serves the new services' sockets yet: they wait in the kernel meanwhile"
            );
        }
        self.interface.frame_claims.extend(frame_claims);
        let types: Vec<_> = self.plan.services.iter().filter_map(|service| service.ethertype).collect();
        self.interface.frame_claims.retain(|claim| types.contains(&claim.ethertype()));
        if let Some(metrics) = metrics {
            self.scrapers = metrics.as_ref().map(|server| Arc::clone(server.counters()));
            self.offered.set(metrics);
        }
        Outcome::Leaving { parts: leave, workers: self.workers.len() }
    }

    /// Removes the services that the workers have prepared; they have served nothing yet.
    pub(super) fn undo(&mut self) -> Outcome {
        let parts = self.reloads.change.as_ref().map(|change| change.staged.parts()).unwrap_or_default();
        let routes: Vec<_> = self.workers.iter().map(|_| self.routes()).collect();
        let number = self.reloads.number;
        for (worker, routes) in self.workers.iter_mut().zip(routes) {
            let (begin, leave, limits) = (Vec::new(), parts.clone(), Vec::new());
            let switch = Switch { number, routes, begin, leave, limits };
            worker.tell(Command::Engine(DemuxCommand::Switch(Box::new(switch))));
            self.reloads.owed += 1;
        }
        self.wait_for_workers(CHANGE_PATIENCE, |instance| instance.reloads.owed > 0);
        Outcome::Leaving { parts, workers: self.workers.len() }
    }

    /// Applies the changes of `[worker]`. A value that `twinpath set` has changed stays, unless the file
    /// changes it.
    fn set_workers(&mut self, changes: &Changes, config: &Config) {
        let differs = |key: &str| changes.settings.iter().any(|it| it.key == key);
        let goal = differs("worker.latency") || differs("worker.cpu");
        let worker = &config.worker;
        let set = Set {
            worker: None,
            mode: differs("worker.mode").then_some(worker.mode),
            latency: worker.latency.filter(|_| goal),
            cpu: worker.cpu.filter(|_| goal),
            no_goal: goal && worker.latency.is_none() && worker.cpu.is_none(),
            turn_times: None,
        };
        self.workers.iter_mut().for_each(|worker| worker.set(set.mode, set.goal()));
    }

    /// Updates the registrations with rpcbind, if they change.
    pub(super) async fn register_anew(&mut self) {
        let now = self.plan.registrations();
        let former = self.reloads.change.as_ref().map(|change| change.plan.registrations());
        if former.is_some_and(|former| former != now) {
            std::mem::take(&mut self.registered).unset().await;
            self.registered = Registered::set(&now).await;
        }
    }
}

impl Instance {
    /// A removed service has drained on worker `worker`.
    pub(super) fn left(&mut self, worker: usize, part: usize) {
        self.workers[worker].services.retain(|service| service.part != part);
        self.events.push_back(Event::Left(part));
    }
}

/// The plan with these as its new services, in their order.
fn with_fresh(plan: Plan, changes: &Changes, fresh: Vec<ServicePlan>) -> Plan {
    let mut fresh = fresh.into_iter();
    let planned = changes.services.iter().zip(plan.services);
    let services = planned.map(|(origin, plan)| match origin {
        Origin::Kept(..) => plan,
        Origin::Replaces(..) | Origin::New => fresh.next().unwrap_or(plan),
    });
    Plan { services: services.collect(), ..plan }
}
