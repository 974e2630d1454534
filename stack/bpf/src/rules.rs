//! Translates a table to the entries of the maps.

use std::collections::HashMap;

use twinpath_claims::{Claim, ClaimKind, Table};
use twinpath_wire::Protocol;
use twinpath_wire::flow_key::address_bytes;

use crate::layout::{
    AddressKey, ClaimKey, ClaimValue, Config, FlowKeyBytes, HAS_ADDRESS_CLAIMS, HAS_CONNECTIONS,
    HAS_ETHERTYPES, HAS_FLOWS, HAS_IPV4, HAS_IPV6, HAS_VLANS, KIND_ETHERTYPE, MANY_IPV4, MANY_IPV6, NO_PORTS,
    Plain, PlainClaims, Ports, SourceKey, VLAN_NONE, family, reflex_word,
};

/// All map entries of a table, for one generation.
pub(crate) struct Rules {
    pub(crate) config: Config,
    pub(crate) ports: Box<Ports>,
    pub(crate) plain: Box<PlainClaims>,
    pub(crate) claims: Vec<(ClaimKey, ClaimValue)>,
    pub(crate) addresses: Vec<AddressKey>,
    pub(crate) flows: Vec<(FlowKeyBytes, u32)>,
    /// Prefix length, counted from the start of the key's data, and that data.
    pub(crate) sources: Vec<(u32, SourceKey)>,
}

impl Rules {
    /// The entries of a table. Without `connections`, the programs can claim none, and the kernel serves those.
    pub(crate) fn of(table: &Table, generation: u8, connections: bool) -> Self {
        let mut rules = Self {
            config: config(table),
            ports: Box::new(NO_PORTS),
            plain: plain_claims(table, connections),
            claims: Vec::new(),
            addresses: table
                .addresses()
                .iter()
                .map(|&address| AddressKey::new(generation, address))
                .collect(),
            flows: Vec::new(),
            sources: Vec::new(),
        };
        let claims = table.claims().iter().enumerate();
        for (index, claim) in claims.filter(|(_, claim)| connections || !claim.connections) {
            rules.add(generation, index as u16, claim);
        }
        rules
    }

    fn add(&mut self, generation: u8, index: u16, claim: &Claim) {
        let vlan = claim.vlan.unwrap_or(VLAN_NONE);
        let mut key = ClaimKey {
            generation,
            kind: KIND_ETHERTYPE,
            family: 0,
            reserved: 0,
            vlan,
            number: [0; 2],
            address: [0; 16],
        };
        let reflex = reflex_word(claim.reflex);
        let has_sources = u16::from(!claim.sources.is_empty());
        let value = ClaimValue { index, has_sources, reflex, connections: claim.connections.into() };
        if claim.connections {
            self.config.flags |= HAS_CONNECTIONS;
        }
        if claim.vlan.is_some() {
            self.config.flags |= HAS_VLANS;
        }
        if let Some((protocol, port)) = claim.transport() {
            let bits = &mut self.ports[protocol.index()];
            bits[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        match claim.kind {
            ClaimKind::EtherType(ethertype) => {
                self.config.flags |= HAS_ETHERTYPES;
                key.number = ethertype.to_be_bytes();
                self.claims.push((key, value));
            }
            ClaimKind::Port { protocol, port, address } => {
                key.kind = protocol.number();
                key.number = port.to_be_bytes();
                if let Some(address) = address {
                    self.config.flags |= HAS_ADDRESS_CLAIMS;
                    key.family = family(address);
                    key.address = address_bytes(address);
                }
                self.claims.push((key, value));
            }
            ClaimKind::Flow(flow) => {
                self.config.flags |= HAS_FLOWS;
                let key = FlowKeyBytes {
                    family: family(flow.destination.ip()),
                    protocol: flow.protocol.number(),
                    vlan,
                    source_port: flow.source.port().to_be_bytes(),
                    destination_port: flow.destination.port().to_be_bytes(),
                    source: address_bytes(flow.source.ip()),
                    destination: address_bytes(flow.destination.ip()),
                };
                self.flows.push((key, u32::from(index) | u32::from(reflex) << 16));
            }
        }
        self.sources.extend(claim.sources.iter().map(|prefix| {
            let key = SourceKey {
                generation,
                family: family(prefix.address()),
                claim: index.to_be_bytes(),
                address: address_bytes(prefix.address()),
            };
            (32 + u32::from(prefix.len()), key)
        }));
    }
}

/// The configuration with the first local addresses; flags of claims are added with the claims.
fn config(table: &Table) -> Config {
    let mut config = Config { mac: table.mac().0, frame_len_max: table.frame_len_max(), ..Config::default() };
    let of = |v4: bool| table.addresses().iter().filter(move |address| address.is_ipv4() == v4);
    let flags = [
        (of(true).count(), config.ipv4.len(), HAS_IPV4, MANY_IPV4),
        (of(false).count(), config.ipv6.len(), HAS_IPV6, MANY_IPV6),
    ];
    for (count, room, has, many) in flags {
        config.flags |= if count > 0 { has } else { 0 } | if count > room { many } else { 0 };
    }
    fill(&mut config.ipv4, of(true).filter_map(|&address| address_bytes(address).first_chunk().copied()));
    fill(&mut config.ipv6, of(false).map(|&address| address_bytes(address)));
    config
}

/// Fills the slots, the rest with the last value, because an unused slot must not look like an address.
fn fill<T: Copy>(slots: &mut [T], values: impl Iterator<Item = T>) {
    let mut values = values;
    let mut last = None;
    for slot in slots {
        last = values.next().or(last);
        *slot = last.unwrap_or(*slot);
    }
}

/// The claims that are found without a hash table: at most one for each low byte of a port.
fn plain_claims(table: &Table, connections: bool) -> Box<PlainClaims> {
    let mut on_port: HashMap<(Protocol, u16), usize> = HashMap::new();
    for transport in table.claims().iter().filter_map(Claim::transport) {
        *on_port.entry(transport).or_default() += 1;
    }
    let mut slots = Box::new([Plain::default(); 256]);
    for (index, claim) in table.claims().iter().enumerate() {
        let ClaimKind::Port { protocol, port, address: None } = claim.kind else { continue };
        let slot = &mut slots[usize::from(port & 0xff)];
        let alone = on_port.get(&(protocol, port)) == Some(&1) && (connections || !claim.connections);
        if alone && claim.vlan.is_none() && claim.sources.is_empty() && slot.protocol == 0 {
            *slot = Plain {
                port: port.to_be_bytes(),
                protocol: protocol.number(),
                connections: claim.connections.into(),
                index: index as u16,
                reflex: reflex_word(claim.reflex),
            };
        }
    }
    slots
}
