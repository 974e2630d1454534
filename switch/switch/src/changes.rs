//! Changes while the switch runs: by a command for one port, or by reading the configuration again. A change is done as
//! a whole or not at all.

use std::collections::HashMap;
use std::rc::Rc;

use twinpath_config::{Changes, Config, Fault, Given, PortName, SwitchPort, SwitchPortOverrides};
use twinpath_host::machine::Answer;
use twinpath_host::{WorkerHandle, notify};
use twinpath_observe::command::PortChange;
use twinpath_observe::metrics;
use twinpath_sys::clock;

use super::port::{Port, State};
use super::{Loaded, Switching, snapshots};
use crate::kinds::Opened;

/// Why the configuration of a switch without a file cannot be read again.
const NO_FILE: &str = "there is no file to read again: this switch was told everything on its command line; change its ports by \
                       `twinpath port`, or start it with --config FILE";

/// An answer that waits until a change is complete.
pub(super) struct Waiting {
    answer: Answer,
    changed: Changed,
}

/// What a change has done.
pub(super) struct Changed {
    /// A line for each thing.
    pub(super) lines: Vec<String>,
    /// The numbers of the ports that it took out.
    taken_out: Vec<u16>,
    /// Those of the ports that it opened, or opens again.
    brought_in: Vec<u16>,
}

impl Switching {
    /// Changes a port.
    pub(super) async fn change_port(&mut self, change: &PortChange, answer: Answer) {
        let outcome = match self.with_change(change) {
            Ok(config) => self.change_to(config, None).await,
            Err(why) => Err(why),
        };
        self.answer_later(outcome, answer);
    }

    /// Reads the configuration again.
    pub(super) async fn read_again(&mut self) -> Result<Changed, String> {
        notify::reloading();
        let read = match &self.source {
            Some(source) => (source.read)(),
            None => Err(NO_FILE.to_owned()),
        };
        let outcome = match read {
            Ok(Loaded { config, given }) => self.change_to(config, Some(given)).await,
            Err(why) => Err(why),
        };
        match &outcome {
            Ok(_) => {
                self.reloads.reloads += 1;
                self.reloads.refusal = None;
                self.read_at = clock::now();
            }
            Err(why) => {
                self.reloads.refused += 1;
                self.reloads.refusal = Some(why.clone());
            }
        }
        match &outcome {
            Ok(Changed { lines, .. }) if lines.is_empty() => tracing::info!("reloaded: nothing differs"),
            Ok(Changed { lines, .. }) => tracing::info!("reloaded: {}", lines.join("; ")),
            Err(why) => tracing::error!("not reloaded, and nothing was changed: {why}"),
        }
        notify::ready();
        outcome
    }

    /// Answers once no worker has a removed port any more, so that its interface is the kernel's again, and all workers
    /// have the new ones and those that were opened again.
    pub(super) fn answer_later(&mut self, outcome: Result<Changed, String>, answer: Answer) {
        match outcome {
            Ok(changed) => self.waiting.push(Waiting { answer, changed }),
            // The client may be gone by now.
            Err(why) => drop(answer.send(Err(why))),
        }
        self.answer_complete();
    }

    /// Answers changes that are complete.
    pub(super) fn answer_complete(&mut self) {
        let ports = &self.ports;
        let is_there = |number: &u16| ports.iter().any(|port| port.number == *number);
        // A worker that is stuck is not waited for.
        let is_stuck = self.workers.iter().any(WorkerHandle::is_stuck);
        let is_late = |port: &Port| port.leaving > 0 && !is_stuck || port.joins_with().is_some();
        let joins = |number: &u16| ports.iter().any(|port| port.number == *number && is_late(port));
        let complete = |waiting: &mut Waiting| {
            let Changed { taken_out, brought_in, .. } = &waiting.changed;
            !taken_out.iter().any(is_there) && !brought_in.iter().any(joins)
        };
        for Waiting { answer, changed } in self.waiting.extract_if(.., complete) {
            drop(answer.send(Ok(serde_json::json!({ "changed": changed.lines }))));
        }
    }

