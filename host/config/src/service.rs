//! `[service]`: a service, its ports, and the part of its traffic that is claimed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use twinpath_claims::{Claim, SOURCES_MAX};
use twinpath_wire::Protocol;

use super::key::{Change, Override as _, section};
use super::worker::WORKERS_MAX;
use super::{Config, Fault, LimitOverrides, Limits, RpcOverrides, Wrong};
use crate::values::{
    Command, ExportText, FlowText, NAME_MAX, ServiceKind, SourceText, TcpPathAsked, is_name,
};

/// Maximum number of own addresses of a service: each needs a socket.
const ADDRESSES_MAX: usize = 64;
/// Maximum number of flows of a service.
const FLOWS_MAX: usize = 1024;
/// Maximum number of own ends of flows in addition to the served port: each needs a socket.
const FLOW_ENDS_MAX: usize = 64;
/// Maximum number of services of an instance: each has sockets, tables and buffers on each worker.
const SERVICES_MAX: usize = 16;
/// The commands that serve ports.
const SERVE_PORTS: &[Command] =
    &[Command::ServeEcho, Command::ServeDiscard, Command::ServeChargen, Command::ServeRpc, Command::ServeNfs];
/// The command that serves directories.
const SERVE_DIRECTORIES: &[Command] = &[Command::ServeNfs];
/// Maximum number of exports of a service: each may have threads of its own.
const EXPORTS_MAX: usize = 64;
/// The command that serves frames.
const SERVE_FRAMES: &[Command] = &[Command::ServeReflect];

section! {
    /// `[service]`
    pub struct Service, ServiceOverrides in "service" {
        /// The kind of service: echo, discard, chargen, reflect, rpc or nfs
        kind: Option<ServiceKind> = None =>
            unset("none: has to be given"), example("\"echo\""), change(Change::ReloadAnew);

        /// The name in `twinpath show` and metrics
        name: Option<String> = None =>
            values_are("1 to 32 letters, digits, `-`, `_`, `.`"), unset("the kind"), comment("\"echo\""),
            change(Change::ReloadAnew);

        /// UDP port, served on the fast path and on the kernel path
        udp: Option<NonZeroU16> = None =>
            range(1, 65_535), unset("none"), option("udp", "PORT", SERVE_PORTS), example("7"),
            change(Change::ReloadAnew);

        /// TCP port, served on the kernel path, and on the fast path if tcp_path says so
        tcp: Option<NonZeroU16> = None =>
            range(1, 65_535), unset("none"), option("tcp", "PORT", SERVE_PORTS), example("7"),
            change(Change::ReloadAnew);

        /// Path of the TCP connections: the kernel's, or the fast one and the kernel's for what that does not take
        tcp_path: TcpPathAsked = TcpPathAsked::default() =>
            option("tcp-path", "PATH", SERVE_PORTS), change(Change::ReloadAnew);

        /// EtherType of the frames that reflect serves, such as 0x88b5
        ethertype: Option<u16> = None =>
            values_are("1536 to 65535, as `0x88b5`; none that a host lives on"), unset("none"),
            option("ethertype", "TYPE", SERVE_FRAMES), comment("0x88b5"), change(Change::ReloadAnew);

        /// Serve the ports only at these own addresses
        addresses: Vec<IpAddr> = Vec::new() =>
            values_are("own addresses, at most 64: `[\"10.9.0.2\"]`"), unset("none: all"),
            option("address", "IP", SERVE_PORTS), comment("[\"10.9.0.2\"]"), change(Change::ReloadAnew);

        /// Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7
        flows: Vec<FlowText> = Vec::new() =>
            values_are("UDP flows, peer first, at most 1024: `[\"udp,10.9.0.1:4444,10.9.0.2:7\"]`"),
            unset("none: the port is claimed"), option("flow", "FLOW", SERVE_PORTS),
            comment("[\"udp,10.9.0.1:4444,10.9.0.2:7\"]"), change(Change::ReloadAnew);

        /// Serve the ports only to senders in these prefixes
        sources: Vec<SourceText> = Vec::new() =>
            values_are("prefixes, at most 64: `[\"10.0.0.0/8\"]`"), unset("none: everybody"),
            option("source", "PREFIX", SERVE_PORTS), comment("[\"10.0.0.0/8\"]"), change(Change::ReloadAnew);

        /// Export this directory, as /srv/data:rw,client=10.0.0.0/8; without options it is read-only for everybody
        exports: Vec<ExportText> = Vec::new() =>
            values_are("directories with options, at most 64: `[\"/srv/data:rw,client=10.0.0.0/8\"]` (`nfs` only)"),
            unset("none"), option("export", "DIRECTORY", SERVE_DIRECTORIES),
            comment("[\"/srv/data:rw,client=10.0.0.0/8\"]"), change(Change::ReloadAnew);

        /// Limits of this service that differ from [limits]
        limits: LimitOverrides = LimitOverrides::default() =>
            values_are("the keys of `[limits]` but `drain_ms`, `take_over_ms` and `peers`"), unset("as [limits]"),
            comment("{ connections = 100 }"), change(Change::Reload);

        /// Bounds of this service, of kind rpc or nfs, that differ from [rpc]
        rpc: RpcOverrides = RpcOverrides::default() =>
            values_are("the keys of `[rpc]` (`rpc` and `nfs` only)"), unset("as [rpc]"), comment("{ record_bytes = 32768 }"),
            change(Change::ReloadAnew);
    }
}

