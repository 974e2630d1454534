//! `[switch]` and `[[switch.port]]`: a switch and its ports.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use twinpath_wire::vxlan;

use super::key::{Change, KeyValue, Override as _, Takes, section};
use super::{Config, Fault, Wrong};
use crate::values::{
    AddressList, Command, DatapathId, Endpoint, FailMode, NAME_MAX, Offload, OnExit, PortKind, PortMode,
    PortName, PortOffload, Receive, StaticEntry, VLAN_MAX, VlanList, is_name,
};

/// Maximum number of ports: their numbers are below 4095, in the engine and in workers.
const PORTS_MAX: usize = twinpath_port::PORTS_MAX;
/// Maximum number of static entries.
const STATIC_MAX: usize = 4096;
/// The shortest and the longest ageing time (IEEE 802.1Q, table 8-6).
const AGEING_S: (u64, u64) = (10, 1_000_000);
/// From a page of entries to 64 MiB of them.
const MAC_ENTRIES: (u64, u64) = (4096, 1 << 22);
/// One hour. A loop that lasts is detected again.
const LOOP_BLOCK_S_MAX: u64 = 3600;
/// More than any port carries.
const FRAMES_PER_S_MAX: u64 = 1_000_000_000;
/// Maximum number of remotes of a VXLAN port: a frame for all of them is sent to each.
pub const REMOTES_MAX: usize = 64;
/// The total number of counters of flows, groups and meters is limited (`switch/forwarding/src/openflow/pipeline`).
const FLOWS_MAX: u64 = 2_000_000;
/// The highest port number; 0 means no port in OpenFlow.
pub(super) const NUMBER_MAX: u64 = twinpath_port::PORTS_MAX as u64 - 1;
/// The command that runs a switch.
const SWITCH: &[Command] = &[Command::Switch];

