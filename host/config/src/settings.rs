//! The settings of an instance: the value of every key, and where it comes from.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use twinpath_idle::Goal;

use super::reading::keys_of;
use super::setting::Setting;
use super::{
    Config, Control, Interface, Key, Limits, Mode, Nfs, Overrides, Pool, Rpc, Service, Switch, SwitchPort,
    Worker,
};
use crate::values::{CpuGoal, LatencyGoal};

/// The keys that are given, as `worker.mode` or `service[1].udp`. The default: none, and there is no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The keys in the file; `None` if there is no file.
    pub(super) file: Option<BTreeSet<String>>,
    pub(super) command_line: BTreeSet<String>,
}

impl Given {
    /// The keys that the text of a file gives.
    #[must_use]
    pub fn of_file(text: &str) -> Self {
        Self { file: Some(keys_of(text)), command_line: BTreeSet::new() }
    }

    /// The keys that the command line gives.
    #[must_use]
    pub fn of_command_line(overrides: &Overrides) -> Self {
        Self { file: None, command_line: overrides.named() }
    }

    /// Whether the file or the command line gives a key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.source(key).is_some()
    }

    /// Where the value of a key comes from, if not from the program.
    fn source(&self, key: &str) -> Option<&'static str> {
        let is_in_file = self.file.as_ref().is_some_and(|keys| keys.contains(key));
        if self.command_line.contains(key) { Some("command line") } else { is_in_file.then_some("file") }
    }
}

impl Config {
    /// Every key with its value. `usual` has the values of keys that are not given: the defaults, and the
    /// values that the program sets itself.
    #[must_use]
    pub fn settings(&self, usual: &Self, given: &Given) -> Vec<Setting> {
        if let Some(switch) = &self.switch {
            return self.settings_of_switch(switch, usual, given);
        }
        let mut settings = Vec::new();
        let usual_service = json(&Service::default());
        for (at, service) in self.services.iter().enumerate() {
            let prefix =
                if self.services.len() == 1 { "service".to_owned() } else { format!("service[{at}]") };
            let values = json(service);
            settings.extend(table(Service::KEYS, &prefix, [&values, &usual_service], given));
            for (name, keys, own, common) in [
                ("limits", Limits::KEYS, json(&service.limits), json(&self.limits)),
                ("rpc", Rpc::KEYS, json(&service.rpc), json(&self.rpc)),
            ] {
                let name = format!("{prefix}.{name}");
                let own = table(keys, &name, [&own, &common], given);
                settings.extend(own.filter(|setting| !setting.value.is_null()));
            }
        }
        settings.retain(|setting| !setting.value.is_object());
        for (keys, values, usual) in [
            (Interface::KEYS, json(&self.interface), json(&usual.interface)),
            (Worker::KEYS, json(&self.worker), json(&usual.worker)),
            (Limits::KEYS, json(&self.limits), json(&usual.limits)),
            (Pool::KEYS, json(&self.pool), json(&usual.pool)),
            (Rpc::KEYS, json(&self.rpc), json(&usual.rpc)),
            (Nfs::KEYS, json(&self.nfs), json(&usual.nfs)),
            (Control::KEYS, json(&self.control), json(&usual.control)),
        ] {
            let name = keys.first().map_or("", |key| key.table);
            settings.extend(table(keys, name, [&values, &usual], given));
        }
        settings
    }
}

impl Config {
    fn settings_of_switch(&self, switch: &Switch, usual: &Self, given: &Given) -> Vec<Setting> {
        let (values, usual_switch) = (json(switch), json(&Switch::default()));
        let own = table(Switch::KEYS, "switch", [&values, &usual_switch], given);
        // The keys of its ports follow.
        let mut settings: Vec<_> = own.filter(|setting| setting.key != "switch.port").collect();
        let usual_port = json(&SwitchPort::default());
        for (at, port) in switch.port.iter().enumerate() {
            let prefix =
                if switch.port.len() == 1 { "switch.port".to_owned() } else { format!("switch.port[{at}]") };
            let values = json(port);
            settings.extend(table(SwitchPort::KEYS, &prefix, [&values, &usual_port], given).map(|setting| {
                // The option sets all keys of a port.
                let source = given.source("switch.port").filter(|_| setting.source != "file");
                let source = source.filter(|_| setting.value != setting.default).map(str::to_owned);
                Setting { source: source.unwrap_or(setting.source), ..setting }
            }));
        }
        for (keys, values, usual) in [
            (Worker::KEYS, json(&self.worker), json(&usual.worker)),
            (Control::KEYS, json(&self.control), json(&usual.control)),
        ] {
            let name = keys.first().map_or("", |key| key.table);
            let of_switch =
                |setting: &Setting| keys.iter().any(|key| key.path == setting.key && key.is_of_switch());
            settings.extend(table(keys, name, [&values, &usual], given).filter(of_switch));
        }
        settings
    }
}

/// The settings of one table. Its name may be that of a service's own table, as `service[1].limits`.
fn table(
    keys: &'static [Key],
    name: &str,
    [values, usual]: [&Value; 2],
    given: &Given,
) -> impl Iterator<Item = Setting> {
    keys.iter().map(move |key| {
        let path = format!("{name}.{}", key.name);
        let (value, default) = (values[key.name].clone(), usual[key.name].clone());
        let otherwise = if value == default { "default" } else { "program" };
        let source = given.source(&path).unwrap_or(otherwise).to_owned();
        Setting {
            key: path,
            value,
            default,
            unset: key.unset.to_owned(),
            unit: key.unit.to_owned(),
            values: key.values(),
            help: key.help(),
            source,
            changed_by: key.change.by(given.file.is_some()).to_owned(),
        }
    })
}

/// A key is `null` where it has no value. Every table can be written as JSON.
fn json(table: &impl Serialize) -> Value {
    serde_json::to_value(table).unwrap_or_default()
}

/// Marks the settings of an instance that `twinpath set` has changed since the start. `configured` is the
/// mode and goal of its configuration, `workers` are the present ones of each worker. If workers differ,
/// the value is a list.
pub fn mark_set(settings: &mut [Setting], configured: (Mode, Goal), workers: &[(Mode, Goal)]) {
    let mut mark = |key: &str, each: Vec<Value>| {
        let is_same = each.iter().all(|value| Some(value) == each.first());
        if let Some(setting) = settings.iter_mut().find(|setting| setting.key == key) {
            let value =
                if is_same { each.into_iter().next().unwrap_or_default() } else { Value::Array(each) };
            "set".clone_into(&mut setting.source);
            setting.value = value;
        }
    };
    if workers.iter().any(|(mode, _)| *mode != configured.0) {
        mark("worker.mode", workers.iter().map(|(mode, _)| json(mode)).collect());
    }
    if workers.iter().any(|(_, goal)| *goal != configured.1) {
        mark("worker.latency", workers.iter().map(|(_, goal)| json(&LatencyGoal::of(*goal))).collect());
        mark("worker.cpu", workers.iter().map(|(_, goal)| json(&CpuGoal::of(*goal))).collect());
    }
}