impl ServiceOverrides {
    /// If the command line names a UDP or a TCP port, neither port of the file applies.
    pub(super) fn complete(&mut self) {
        if self.udp.is_some() || self.tcp.is_some() {
            self.udp.get_or_insert(None);
            self.tcp.get_or_insert(None);
        }
    }
}

/// `[service]` is one service; a list of services is written as one `[[service]]` for each.
pub(super) mod one_or_several {

    use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
    use serde::de::{MapAccess, SeqAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Service;

    pub(crate) fn serialize<S: Serializer>(services: &[Service], serializer: S) -> Result<S::Ok, S::Error> {
        match services {
            [only] => only.serialize(serializer),
            several => several.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Service>, D::Error> {
        struct Services;

        impl<'de> Visitor<'de> for Services {
            type Value = Vec<Service>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table [service], or several [[service]]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Service::deserialize(MapAccessDeserializer::new(map)).map(|only| vec![only])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list))
            }
        }

        deserializer.deserialize_any(Services)
    }
}

/// The protocol, port and address that a socket of a service is bound to; `None`: all addresses.
type End = (Protocol, u16, Option<IpAddr>);

impl Config {
    /// Everything that is wrong with the services.
    pub(super) fn service_faults(&self) -> Vec<Fault> {
        if self.services.is_empty() {
            return vec![Fault::new("service", "there is none: add a table [service]")];
        }
        if self.services.len() > SERVICES_MAX {
            let sentence =
                format!("{} services: one instance serves at most {SERVICES_MAX}", self.services.len());
            return vec![Fault::new("service", sentence)];
        }
        let mut faults = Vec::new();
        for (at, service) in self.services.iter().enumerate() {
            faults
                .extend(service.faults().into_iter().map(|(key, sentence)| self.fault_of(at, key, sentence)));
            let own = self.own_limit_faults(service).into_iter();
            faults.extend(own.map(|(key, sentence)| self.fault_of(at, &format!("service.{key}"), sentence)));
            for earlier in &self.services[..at] {
                let joint = service
                    .conflicts_with(earlier)
                    .into_iter()
                    .chain(self.rpcbind_conflict(service, earlier));
                faults.extend(joint.map(|(key, sentence)| self.fault_of(at, key, sentence)));
            }
        }
        faults
    }

    /// Services without a kind: the program cannot serve those.
    pub(super) fn check_kinds(&self) -> Vec<Fault> {
        let unknown = self.services.iter().enumerate().filter(|(_, service)| service.kind.is_none());
        let sentence =
            "which service? Set kind to \"echo\", \"discard\", \"chargen\", \"reflect\", \"rpc\" or \"nfs\"";
        unknown.map(|(at, _)| self.fault_of(at, "service.kind", sentence.to_owned())).collect()
    }

    /// A fault of the service with this index; `key` is written as if it were the only service.
    fn fault_of(&self, at: usize, key: &str, sentence: String) -> Fault {
        let is_one = self.services.len() == 1;
        let rest = key.strip_prefix("service").unwrap_or(key);
        Fault::new(if is_one { key.to_owned() } else { format!("service[{at}]{rest}") }, sentence)
    }

