//! The differences between the configuration in force and a reloaded one, and whether they can be applied
//! while the instance runs, as [`Key::change`] says for each key.

use serde::Serialize;
use serde_json::{Map, Value};

use super::key::Change;
use super::{Config, Fault, Key, Limits, Rpc, Service, ServiceKind, keys};

/// Keys with their values, by name.
type Table = Map<String, Value>;

/// A key with another value: the former one and the new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The key, such as `worker.mode`; without its table if it is a key of a service.
    pub key: String,
    former: Option<Value>,
    new: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |value: &Option<Value>| value.as_ref().map_or_else(|| "none".to_owned(), in_words);
        write!(f, "{}: {} -> {}", self.key, of(&self.former), of(&self.new))
    }
}

/// What a service of the new configuration was in the former one.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The service with this index, which continues to run; these limits of it change.
    Kept(usize, Vec<Difference>),
    /// The service with this index, which has the same name, is stopped, because these keys differ.
    Replaces(usize, Vec<Difference>),
    /// No service had its name.
    New,
}

/// All changes between two configurations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Keys of the instance.
    pub settings: Vec<Difference>,
    /// The origin of each service of the new configuration.
    pub services: Vec<Origin>,
    /// Indices of former services that are stopped, because they are replaced or no longer configured.
    pub leaving: Vec<usize>,
}

impl Changes {
    /// Compares two valid configurations.
    ///
    /// # Errors
    /// Everything that cannot change while running.
    pub fn between(former: &Config, new: &Config) -> Result<Self, Vec<Fault>> {
        let settings = differences(&settings(former), &settings(new), "");
        let (settings, fixed): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|it| keys().any(|key| key.path == it.key && is_live(key)));
        let sentence = |it: Difference| {
            let what = it.to_string();
            let what = what.strip_prefix(&it.key).unwrap_or(&what).trim_start_matches(": ").to_owned();
            Fault::new(
                it.key,
                format!("{what} cannot be done while it runs: restart for that, or put it back"),
            )
        };
        let mut faults: Vec<Fault> = fixed.into_iter().map(sentence).collect();
        let services: Vec<_> = new.services.iter().map(|service| origin(former, new, service)).collect();
        let is_kept =
            |at: &usize| services.iter().any(|it| matches!(it, Origin::Kept(kept, _) if kept == at));
        let leaving: Vec<_> = (0..former.services.len()).filter(|at| !is_kept(at)).collect();
        for (service, origin) in new.services.iter().zip(&services) {
            if !matches!(origin, Origin::Kept(..)) {
                faults.extend(leaving.iter().filter_map(|at| former.services[*at].in_the_way_of(service)));
            }
        }
        if faults.is_empty() { Ok(Self { settings, services, leaving }) } else { Err(faults) }
    }

    /// The changes, one line for each.
    #[must_use]
    pub fn lines(&self, former: &Config, new: &Config) -> Vec<String> {
        let mut lines: Vec<String> = self.settings.iter().map(ToString::to_string).collect();
        let replaced = |at: &usize| {
            self.services.iter().any(|it| matches!(it, Origin::Replaces(former, _) if former == at))
        };
        let ends = "its connections end once they are answered";
        for at in self.leaving.iter().filter(|at| !replaced(at)) {
            lines.push(format!("service `{}` goes; {ends}", former.services[*at].shown_name()));
        }
        for (service, origin) in new.services.iter().zip(&self.services) {
            let name = service.shown_name();
            let told = |differences: &[Difference]| {
                differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            match origin {
                Origin::New => lines.push(format!("service `{name}` is new")),
                Origin::Replaces(_, differences) => {
                    lines.push(format!("service `{name}` is made anew ({}); {ends}", told(differences)));
                }
                Origin::Kept(_, differences) if !differences.is_empty() => {
                    lines.push(format!("service `{name}`: {}", told(differences)));
                }
                Origin::Kept(..) => {}
            }
        }
        lines
    }
}

/// Whether a key can change while the instance runs.
fn is_live(key: &Key) -> bool {
    key.change != Change::Restart
}

/// Whether a change of this key restarts the service. The name is not compared, because it identifies the
/// service.
fn is_anew(key: &Key) -> bool {
    key.change == Change::ReloadAnew && key.path != "service.name"
}

fn origin(former: &Config, new: &Config, service: &Service) -> Origin {
    let same = |its: &Service| its.shown_name() == service.shown_name();
    let Some(at) = former.services.iter().position(same) else { return Origin::New };
    let before = &former.services[at];
    let rpc = |config: &Config, service: &Service, is_meant: fn(&Key) -> bool| match service.kind {
        Some(ServiceKind::Rpc | ServiceKind::Nfs) => {
            only(table(&config.rpc_of(service)), Rpc::KEYS, is_meant)
        }
        _ => Table::new(),
    };
    let own = |service| {
        // A service's own limits are compared by their effective values, together with those of `[limits]`
        // and `[rpc]`.
        let mut own = only(table(service), Service::KEYS, is_anew);
        own.remove("rpc");
        own
    };
    let mut served = differences(&own(before), &own(service), "");
    served.extend(differences(&rpc(former, before, is_anew), &rpc(new, service, is_anew), "rpc."));
    if !served.is_empty() {
        return Origin::Replaces(at, served);
    }
    let limits = |config: &Config, service| {
        only(table(&config.limits_of(service)), Limits::KEYS, |key| key.of_instance.is_none())
    };
    let mut changed = differences(&limits(former, before), &limits(new, service), "limits.");
    changed.extend(differences(&rpc(former, before, is_live), &rpc(new, service, is_live), "rpc."));
    Origin::Kept(at, changed)
}

/// The values of the keys that `is_meant` accepts.
fn only(mut values: Table, keys: &[Key], is_meant: fn(&Key) -> bool) -> Table {
    values.retain(|name, _| keys.iter().any(|key| key.name == name && is_meant(key)));
    values
}

/// The values that are not compared service by service.
fn settings(config: &Config) -> Table {
    let mut all = table(config);
    // Each service has these.
    ["service", "rpc"].iter().for_each(|name| drop(all.remove(*name)));
    let limits = only(table(&config.limits), Limits::KEYS, |key| key.of_instance.is_some());
    all.insert("limits".to_owned(), Value::Object(limits));
    all
}

/// All keys of a part of the configuration. Those without a value are null.
fn table(value: &impl Serialize) -> Table {
    match serde_json::to_value(value) {
        Ok(Value::Object(table)) => table,
        // Each part is a struct.
        _ => Table::new(),
    }
}

/// A value as a file has it.
fn in_words(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(in_words).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            let given = table.iter().filter(|(_, value)| !value.is_null());
            let entries: Vec<_> = given.map(|(key, value)| format!("{key} = {}", in_words(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        value => value.to_string(),
    }
}

/// All keys whose values differ, in their order.
fn differences(former: &Table, new: &Table, prefix: &str) -> Vec<Difference> {
    let mut keys: Vec<&String> = former.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let value = |table: &Table, key: &String| table.get(key).filter(|value| !value.is_null()).cloned();
    let of_key = |key: &String| match (value(former, key), value(new, key)) {
        (Some(Value::Object(former)), Some(Value::Object(new))) => {
            differences(&former, &new, &format!("{prefix}{key}."))
        }
        (former, new) if former == new => Vec::new(),
        (former, new) => {
            vec![Difference { key: format!("{prefix}{key}"), former, new }]
        }
    };
    keys.into_iter().flat_map(of_key).collect()
}

#[cfg(test)]
mod tests;