    /// The present configuration with a change of one port.
    fn with_change(&self, change: &PortChange) -> Result<Config, String> {
        let mut config = self.plan.config.clone();
        let ports = &mut config.switch.get_or_insert_default().port;
        let listed = || {
            let names: Vec<_> = self.plan.switch().port.iter().map(SwitchPort::shown_name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let at = |name: &str| {
            let found = self.plan.switch().port.iter().position(|port| port.shown_name() == name);
            found.ok_or_else(|| format!("there is no port {name}; there is {}", listed()))
        };
        match change {
            PortChange::Add(text) => ports.push(text.parse()?),
            PortChange::Remove(name) => drop(ports.remove(at(name)?)),
            PortChange::Set { port: name, keys } => {
                let at = at(name)?;
                ports[at] = ports[at].with(&SwitchPortOverrides::of_keys(keys.iter().map(String::as_str))?);
            }
        }
        Ok(config)
    }

    /// Goes on with another configuration; `given` if it comes from the file.
    async fn change_to(&mut self, config: Config, given: Option<Given>) -> Result<Changed, String> {
        let faults = config.check_switch();
        if !faults.is_empty() {
            return Err(in_lines(&faults));
        }
        let changes = Changes::between(&self.plan.config, &config).map_err(|faults| in_lines(&faults))?;
        let mut lines: Vec<String> = changes.settings.iter().map(ToString::to_string).collect();
        lines.retain(|line| !line.starts_with("switch.port:"));
        let wanted = super::configured(config.switch.as_ref());
        let wanted_of: HashMap<&PortName, &SwitchPort> =
            wanted.iter().map(|(name, port)| (name, port)).collect();
        snapshots::check(&config.switch.clone().unwrap_or_default()).map_err(|error| error.to_string())?;

        // First what can fail: new ports are opened.
        let mut mistakes = Vec::new();
        let offered = match self.offered_by(&config) {
            Ok(offered) => offered,
            Err(error) => {
                mistakes.push(error);
                None
            }
        };
        let switch = config.switch.clone().unwrap_or_default();
        let bound = self.listeners_for(&switch, &mut mistakes).await;
        let made = self.make_new(&wanted, &mut mistakes).await;
        if !mistakes.is_empty() {
            let mistakes = self.take_back(made, &mistakes);
            self.give_back_unused();
            return Err(mistakes);
        }

        let (mut taken_out, mut anew) = (Vec::new(), Vec::new());
        for port in &mut self.ports {
            match wanted_of.get(&port.name) {
                Some(config) if **config != port.config => {
                    lines.push(format!("port {}: {}", port.name, differences(&port.config, config)));
                    if !port.config.is_opened_as(config) {
                        anew.push(port.number);
                    }
                    port.config = (*config).clone();
                }
                Some(_) => {}
                None if port.removed => {}
                None => {
                    lines.push(format!("port {} goes", port.name));
                    taken_out.push(port.number);
                }
            }
        }
        let mut opened_for = Vec::new();
        for (port, opened) in made {
            lines.push(format!("port {} is new", port.name));
            opened_for.push((port.number, opened));
            self.ports.push(port);
        }
        let former = self.plan.switch().clone();
        self.plan_is(config, given);
        let wanted = self.plan.switch().clone();
        self.with_openflow(|openflow, workers| openflow.change(&former, &wanted, bound, workers));
        if let Some(offered) = offered {
            self.offered.set(offered);
        }
        taken_out.iter().for_each(|number| self.remove(*number));
        anew.iter().for_each(|number| self.open_anew(*number));
        let brought_in = opened_for.iter().map(|(number, _)| *number).chain(anew).collect();
        self.bring_in(opened_for);
        self.give_back_unused();
        Ok(Changed { lines, taken_out, brought_in })
    }

    /// Makes the ports of another configuration that are new. Mistakes are added to the list.
    async fn make_new(
        &mut self,
        wanted: &[(PortName, SwitchPort)],
        mistakes: &mut Vec<String>,
    ) -> Vec<(Port, Opened)> {
        let known: HashMap<PortName, u16> = self
            .ports
            .iter()
            .filter(|port| !port.removed)
            .map(|port| (port.name.clone(), port.number))
            .collect();
        let mut new = Vec::new();
        for (name, config) in wanted {
            match (known.get(name), config.number) {
                (None, _) => new.push((name.clone(), config.clone())),
                (Some(has), Some(number)) if u32::from(*has) != number => mistakes.push(format!(
                    "port {name}: it is number {has} for as long as it is there: remove it, and add it again as number {number}"
                )),
                _ => {}
            }
        }
        let (mut made, numbers) = (Vec::new(), self.numbers_for(&new));
        self.coming = new.iter().map(|(name, _)| name.clone()).collect();
        for ((name, config), number) in new.into_iter().zip(numbers) {
            if self.ports.iter().any(|port| port.removed && port.name == name) {
                mistakes.push(format!("port {name}: it is just being removed; try again"));
                continue;
            }
            let port = match number {
                Ok(number) => self.make_port(name.clone(), config, number).await,
                Err(error) => Err(error.into()),
            };
            match port {
                Ok(port) => made.push(port),
                Err(error) => mistakes.push(format!("port {name}: {error}")),
            }
        }
        self.coming.clear();
        made
    }

    /// Where another configuration offers metrics, if that differs: nowhere, or by this server.
    fn offered_by(&self, config: &Config) -> Result<Option<Option<Rc<metrics::Server>>>, String> {
        match config.control.metrics {
            same if same == self.plan.config.control.metrics => Ok(None),
            None => Ok(Some(None)),
            Some(address) => {
                let server = metrics::Server::bind(address.0).map_err(|error| error.to_string())?;
                Ok(Some(Some(Rc::new(server))))
            }
        }
    }

    /// Takes a port out.
    fn remove(&mut self, number: u16) {
        let Some(at) = self.ports.iter().position(|port| port.number == number) else { return };
        self.ports[at].removed = true;
        self.detach(at, State::Gone);
        if self.ports[at].leaving == 0 {
            self.ports[at].on.release();
            self.ports.remove(at);
        }
    }

    /// Closes a port. It is opened again, as now configured, when its queue has come back.
    fn open_anew(&mut self, number: u16) {
        let Some(at) = self.ports.iter().position(|port| port.number == number) else { return };
        self.detach(at, State::Gone);
        if self.ports[at].leaving == 0 {
            self.try_to_attach(at);
        }
    }

    /// Keeps the new configuration, and does what it says of workers.
    fn plan_is(&mut self, config: Config, given: Option<Given>) {
        let is_set = given.is_none();
        let worker = (config.worker != self.plan.config.worker).then(|| config.worker.clone());
        self.plan.config = config;
        if let Some(given) = given {
            self.plan.given = given;
        }
        let settings = self.plan.config.settings(&self.plan.usual, &self.plan.given);
        let former = std::mem::replace(&mut self.settings, settings);
        if is_set {
            // Changed by a command: neither the file nor the command line says so.
            let former: HashMap<_, _> = former.iter().map(|it| ((&it.key, &it.value), &it.source)).collect();
            for setting in self.settings.iter_mut().filter(|setting| setting.key.starts_with("switch")) {
                let same = former.get(&(&setting.key, &setting.value));
                setting.source = same.map_or_else(|| "set".to_owned(), |same| (*same).clone());
            }
        }
        if let Some(worker) = worker {
            let goal = twinpath_config::goal(worker.latency, worker.cpu);
            self.workers.iter_mut().for_each(|it| it.set(Some(worker.mode), Some(goal)));
            (self.plan.idle.mode, self.plan.idle.goal) = (worker.mode, goal);
        }
    }
}

/// Mistakes, a line for each.
fn in_lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The keys of a port that differ, with their values.
fn differences(former: &SwitchPort, new: &SwitchPort) -> String {
    let table = |port| match serde_json::to_value(port) {
        Ok(serde_json::Value::Object(table)) => table,
        _ => serde_json::Map::new(),
    };
    let (former, new) = (table(former), table(new));
    let changed = new.iter().filter(|(key, value)| former.get(*key) != Some(value));
    let line = |(key, value): (&String, &serde_json::Value)| {
        let shown = |value: Option<&serde_json::Value>| match value {
            None | Some(serde_json::Value::Null) => "none".to_owned(),
            Some(value) => value.to_string(),
        };
        format!("{key} {} -> {}", shown(former.get(key)), shown(Some(value)))
    };
    changed.map(line).collect::<Vec<_>>().join(", ")
}