    /// The faults of a service's own limits; the keys are named as in their tables.
    fn own_limit_faults(&self, service: &Service) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for key in service.limits.named() {
            let key = Limits::KEYS.iter().find(|known| known.name == key);
            wrong.extend(
                key.and_then(|key| Some((key.path, format!("{}: set it in [limits]", key.of_instance?)))),
            );
        }
        let limits = self.limits_of(service);
        if service.limits != LimitOverrides::default() {
            let common = self.limits.faults(self.worker.count.min(WORKERS_MAX));
            let own = limits.faults(self.worker.count.min(WORKERS_MAX));
            wrong.extend(own.into_iter().filter(|fault| !common.contains(fault)));
        }
        let has_own = service.limits != LimitOverrides::default() || service.rpc != RpcOverrides::default();
        if service.kind.is_some_and(ServiceKind::is_rpc) && has_own {
            let common = self.rpc.faults(u32::MAX);
            let own = self.rpc_of(service).faults(limits.connection_bytes);
            wrong.extend(own.into_iter().filter(|fault| !common.contains(fault)));
        }
        wrong
    }

    /// Two services cannot both register: rpcbind has one port for each program.
    fn rpcbind_conflict(&self, one: &Service, other: &Service) -> Option<Wrong> {
        let registers =
            |service: &Service| self.rpc_of(service).rpcbind && service.kind.is_some_and(ServiceKind::is_rpc);
        (registers(one) && registers(other)).then(|| {
            let (one, other) = (one.shown_name(), other.shown_name());
            let sentence =
                format!("`{other}` and `{one}` serve the same programs, and rpcbind names one port for each: let one of them register");
            ("service.rpc.rpcbind", sentence)
        })
    }
}