section! {
    /// `[switch]`
    pub struct Switch, SwitchOverrides in "switch" {
        /// The name in `twinpath show` and metrics
        name: Option<String> = None =>
            values_are("1 to 32 letters, digits, `-`, `_`, `.`"), unset("none: has to be given"), example("\"sw0\"");

        /// The interface of this host itself on the switch: a TAP interface, which the switch creates
        local: Option<String> = None =>
            values_are("a new name for an interface"), unset("none: this host is not on it"),
            option("local", "NAME", SWITCH), example("\"sw0-host\""), change(Change::Reload);

        /// A port and its keys, such as veth1 or veth1,vlan=10 (tables [[switch.port]] in a file)
        port: Vec<SwitchPort> = Vec::new() =>
            values_are("tables, at most 4095"), unset("none"), option("port", "PORT[,KEY=VALUE]", SWITCH), example("[]"), change(Change::Reload);

        /// Who carries frames between interfaces after the switch has ended, or while it hangs: nobody (dark); the kernel
        /// bridge of the interfaces (bridge); or the kernel by its flows, for this time after the end, until the switch
        /// is started again (keep=SECONDS)
        on_exit: OnExit = OnExit::default() => option("on-exit", "WHAT", SWITCH);

        /// A fixed address of a port, as MAC,PORT or MAC,PORT,VLAN
        static_entries: Vec<StaticEntry> = Vec::new() =>
            values_are("at most 4096: `[\"02:00:00:00:00:01,veth1\"]`"), unset("none"),
            option("static", "MAC,PORT[,VLAN]", SWITCH), example("[\"02:00:00:00:00:01,veth1\"]"), change(Change::Reload);

        /// How long an address is remembered after its last frame
        ageing_s: u32 = 300 => range(AGEING_S.0, AGEING_S.1), unit("s"), option("ageing-s", "S", SWITCH), change(Change::Reload);

        /// Size of the address table; up to twice as many addresses are learned if they find places
        mac_entries: u32 = 16_384 =>
            range(MAC_ENTRIES.0, MAC_ENTRIES.1), power_of_two(), unit("addresses"), option("mac-entries", "N", SWITCH);

        /// How long a port in a loop with another port is blocked
        loop_block_s: u32 = 10 =>
            range(1, LOOP_BLOCK_S_MAX), unit("s"), zero("no search for loops"), option("loop-block-s", "S", SWITCH), change(Change::Reload);

        /// An OpenFlow controller that the switch connects to, as tcp:HOST:PORT, tls:HOST:PORT or unix:PATH
        controller: Vec<Endpoint> = Vec::new() =>
            values_are("at most 16: `[\"tcp:192.0.2.1:6653\"]`"), unset("none"), option("controller", "ADDRESS", SWITCH), example("[\"tcp:192.0.2.1:6653\"]"), change(Change::Reload);

        /// Address at which OpenFlow controllers and tools such as ovs-ofctl connect, as tcp:HOST:PORT, tls:HOST:PORT or unix:PATH
        listen: Vec<Endpoint> = Vec::new() =>
            values_are("at most 16: `[\"tcp:127.0.0.1:6654\"]`"), unset("nowhere"), option("listen", "ADDRESS", SWITCH), example("[\"tcp:127.0.0.1:6654\"]"), change(Change::Reload);

        /// The private key for TLS with controllers, a file in PEM
        tls_key: Option<PathBuf> = None => values_are("a path"), unset("none: TLS needs it"), option("tls-key", "FILE", SWITCH), example("\"/etc/twinpath/sw0-key.pem\"");

        /// Its certificate, a file in PEM, followed by the intermediate certificates
        tls_certificate: Option<PathBuf> = None => values_are("a path"), unset("none: TLS needs it"), option("tls-certificate", "FILE", SWITCH), example("\"/etc/twinpath/sw0-cert.pem\"");

        /// The certificate of the authority that must have signed the controllers' certificates, a file in PEM
        tls_ca: Option<PathBuf> = None => values_are("a path"), unset("none: TLS needs it"), option("tls-ca", "FILE", SWITCH), example("\"/etc/twinpath/controllers-ca.pem\"");

        /// Forwarding while no controller is connected: by the present flows (secure), or by learned addresses (standalone)
        fail_mode: FailMode = FailMode::default() => option("fail-mode", "WHAT", SWITCH), change(Change::Reload);

        /// Whether the kernel forwards flows, and frames between learned addresses, as far as it can, among ports that are interfaces of one network namespace (auto), or nothing (off)
        offload: Offload = Offload::default() => option("offload", "WHAT", SWITCH);

        /// The number of the switch for controllers
        datapath_id: Option<DatapathId> = None =>
            values_are("1 to 16 hexadecimal digits, not 0"), unset("from /etc/machine-id and the switch's name"), option("datapath-id", "HEX", SWITCH), example("\"00000000000000a1\"");

        /// Maximum number of flows of controllers, and of groups, and of meters
        flows_max: u32 = 1_000_000 => range(1, FLOWS_MAX), unit("flows"), option("flows-max", "N", SWITCH);

        /// Maximum rate of frames from one port to controllers
        packet_in_limit: u32 = 1000 => range(1, FRAMES_PER_S_MAX), unit("frames/s"), option("packet-in-limit", "N", SWITCH);
    }
}

