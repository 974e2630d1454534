//! A table as the entries of the maps.

use twinpath_steer::{Claim, ClaimKind, Table};
use twinpath_wire::Protocol;
use twinpath_wire::flow_key::address_bytes;

use crate::layout::{
    AddressKey, ClaimKey, ClaimValue, Config, FlowKeyBytes, HAS_ADDRESS_CLAIMS, HAS_ETHERTYPES, HAS_FLOWS,
    HAS_VLANS, KIND_ETHERTYPE, Ports, SourceKey, VLAN_NONE, family,
};

/// Everything a table puts into the maps for one generation.
pub(crate) struct Rules {
    pub(crate) config: Config,
    pub(crate) ports: Box<Ports>,
    pub(crate) claims: Vec<(ClaimKey, ClaimValue)>,
    pub(crate) addresses: Vec<AddressKey>,
    pub(crate) flows: Vec<(FlowKeyBytes, u32)>,
    /// Prefix length, counted from the start of the key's data, and that data.
    pub(crate) sources: Vec<(u32, SourceKey)>,
}

impl Rules {
    pub(crate) fn of(table: &Table, generation: u8) -> Self {
        let mut rules = Self {
            config: Config {
                mac: table.mac().0,
                flags: 0,
                frame_len_max: table.frame_len_max(),
                reserved: 0,
            },
            ports: Box::new([[0; 1024]; 2]),
            claims: Vec::new(),
            addresses: table
                .addresses()
                .iter()
                .map(|&address| AddressKey::new(generation, address))
                .collect(),
            flows: Vec::new(),
            sources: Vec::new(),
        };
        for (index, claim) in table.claims().iter().enumerate() {
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
        let value = ClaimValue { index, has_sources: u16::from(!claim.sources.is_empty()) };
        if claim.vlan.is_some() {
            self.config.flags |= HAS_VLANS;
        }
        if let Some((protocol, port)) = claim.transport() {
            let bits = &mut self.ports[usize::from(protocol == Protocol::Tcp)];
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
                self.flows.push((key, u32::from(index)));
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
