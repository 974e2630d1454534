//! The configuration of an instance: a TOML file, overridden by the command line.
//!
//! Each key is defined once, in the table of its section (`section!`): its type, default, unit, range, help
//! text, option, and how it can be changed. The command line, docs/config.md, the example file and
//! `twinpath show config` are made from that. All mistakes are reported together, each with the file, the
//! line, the key and what to do.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::values::{
    AddressError, AddressList, AttachAsked, Command, ConfigError, CpuGoal, DatapathId, Endpoint, ExportText,
    FailMode, Fault, FlowText, LatencyGoal, MetricsAddress, Mistake, Offload, OnExit, Path, PathAsked,
    PortKind, PortMode, PortName, PortOffload, Receive, ReflexAsked, Sandbox, ServiceKind, SourceText,
    Squashed, StaticEntry, TcpPathAsked, UnknownAttach, UnknownPath, VlanList, goal,
};
pub use twinpath_worker::idle::{Mode, RequestSetting as LatencyRequest};
pub use twinpath_worker::thread::priority::Priority;
pub use twinpath_worker::thread::request::RequestScope;

pub use changes::{Changes, Difference, Origin};
pub use control::{Control, ControlOverrides};
pub use interface::{Interface, InterfaceOverrides};
pub use key::{Change, CliOption, Example, Key, Takes};
pub use limits::{LimitOverrides, Limits};
pub use nfs::{Nfs, NfsOverrides};
pub use pool::{Pool, PoolOverrides};
pub use rpc::{Rpc, RpcOverrides};
pub use service::{Service, ServiceOverrides};
pub use setting::Setting;
pub use settings::{Given, mark_set};
pub use switch::{REMOTES_MAX, Switch, SwitchOverrides, SwitchPort, SwitchPortOverrides};
pub use worker::{Worker, WorkerOverrides};

use self::key::Override;
use self::reading::{Read, Unread};
use self::worker::WORKERS_MAX;

mod changes;
mod control;
mod interface;
mod key;
mod limits;
mod nfs;
mod openflow;
mod pool;
mod reading;
mod rpc;
mod service;
mod setting;
mod settings;
mod switch;
mod value;
pub mod values;
mod worker;

/// A complete configuration of services with every key, as shown in docs/config.md.
pub const EXAMPLE: &str = include_str!("example.toml");
/// The same for a switch, with the tables that it has in addition to `[worker]` and `[control]`.
pub const EXAMPLE_OF_SWITCH: &str = include_str!("switch.toml");

/// The commands that run services, and others.
macro_rules! serve_and {
    ($($other:ident),*) => {
        &[
            Command::Serve, Command::ServeEcho, Command::ServeDiscard, Command::ServeChargen,
            Command::ServeReflect, Command::ServeRpc, Command::ServeNfs, $(Command::$other),*
        ]
    };
}

/// The commands that run services.
const SERVE: &[Command] = serve_and!();
/// The commands whose number of workers is chosen.
const SERVE_AND_SWITCH: &[Command] = serve_and!(Switch);
/// The commands that run an instance.
const INSTANCES: &[Command] = serve_and!(Bridge, Switch);
/// The commands that have an interface and its path.
const SERVE_AND_BENCH: &[Command] = serve_and!(Bench);
/// The commands that have workers or threads like them, or tune a machine for workers.
const WITH_WORKERS: &[Command] = serve_and!(Bridge, Switch, Bench, Tune);