section! {
    /// `[[switch.port]]`
    pub struct SwitchPort, SwitchPortOverrides in "switch.port" {
        /// The port: an interface (veth1, or veth1@NETNS in another network namespace), tap:NAME, memory:NAME or
        /// vxlan:NAME
        name: Option<PortName> = None =>
            values_are("`IFACE`, `IFACE@NETNS`, `tap:NAME`, `memory:NAME`, `vxlan:NAME`, `vxlan:NAME@NETNS`"), unset("none: has to be given"),
            example("\"veth1\"");

        /// The number of the port in OpenFlow and in the switch
        number: Option<u32> = None => range(1, NUMBER_MAX), unset("the next one that is free"), comment("1");

        /// access (one VLAN, without tags), trunk (several, with tags) or monitor (it only sends copies of frames)
        mode: PortMode = PortMode::default() => change(Change::Port);

        /// The VLAN of an access port
        vlan: u32 = 1 => range(1, VLAN_MAX as u64), change(Change::Port);

        /// The VLANs of a trunk, such as 10,20-30; on the command line with + for the comma
        vlans: VlanList = VlanList::default() => values_are("`\"10,20-30\"`, of 1 to 4094"), unset("all"), example("\"\""), change(Change::Port);

        /// The VLAN of frames without a tag on a trunk, in both directions
        native: Option<u32> = None => range(1, VLAN_MAX as u64), unset("none: they are dropped"), comment("1"), change(Change::Port);

        /// Maximum number of addresses learned at the port; frames from others pass, and replies to them are flooded
        mac_limit: u32 = 0 => range(1, MAC_ENTRIES.1), zero("no limit"), unit("addresses"), change(Change::Port);

        /// Maximum rate of broadcast frames from the port
        broadcast_limit: u32 = 0 => range(1, FRAMES_PER_S_MAX), zero("no limit"), unit("frames/s"), change(Change::Port);

        /// Maximum rate of frames to unknown addresses from the port
        unknown_limit: u32 = 0 => range(1, FRAMES_PER_S_MAX), zero("no limit"), unit("frames/s"), change(Change::Port);

        /// Maximum rate of multicast frames from the port
        multicast_limit: u32 = 0 => range(1, FRAMES_PER_S_MAX), zero("no limit"), unit("frames/s"), change(Change::Port);

        /// The port that gets a copy of each frame of this port, in both directions
        mirror_to: Option<PortName> = None => values_are("the name of another port"), unset("none"), comment("\"veth9\""), change(Change::Port);

        /// Where the kernel looks for the flow of a frame: at tc, first in the driver (xdp), or in the driver if nothing else suffers (auto)
        offload: PortOffload = PortOffload::default() => change(Change::Port);

        /// Where the kernel receives frames of a veth interface: in the sending call (sender), or in a thread of its own
        /// (thread), which receives several times as many small frames, but takes longer for a single one
        receive: Receive = Receive::default() => change(Change::Port);

        /// The network identifier of a VXLAN port
        vni: Option<u32> = None => range(0, vxlan::VNI_MAX as u64), unset("none: a VXLAN port needs it"), comment("100"), change(Change::Port);

        /// The other hosts of a VXLAN port; on the command line with + for the comma
        remotes: AddressList = AddressList::default() => values_are("`\"192.0.2.2,192.0.2.3\"`, at most 64"), unset("none: a VXLAN port needs one"), comment("\"192.0.2.2\""), change(Change::Port);

        /// The address of this host that a VXLAN port uses
        local: Option<IpAddr> = None => values_are("an address of this host"), unset("all; the route chooses the one to send from"), comment("\"192.0.2.1\""), change(Change::Port);

        /// The UDP port of a VXLAN port, here and at its remotes
        udp_port: u32 = vxlan::UDP_PORT as u32 => range(1, u16::MAX as u64), change(Change::Port);
    }
}

/// A port on the command line: `veth1,vlan=10,mac_limit=100`.
impl FromStr for SwitchPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, keys) = text.split_once(',').unwrap_or((text, ""));
        let mut overrides = SwitchPortOverrides::of_keys(keys.split(',').filter(|key| !key.is_empty()))?;
        overrides.name = Some(Some(name.parse()?));
        let mut port = Self::default();
        port.apply(&overrides);
        Ok(port)
    }
}

impl SwitchPortOverrides {
    /// The values of keys written as `vlan=10`.
    ///
    /// # Errors
    /// A sentence: what is wrong, and what to write instead.
    pub fn of_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut overrides = Self::default();
        for key in keys {
            let (name, value) = key
                .split_once('=')
                .ok_or_else(|| format!("`{key}` is no key of a port with its value: write it as vlan=10"))?;
            let known = SwitchPort::KEYS.iter().find(|key| key.name == name && name != "name");
            let Some(known) = known else {
                let names = SwitchPort::KEYS.iter().map(|key| key.name).filter(|name| *name != "name");
                let names = names.collect::<Vec<_>>().join(", ");
                return Err(format!("a port has no key `{name}`: it has {names}"));
            };
            overrides.set(known.name, &[value.to_owned()]).map_err(|why| format!("{name}={value}: {why}"))?;
        }
        Ok(overrides)
    }
}

