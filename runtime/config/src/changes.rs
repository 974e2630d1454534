//! What a configuration that was read again says otherwise than the one in force, and whether that can be done while running.

use serde::Serialize;
use toml::{Table, Value};

use super::{Config, Fault, Rpc, Service, ServiceKind};

/// Keys outside of services that can be changed while running. Whatever is not named here needs a restart.
const SETTINGS: [&str; 6] = [
    "worker.mode",
    "worker.latency",
    "worker.cpu",
    "limits.drain_ms",
    "limits.take_over_ms",
    "control.metrics",
];

/// Tables that are compared service by service, as each service has them.
const OF_SERVICES: [&str; 3] = ["service", "limits", "rpc"];

/// Keys of `[limits]` that are the instance's, not its services'.
const LIMITS_OF_THE_INSTANCE: [&str; 3] = ["drain_ms", "take_over_ms", "peers"];

/// A key with another value: what it was, and what it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// As `worker.mode`; of a service, as in its own table.
    pub key: String,
    former: Option<Value>,
    new: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of =
            |value: &Option<Value>| value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        write!(f, "{}: {} -> {}", self.key, of(&self.former), of(&self.new))
    }
}

/// Where a service of the new configuration comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It is the one at that place of the former configuration and goes on, with these limits changed.
    Kept(usize, Vec<Difference>),
    /// It takes the place of the one there, of the same name, which differs in so much.
    Replaces(usize, Vec<Difference>),
    /// There was none of that name.
    New,
}

/// Everything that is to change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Of the instance.
    pub settings: Vec<Difference>,
    /// One for each service of the new configuration.
    pub services: Vec<Origin>,
    /// Places in the former configuration of services that do not go on: replaced, or gone.
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
            settings.into_iter().partition(|it| SETTINGS.contains(&it.key.as_str()));
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

    /// What changes, a line for each; nothing if all is as it was.
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

fn origin(former: &Config, new: &Config, service: &Service) -> Origin {
    let same = |its: &Service| its.shown_name() == service.shown_name();
    let Some(at) = former.services.iter().position(same) else { return Origin::New };
    let before = &former.services[at];
    let mut served = differences(&own(before), &own(service), "");
    if service.kind == Some(ServiceKind::Rpc) {
        let bounds = |config: &Config, service| table(&Rpc { rpcbind: false, ..config.rpc_of(service) });
        served.extend(differences(&bounds(former, before), &bounds(new, service), "rpc."));
    }
    if !served.is_empty() {
        return Origin::Replaces(at, served);
    }
    let limits = |config: &Config, service| {
        let mut limits = table(&config.limits_of(service));
        limits.retain(|key: &str, _| !LIMITS_OF_THE_INSTANCE.contains(&key));
        limits
    };
    let mut changed = differences(&limits(former, before), &limits(new, service), "limits.");
    if service.kind == Some(ServiceKind::Rpc) {
        let bounds = |config: &Config, service| table(&config.rpc_of(service));
        changed.extend(differences(&bounds(former, before), &bounds(new, service), "rpc."));
    }
    Origin::Kept(at, changed)
}

/// What a service is given, without what is compared as it takes effect.
fn own(service: &Service) -> Table {
    let mut own = table(service);
    own.retain(|key: &str, _| !["name", "limits", "rpc"].contains(&key));
    own
}

/// What is the instance's.
fn settings(config: &Config) -> Table {
    let mut all = table(config);
    let limits = all.remove("limits");
    OF_SERVICES.iter().for_each(|key| drop(all.remove(*key)));
    if let Some(Value::Table(mut limits)) = limits {
        limits.retain(|key: &str, _| LIMITS_OF_THE_INSTANCE.contains(&key));
        all.insert("limits".to_owned(), Value::Table(limits));
    }
    all
}

fn table(value: &impl Serialize) -> Table {
    // A configuration that was read from TOML can be written as TOML.
    Table::try_from(value).unwrap_or_default()
}

/// All keys whose values differ, in their order.
fn differences(former: &Table, new: &Table, prefix: &str) -> Vec<Difference> {
    let mut keys: Vec<&String> = former.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let of_key = |key: &String| match (former.get(key), new.get(key)) {
        (Some(Value::Table(former)), Some(Value::Table(new))) => {
            differences(former, new, &format!("{prefix}{key}."))
        }
        (former, new) if former == new => Vec::new(),
        (former, new) => {
            vec![Difference { key: format!("{prefix}{key}"), former: former.cloned(), new: new.cloned() }]
        }
    };
    keys.into_iter().flat_map(of_key).collect()
}

#[cfg(test)]
mod tests;