impl Service {
    /// Its name, or its kind if it has none.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.name.as_deref().or(self.kind.map(ServiceKind::name)).unwrap_or("service")
    }

    /// The faults of this service alone.
    fn faults(&self) -> Vec<Wrong> {
        let faults = [
            self.name_fault(),
            self.kind_fault(),
            self.rpc_fault(),
            self.exports_fault(),
            self.tcp_path_fault(),
            self.addresses_fault(),
            self.flows_fault(),
            self.sources_fault(),
        ];
        faults.into_iter().flatten().chain(self.range_faults()).collect()
    }

    pub(super) fn has_port(&self) -> bool {
        self.udp.is_some() || self.tcp.is_some()
    }

    fn name_fault(&self) -> Option<Wrong> {
        let name = self.name.as_deref()?;
        let sentence = || format!("`{name}`: give 1 to {NAME_MAX} letters, digits, `-`, `_` or `.`");
        (!is_name(name)).then(|| ("service.name", sentence()))
    }

    fn rpc_fault(&self) -> Option<Wrong> {
        let kind = self.kind.filter(|kind| !kind.is_rpc())?;
        (self.rpc != RpcOverrides::default())
            .then(|| ("service.rpc", format!("{kind} has no such keys: they are those of rpc and nfs")))
    }

    fn exports_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.exports", sentence));
        match self.kind {
            Some(ServiceKind::Nfs) if self.exports.is_empty() => wrong(
                "what is exported? Give --export /srv/data:rw, or set it to a list of directories".to_owned(),
            ),
            Some(ServiceKind::Nfs) if self.exports.len() > EXPORTS_MAX => {
                wrong(format!("{} exports: at most {EXPORTS_MAX} are served", self.exports.len()))
            }
            Some(ServiceKind::Nfs) => None,
            Some(kind) if !self.exports.is_empty() => {
                wrong(format!("{kind} exports nothing: directories are served by nfs"))
            }
            _ => None,
        }
    }

    /// The sockets that it binds, each with the key that asks for it.
    fn ends(&self) -> impl Iterator<Item = (&'static str, End)> {
        let ports = [("service.udp", Protocol::Udp, self.udp), ("service.tcp", Protocol::Tcp, self.tcp)];
        let ports = ports.into_iter().filter_map(|(key, protocol, port)| Some((key, protocol, port?.get())));
        let ports = ports.flat_map(|(key, protocol, port)| {
            let at = move |address| (key, (protocol, port, address));
            let all = self.addresses.is_empty().then(|| at(None));
            all.into_iter().chain(self.addresses.iter().map(move |address| at(Some(*address))))
        });
        let flows = self.flows.iter().map(|flow| flow.0.destination);
        ports.chain(flows.map(|end| ("service.flows", (Protocol::Udp, end.port(), Some(end.ip())))))
    }

    /// The first socket of `new` that cannot be bound while those of this service are open: a port at all
    /// addresses that this service has at some, or the reverse. A socket that both have is passed on
    /// instead.
    pub(super) fn in_the_way_of(&self, new: &Self) -> Option<Fault> {
        let held: Vec<End> = self.ends().map(|(_, end)| end).collect();
        let meets = |(protocol, port, address): &End| {
            let place = |end: &&End| (end.0, end.1) == (*protocol, *port);
            let same = held.contains(&(*protocol, *port, *address));
            !same && held.iter().filter(place).any(|(.., at)| at.is_none() || address.is_none())
        };
        let (key, (protocol, port, _)) = new.ends().find(|(_, end)| meets(end))?;
        let (own, new) = (self.shown_name(), new.shown_name());
        let sentence = format!(
            "`{new}` wants {protocol} port {port} at other addresses than `{own}` holds it now, which cannot be bound beside each \
             other: restart for that"
        );
        Some(Fault::new(key, sentence))
    }

    /// Port, EtherType and name that an earlier service has already.
    fn conflicts_with(&self, earlier: &Self) -> Vec<Wrong> {
        let (own, other) = (self.shown_name(), earlier.shown_name());
        let mut wrong = Vec::new();
        if own == other {
            wrong.push((
                "service.name",
                format!("two services are called `{own}`: give each a name of its own"),
            ));
        }
        if let Some(ethertype) = self.ethertype.filter(|it| earlier.ethertype == Some(*it)) {
            wrong.push((
                "service.ethertype",
                format!("frames of type {ethertype:#06x} are served by `{other}` already: give `{own}` another type"),
            ));
        }
        let taken: Vec<End> = earlier.ends().map(|(_, end)| end).collect();
        let overlap = |(protocol, port, address): &End| {
            taken.iter().any(|(its_protocol, its_port, its_address)| {
                let meet = address.is_none() || its_address.is_none() || address == its_address;
                (protocol, port) == (its_protocol, its_port) && meet
            })
        };
        for (key, end) in self.ends().filter(|(_, end)| overlap(end)) {
            let (protocol, port, _) = end;
            let sentence = format!(
                "{protocol} port {port} is served by `{other}` already: give `{own}` another port, or each of them \
                 addresses of its own"
            );
            if !wrong.iter().any(|(known, _)| *known == key) {
                wrong.push((key, sentence));
            }
        }
        wrong
    }

    fn kind_fault(&self) -> Option<Wrong> {
        match (self.kind, self.ethertype) {
            (Some(kind), Some(_)) if kind != ServiceKind::Reflect => {
                let sentence = format!("{kind} serves ports: frames are served by reflect");
                Some(("service.ethertype", sentence))
            }
            (Some(ServiceKind::Chargen), _) => self.chargen_fault(),
            (Some(ServiceKind::Discard), _) => self.no_port_fault("9 is discard's"),
            (Some(ServiceKind::Rpc | ServiceKind::Nfs), _) => self.no_port_fault("2049 is NFS's; clients find others by rpcbind"),
            (Some(ServiceKind::Echo), _) | (None, None) => self.no_port_fault("7 is echo's"),
            (Some(ServiceKind::Reflect), _) if self.has_port() => {
                Some(("service.udp", "reflect serves frames of an EtherType: leave out udp and tcp".into()))
            }
            (Some(ServiceKind::Reflect), None) => Some((
                "service.ethertype",
                "which frames? Set it, or give --ethertype 0x88b5 (IEEE 802 leaves that to local experiments)"
                    .into(),
            )),
            (Some(ServiceKind::Reflect) | None, Some(ethertype)) => {
                let fault = Claim::ethertype(ethertype).check().err()?;
                Some(("service.ethertype", fault.to_string()))
            }
        }
    }

    fn chargen_fault(&self) -> Option<Wrong> {
        if self.udp.is_some() || !self.flows.is_empty() {
            let key = if self.udp.is_some() { "service.udp" } else { "service.flows" };
            let sentence = "chargen is served over TCP only: over UDP, anybody who forges a sender's address could have it send \
                            more than he sends himself; leave it out, and set service.tcp or give --tcp PORT";
            return Some((key, sentence.into()));
        }
        self.tcp.is_none().then(|| {
            let sentence = "no port: give --tcp PORT, or set service.tcp (19 is chargen's)";
            ("service.tcp", sentence.to_owned())
        })
    }

    fn no_port_fault(&self, usual: &str) -> Option<Wrong> {
        (!self.has_port() && self.flows.is_empty())
            .then(|| ("service.udp", format!("no port: give --udp PORT, --tcp PORT or both, or set service.udp or service.tcp ({usual})")))
    }

    fn tcp_path_fault(&self) -> Option<Wrong> {
        (self.tcp_path == TcpPathAsked::Fast && self.tcp.is_none()).then(|| {
            ("service.tcp_path", "there is no TCP port: set service.tcp, or give --tcp PORT".to_owned())
        })
    }

    fn addresses_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.addresses", sentence));
        if !self.addresses.is_empty() && !self.has_port() {
            return wrong("there is no port to serve at them: set service.udp or service.tcp".into());
        }
        if self.addresses.len() > ADDRESSES_MAX {
            let count = self.addresses.len();
            return wrong(format!("{count} addresses: name at most {ADDRESSES_MAX}, or none for all"));
        }
        if let Some(twice) = twice(&self.addresses) {
            return wrong(format!("{twice} stands there twice"));
        }
        let misplaced = self.addresses.iter().find(|address| match address.to_canonical() {
            IpAddr::V4(v4) => v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local(),
        });
        let address = misplaced.or_else(|| self.addresses.iter().find(|ip| ip.to_canonical() != **ip))?;
        wrong(format!(
            "{address} is not an address of its own to serve at: name an interface's, not a link-local one"
        ))
    }

    fn flows_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.flows", sentence));
        if self.flows.is_empty() {
            return None;
        }
        if self.kind == Some(ServiceKind::Reflect) {
            return wrong("reflect serves frames of an EtherType: leave out flows".into());
        }
        if self.flows.len() > FLOWS_MAX {
            return wrong(format!("{} flows: name at most {FLOWS_MAX}", self.flows.len()));
        }
        if let Some(twice) = twice(&self.flows) {
            return wrong(format!("{twice} stands there twice"));
        }
        if let Some(tcp) = self.flows.iter().find(|flow| flow.0.protocol == Protocol::Tcp) {
            return wrong(format!(
                "{tcp}: connections are claimed one by one as they begin: set service.tcp_path instead"
            ));
        }
        for flow in &self.flows {
            if let Err(fault) = Claim::flow(flow.0).check() {
                return wrong(format!("{flow}: {fault}"));
            }
            if flow.0.source.port() == 0 || flow.0.destination.ip().is_unspecified() {
                return wrong(format!("{flow}: a flow has both its ends in full"));
            }
        }
        let ends: HashSet<_> = self.flows.iter().map(|flow| flow.0.destination).collect();
        let own_ends = ends.iter().filter(|end| self.udp.map(NonZeroU16::get) != Some(end.port())).count();
        (own_ends > FLOW_ENDS_MAX).then(|| {
            let sentence =
                format!("{own_ends} of our addresses and ports: at most {FLOW_ENDS_MAX} have a socket");
            ("service.flows", sentence)
        })
    }

    fn sources_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.sources", sentence));
        if !self.sources.is_empty() && !self.has_port() {
            return wrong("senders are listed for ports: a flow names its own, frames have none".into());
        }
        if self.sources.len() > SOURCES_MAX {
            return wrong(format!("{} prefixes: name at most {SOURCES_MAX}, join some", self.sources.len()));
        }
        twice(&self.sources).and_then(|twice| wrong(format!("{} stands there twice", twice.0)))
    }
}

/// The first item that the list contains twice.
fn twice<T: Copy + Eq + std::hash::Hash>(list: &[T]) -> Option<T> {
    let mut seen = HashSet::new();
    list.iter().copied().find(|item| !seen.insert(*item))
}