impl SwitchPort {
    /// The name, or an empty text.
    #[must_use]
    pub fn shown_name(&self) -> String {
        self.name.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// The kind of port, if it has a name.
    fn kind(&self) -> Option<PortKind> {
        self.name.as_ref().map(PortName::kind)
    }

    /// A copy with other values for some keys.
    #[must_use]
    pub fn with(&self, overrides: &SwitchPortOverrides) -> Self {
        let mut port = self.clone();
        port.apply(overrides);
        port
    }

    /// The keys that only VXLAN ports have.
    fn tunnel(&self) -> (Option<u32>, &AddressList, Option<IpAddr>, u32) {
        (self.vni, &self.remotes, self.local, self.udp_port)
    }

    /// Whether another port needs the same sockets, so that none has to be reopened.
    #[must_use]
    pub fn is_opened_as(&self, other: &Self) -> bool {
        self.tunnel() == other.tunnel() && self.offload == other.offload && self.receive == other.receive
    }

    /// The fault in the keys of a VXLAN port, or in using them at another port.
    fn tunnel_fault(&self) -> Option<(&'static str, String)> {
        if self.kind() != Some(PortKind::Vxlan) {
            let only = || "only a port vxlan:NAME has it".to_owned();
            let default = Self::default();
            let fault = [
                ("switch.port.vni", self.vni != default.vni),
                ("switch.port.remotes", self.remotes != default.remotes),
                ("switch.port.local", self.local != default.local),
                ("switch.port.udp_port", self.udp_port != default.udp_port),
            ];
            return fault.into_iter().find(|(_, differs)| *differs).map(|(key, _)| (key, only()));
        }
        let remotes = self.remotes.addresses();
        let other = |local: IpAddr| remotes.iter().find(|remote| remote.is_ipv4() != local.is_ipv4());
        match (self.vni, remotes.len()) {
            (None, _) => {
                Some(("switch.port.vni", "which network? Give its identifier, as in vni=100".to_owned()))
            }
            (_, 0) => Some((
                "switch.port.remotes",
                "which hosts? Give their addresses, as in remotes=192.0.2.2".to_owned(),
            )),
            (_, count) if count > REMOTES_MAX => {
                Some(("switch.port.remotes", format!("{count} remotes: a port has at most {REMOTES_MAX}")))
            }
            _ if self.local.is_some_and(|local| local.is_unspecified() || local.is_multicast()) => Some((
                "switch.port.local",
                "it is not the address of one host; leave it out for all of them".to_owned(),
            )),
            _ => {
                let (local, remote) = self.local.and_then(|local| Some((local, other(local)?)))?;
                Some((
                    "switch.port.local",
                    format!(
                        "the remote {remote} cannot be reached from {local}: one is IPv4, the other IPv6"
                    ),
                ))
            }
        }
    }

    /// Everything that cannot work, independent of the other ports.
    fn faults(&self, on_exit: OnExit) -> Vec<Wrong> {
        let mut faults = self.range_faults();
        let mut wrong = |key, sentence: &str| faults.push((key, sentence.to_owned()));
        if self.name.is_none() {
            let sentence = format!("which port? Name an interface, {}", PortKind::listed());
            wrong("switch.port.name", &sentence);
        }
        if self.receive == Receive::Thread {
            match (self.kind(), on_exit) {
                (None | Some(PortKind::Interface), OnExit::Keep(_)) => wrong(
                    "switch.port.receive",
                    "the thread ends with the switch, and with it what waits for it: give another on_exit, or leave receive at sender",
                ),
                (None | Some(PortKind::Interface), _) => {}
                _ => wrong("switch.port.receive", "only a veth interface has it"),
            }
        }
        faults.extend(self.tunnel_fault());
        let mut wrong = |key, sentence: &str| faults.push((key, sentence.to_owned()));
        match self.mode {
            PortMode::Access | PortMode::Monitor if !self.vlans.is_empty() || self.native.is_some() => {
                let key = if self.vlans.is_empty() { "switch.port.native" } else { "switch.port.vlans" };
                wrong(key, "only a trunk has it: set mode to trunk, or name one VLAN as vlan");
            }
            PortMode::Trunk | PortMode::Monitor if self.vlan != 1 => {
                wrong(
                    "switch.port.vlan",
                    "only an access port has one VLAN: a trunk has vlans, and native for frames without a tag",
                );
            }
            _ => {}
        }
        faults
    }
}

impl Switch {
    /// Whether the switch uses VLANs: it does once a port configures any. Otherwise tags pass unchanged.
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        self.port.iter().any(|port| port.mode == PortMode::Trunk || port.vlan != 1)
            || self.static_entries.iter().any(|entry| entry.vlan != 1)
    }