/// A key and a sentence that says what is wrong with it.
type Wrong = (&'static str, String);

/// The configuration of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The services: `[service]`, or `[[service]]` for each of several.
    #[serde(rename = "service", with = "service::one_or_several")]
    pub services: Vec<Service>,
    /// The interface that they are served on.
    pub interface: Interface,
    /// The threads that serve.
    pub worker: Worker,
    /// Limits on what peers may use.
    pub limits: Limits,
    /// Threads for work that may block.
    pub pool: Pool,
    /// Limits of ONC RPC.
    pub rpc: Rpc,
    /// Data and state of NFS.
    pub nfs: Nfs,
    /// The command socket, the metrics and the sandbox.
    pub control: Control,
    /// A switch, in place of services and their interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            services: vec![Service::default()],
            interface: Interface::default(),
            worker: Worker::default(),
            limits: Limits::default(),
            pool: Pool::default(),
            rpc: Rpc::default(),
            nfs: Nfs::default(),
            control: Control::default(),
            switch: None,
        }
    }
}

/// The tables that only services have.
const TABLES_OF_SERVICES: [&str; 6] = ["service", "interface", "limits", "pool", "rpc", "nfs"];

/// Every key, in the order of docs/config.md.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    let of_services = [Service::KEYS, Interface::KEYS, Worker::KEYS, Limits::KEYS, Pool::KEYS, Rpc::KEYS];
    of_services.into_iter().chain([Nfs::KEYS, Control::KEYS, Switch::KEYS, SwitchPort::KEYS]).flatten()
}

/// The values of the command line, which override those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Of the service, if there is only one.
    pub service: ServiceOverrides,
    /// Of `[interface]`.
    pub interface: InterfaceOverrides,
    /// Of `[worker]`.
    pub worker: WorkerOverrides,
    /// Of `[limits]`, for all services.
    pub limits: LimitOverrides,
    /// Of `[pool]`.
    pub pool: PoolOverrides,
    /// Of `[rpc]`, for all services.
    pub rpc: RpcOverrides,
    /// Of `[nfs]`.
    pub nfs: NfsOverrides,
    /// Of `[control]`.
    pub control: ControlOverrides,
    /// Of `[switch]`.
    pub switch: SwitchOverrides,
}

impl Overrides {
    /// Sets a key from the texts that its option was given, one for each time.
    ///
    /// # Errors
    /// A sentence: what is wrong, and what to write instead.
    pub fn set(&mut self, key: &Key, texts: &[String]) -> Result<(), String> {
        let mut tables = self.tables_mut();
        let table = tables.iter_mut().find(|(table, _)| *table == key.table);
        table.map_or(Ok(()), |(_, overrides)| overrides.set(key.name, texts))
    }

    fn tables_mut(&mut self) -> [(&'static str, &mut dyn Override); 9] {
        [
            ("service", &mut self.service),
            ("interface", &mut self.interface),
            ("worker", &mut self.worker),
            ("limits", &mut self.limits),
            ("pool", &mut self.pool),
            ("rpc", &mut self.rpc),
            ("nfs", &mut self.nfs),
            ("control", &mut self.control),
            ("switch", &mut self.switch),
        ]
    }

    /// The overrides, with those that they imply: some options set several keys.
    fn completed(&self) -> Self {
        let mut completed = self.clone();
        completed.service.complete();
        completed.worker.complete();
        completed
    }

    /// The keys that have a value, as `worker.mode`.
    fn named(&self) -> BTreeSet<String> {
        let mut completed = self.completed();
        let tables = completed.tables_mut().into_iter();
        let named = tables.flat_map(|(table, overrides)| {
            overrides.named().into_iter().map(move |name| format!("{table}.{name}"))
        });
        named.collect()
    }
}

impl Config {
    /// Loads the configuration of a file, if one is named, with the overrides of the command line, and
    /// validates it. Also returns which keys each of them gives. `open_files` is the limit of open files of
    /// this process, if there is one.
    ///
    /// # Errors
    /// Everything that is wrong in the file, on the command line and with the values.
    pub fn load(
        file: Option<&FilePath>,
        overrides: &Overrides,
        open_files: Option<u64>,
    ) -> Result<(Self, Given), ConfigError> {
        Self::judged(file, overrides, |config, _| {
            if config.switch.is_some() {
                let file = file.map(|file| file.display().to_string()).unwrap_or_default();
                let sentence = format!("{file} configures a switch: run `twinpath switch --config {file}`");
                return vec![Fault::new("", sentence)];
            }
            let mut faults = config.validate();
            faults.extend(config.check_kinds());
            faults.extend(open_files.and_then(|limit| config.check_open_files(limit)));
            faults
        })
    }

