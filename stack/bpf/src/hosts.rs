//! The addresses of this host, for the program that puts datagrams into rings (`bpf/lease.c`): the kernel decides
//! about frames from them.

use std::collections::HashSet;
use std::net::IpAddr;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};

use twinpath_wire::flow_key::address_bytes;

use crate::SteerError;
use crate::layout::family;
use crate::layouts::{HOST_BITS, HostKey};
use crate::maps::{gone, typed, wrote};

type Bits = [u64; HOST_BITS / 64];

pub(crate) struct Hosts {
    hosts: HashMap<MapData, HostKey, u32>,
    bits: Array<MapData, Bits>,
    known: HashSet<HostKey>,
}

impl Hosts {
    pub(crate) fn take(object: &mut Ebpf) -> Result<Self, SteerError> {
        let (hosts, bits) = (typed(object, "hosts")?, typed(object, "host_bits")?);
        Ok(Self { hosts, bits, known: HashSet::new() })
    }

    /// Makes the maps equal to these addresses. New ones come into force before former ones are removed.
    pub(crate) fn set(&mut self, hosts: &[IpAddr]) -> Result<(), SteerError> {
        let wanted: HashSet<HostKey> = hosts.iter().map(|host| key(*host)).collect();
        if wanted == self.known {
            return Ok(());
        }
        for new in wanted.difference(&self.known.clone()) {
            self.hosts.insert(new, 1, 0).map_err(wrote("hosts"))?;
            self.known.insert(*new);
        }
        let mut bits = [0; HOST_BITS / 64];
        for HostKey { address, .. } in &wanted {
            let bit = bit(*address);
            bits[bit / 64] |= 1 << (bit % 64);
        }
        self.bits.set(0, bits, 0).map_err(wrote("host_bits"))?;
        for former in self.known.difference(&wanted) {
            gone(self.hosts.remove(former), "hosts")?;
        }
        self.known = wanted;
        Ok(())
    }
}

/// The address as words in the order of its bytes.
fn key(host: IpAddr) -> HostKey {
    let mut key = HostKey { family: family(host).into(), address: [0; 4] };
    for (word, bytes) in key.address.iter_mut().zip(address_bytes(host).as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    key
}

/// As in `is_host`.
fn bit(address: [u32; 4]) -> usize {
    let folded = address.iter().fold(0, |folded, word| folded ^ word);
    (folded.wrapping_mul(0x9e37_79b1) >> 20) as usize
}