    /// The names of its ports, with that of the host's own interface.
    pub fn names(&self) -> impl Iterator<Item = PortName> {
        let local = self.local.clone().map(PortName::local);
        self.port.iter().filter_map(|port| port.name.clone()).chain(local)
    }

    /// Everything that is wrong with it.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.range_faults().into_iter().map(Fault::from).collect();
        let mut wrong = |key: String, sentence: String| faults.push(Fault::new(key, sentence));
        match &self.name {
            None => wrong(
                "switch.name".to_owned(),
                "which name? Set it here, or give it: twinpath switch NAME".to_owned(),
            ),
            Some(name) if !is_name(name) || name.starts_with('.') => wrong(
                "switch.name".to_owned(),
                format!("`{name}` is no name of a switch: 1 to {NAME_MAX} letters, digits, `-`, `_`, `.`"),
            ),
            Some(_) => {}
        }
        if let Some(why) = self.local.as_deref().and_then(PortName::local_fault) {
            wrong("switch.local".to_owned(), why);
        }
        let count = self.names().count();
        if count > PORTS_MAX {
            let sentence =
                format!("{count} ports: a switch has at most {PORTS_MAX}, its own interface included");
            wrong("switch.port".to_owned(), sentence);
        }
        if self.static_entries.len() > STATIC_MAX {
            let sentence = format!("{} static entries: at most {STATIC_MAX}", self.static_entries.len());
            wrong("switch.static_entries".to_owned(), sentence);
        }
        for (key, sentence) in self.openflow_faults() {
            wrong(key, sentence);
        }
        let known: BTreeSet<String> = self.names().map(|name| name.to_string()).collect();
        let listed = || known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut seen = BTreeSet::new();
        for (at, port) in self.port.iter().enumerate() {
            let key =
                |key: &str| format!("switch.port[{at}]{}", key.strip_prefix("switch.port").unwrap_or(key));
            let name = port.shown_name();
            for (path, sentence) in port.faults(self.on_exit) {
                wrong(
                    key(path),
                    if name.is_empty() { sentence } else { format!("{sentence} (port {name})") },
                );
            }
            if let Some(name) = &port.name {
                let is_before = !seen.insert(name);
                let here = name.interface().filter(|_| name.namespace().is_none());
                if is_before || here.is_some_and(|here| self.local.as_deref() == Some(here)) {
                    wrong(key(".name"), format!("{name} twice: a port is in a switch once"));
                }
            }
            if let Some(to) = &port.mirror_to {
                if Some(to) == port.name.as_ref() {
                    wrong(
                        key(".mirror_to"),
                        format!("{name} cannot be mirrored to itself: name another port"),
                    );
                } else if !known.contains(&to.to_string()) {
                    wrong(key(".mirror_to"), format!("there is no port {to}; there is {}", listed()));
                }
            }
        }
        for entry in &self.static_entries {
            if !known.contains(&entry.port.to_string()) {
                let sentence =
                    format!("there is no port {} for {}; there is {}", entry.port, entry.mac, listed());
                wrong("switch.static_entries".to_owned(), sentence);
            }
        }
        faults
    }
}

impl Config {
    /// Everything that is wrong with the configuration of a switch.
    #[must_use]
    pub fn check_switch(&self) -> Vec<Fault> {
        let Some(switch) = &self.switch else {
            return vec![Fault::new(
                "",
                "no switch is configured: give a NAME and each --port, or --config FILE with a [switch] section (a file with \
                 [[service]] is for `twinpath serve`)",
            )];
        };
        let mut faults = switch.faults();
        let tables = [self.worker.faults(), self.control.faults()];
        faults.extend(tables.into_iter().flatten().map(Fault::from));
        faults
    }
}

impl KeyValue for Vec<SwitchPort> {
    const TAKES: Takes = Takes::Several;

    fn read(texts: &[String]) -> Result<Self, String> {
        texts.iter().map(|text| text.parse()).collect()
    }
}