    /// The same for a switch.
    ///
    /// # Errors
    /// Everything that is wrong in the file, on the command line and with the values.
    pub fn load_switch(file: Option<&FilePath>, overrides: &Overrides) -> Result<(Self, Given), ConfigError> {
        Self::judged(file, overrides, |config, text| {
            let mut faults = config.check_switch();
            let given = reading::keys_of(text);
            let of_services = TABLES_OF_SERVICES
                .iter()
                .filter(|table| given.iter().any(|key| key.split(['.', '[']).next() == Some(table)));
            faults.extend(of_services.map(|table| {
                Fault::new(*table, "a switch has no services: this table is for `twinpath serve`")
            }));
            let others =
                keys().filter(|key| ["worker", "control"].contains(&key.table) && !key.is_of_switch());
            let others = others.filter(|key| given.contains(key.path));
            faults
                .extend(others.map(|key| Fault::new(key.path, "a switch has no such key: delete the line")));
            faults
        })
    }

    /// Reads a file, applies the overrides, and validates the result with the file's text.
    fn judged(
        file: Option<&FilePath>,
        overrides: &Overrides,
        judge: impl FnOnce(&Self, &str) -> Vec<Fault>,
    ) -> Result<(Self, Given), ConfigError> {
        let text = match file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| ConfigError::Read { file: file.to_owned(), error })?,
            None => String::new(),
        };
        let Read { mut config, mut mistakes, unread } =
            reading::read(&text, file.unwrap_or_else(|| FilePath::new("the command line")));
        let mut faults: Vec<Fault> =
            file.and_then(|file| config.kind_fault(overrides, file)).into_iter().collect();
        config.apply(overrides);
        config.complete_nfs();
        if unread != Unread::Everything {
            faults.extend(judge(&config, &text));
        }
        // A key that could not be read has been reported already.
        let known = faults.into_iter().filter(|fault| !unread.has(&fault.key));
        mistakes.extend(known.map(|fault| Mistake {
            place: file.and_then(|file| Some((file.to_owned(), reading::line_of(&text, &fault.key)?))),
            fault,
        }));
        mistakes.sort_by_key(|mistake| mistake.place.as_ref().map_or(usize::MAX, |(_, line)| *line));
        if !mistakes.is_empty() {
            return Err(ConfigError::Invalid(mistakes));
        }
        let given = Given { file: file.map(|_| reading::keys_of(&text)), command_line: overrides.named() };
        Ok((config, given))
    }

    /// Reads the text of a file; `file` is for the message only.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]: all that is not TOML, not a known key, or not a value for it.
    pub fn parse(text: &str, file: &FilePath) -> Result<Self, ConfigError> {
        let Read { config, mistakes, .. } = reading::read(text, file);
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(mistakes)) }
    }

    /// Like [`Self::parse`], for a file that also has a table `[program]` for the program; its default if
    /// there is none.
    ///
    /// # Errors
    /// As for [`Self::parse`], with the mistakes in that table.
    pub fn parse_with_program<T: DeserializeOwned + Default>(
        text: &str,
        file: &FilePath,
    ) -> Result<(Self, T), ConfigError> {
        let (Read { config, mistakes, .. }, program) = reading::read_with_program(text, file);
        if mistakes.is_empty() { Ok((config, program)) } else { Err(ConfigError::Invalid(mistakes)) }
    }

    /// The fault if a command that serves one kind is given a file with another kind, or with several
    /// services.
    fn kind_fault(&self, overrides: &Overrides, file: &FilePath) -> Option<Fault> {
        let (asked, file) = (overrides.service.kind??, file.display());
        match self.services.as_slice() {
            [Service { kind: Some(kind), .. }] if *kind != asked => Some(Fault::new(
                "service.kind",
                format!(
                    "the file says {kind} and the command line says {asked}: run `twinpath serve --config {file}` for \
                     what the file says"
                ),
            )),
            [] | [_] => None,
            several => Some(Fault::new(
                "",
                format!(
                    "{file} has {} services and `serve {asked}` serves one: run `twinpath serve --config {file}`",
                    several.len()
                ),
            )),
        }
    }

    /// The limits of one service: of its TCP connections, and all others.
    #[must_use]
    pub fn limits_of(&self, service: &Service) -> Limits {
        let mut limits = self.limits.clone();
        limits.apply(&service.limits);
        self.raise_for_nfs(service, &mut limits);
        limits
    }

    /// The ONC RPC limits of one service.
    #[must_use]
    pub fn rpc_of(&self, service: &Service) -> Rpc {
        let mut rpc = self.rpc.clone();
        rpc.apply(&service.rpc);
        rpc.record_bytes = self.record_bytes_of(service, rpc.record_bytes);
        rpc
    }

    /// Replaces the values that the command line gives.
    pub fn apply(&mut self, overrides: &Overrides) {
        let Overrides { service, interface, worker, limits, pool, rpc, nfs, control, switch } =
            overrides.completed();
        // The command line cannot set keys of one service among several.
        if let [only] = self.services.as_mut_slice() {
            only.apply(&service);
        }
        for each in &mut self.services {
            each.limits.remove(&limits.named());
            each.rpc.remove(&rpc.named());
        }
        self.interface.apply(&interface);
        self.worker.apply(&worker);
        self.limits.apply(&limits);
        self.pool.apply(&pool);
        self.rpc.apply(&rpc);
        self.nfs.apply(&nfs);
        self.control.apply(&control);
        if switch != SwitchOverrides::default() {
            self.switch.get_or_insert_default().apply(&switch);
        }
    }

    /// Everything that cannot work on any host; empty if nothing is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.interface.name_fault().into_iter().map(Fault::from).collect();
        faults.extend(self.service_faults());
        // [rpc] does not limit requests to services of other kinds, or to those with their own limits.
        let has_none = |service: &Service| {
            service.limits == LimitOverrides::default() && service.rpc == RpcOverrides::default()
        };
        let is_bound = self.services.iter().any(|it| it.kind == Some(ServiceKind::Rpc) && has_none(it));
        let connection_bytes = if is_bound { self.limits.connection_bytes } else { u32::MAX };
        let tables = [
            self.interface.faults(),
            self.worker.faults(),
            self.limits.faults(self.worker.count.min(WORKERS_MAX)),
            self.rpc.faults(connection_bytes),
            self.nfs.faults(),
            self.pool.faults(),
            self.control.faults(),
        ];
        faults.extend(tables.into_iter().flatten().map(Fault::from));
        faults
    }

    /// The fault if this host's hard limit of open files is too low for the configured connections.
    #[must_use]
    pub fn check_open_files(&self, hard_limit: u64) -> Option<Fault> {
        // In addition to connections, each worker has sockets, rings, event and timer descriptors, and
        // control has its own.
        let others = 64 + 32 * u64::from(self.worker.count);
        let served = self.services.iter().filter(|service| service.tcp.is_some());
        let connections: u64 =
            served.clone().map(|service| u64::from(self.limits_of(service).connections)).sum();
        let needed = connections + others;
        let each = match served.count() {
            0 | 1 => "",
            _ => " in all for their services",
        };
        (needed > hard_limit).then(|| {
            let sentence = format!(
                "{connections} connections need {needed} open files and this process may have {hard_limit}: set it to {} \
                 or less{each}, or raise the hard limit (ulimit -Hn, LimitNOFILE=)",
                hard_limit.saturating_sub(others)
            );
            Fault::new("limits.connections", sentence)
        })
    }
}

#[cfg(test)]
mod tests;
