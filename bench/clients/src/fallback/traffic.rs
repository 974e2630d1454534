//! Typical frames of kernel traffic for test runs, and a table of claims like a busy host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use twinpath_claims::{Claim, Table, TableError};
use twinpath_frame::UMEM_CHUNK_DATA_MAX;
use twinpath_wire::{EmitError, EtherType, Mac, Protocol, eth, ipv4, ipv6};

const HOST: Mac = Mac([0x02, 0x74, 0x70, 0, 1, 2]);
const PEER: Mac = Mac([0x02, 0x74, 0x70, 0, 1, 1]);
const HOST_V4: Ipv4Addr = Ipv4Addr::new(10, 113, 0, 2);
const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd74, 0x7770, 1, 0, 0, 0, 0, 2);

/// The first of the claimed ports, which are UDP and TCP in turns.
const CLAIMED_PORT: u16 = 2049;
/// Claims of [`table`].
pub const CLAIMS: u16 = 16;
/// A port without a claim that shares its low byte with a claimed one, which is the more costly case.
const UNCLAIMED_PORT: u16 = CLAIMED_PORT + 0x4000;

/// A TCP header with a timestamp option, as all segments of Linux have, and a UDP header.
const TCP_LEN: usize = 32;
const UDP_LEN: usize = 8;
const ACK: u8 = 0x10;

/// A kind of frame that stays with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFrame {
    /// Stable name: `tcp-segment`, `tcp-ack`, `udp`, each `-v6` for IPv6.
    pub name: &'static str,
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// A host that serves 16 ports at 4 addresses.
///
/// # Errors
/// None in fact: everything is far below the table's bounds.
pub fn table() -> Result<Table, TableError> {
    let mut table = Table::new(HOST, UMEM_CHUNK_DATA_MAX)?;
    let addresses: [IpAddr; 4] = [
        HOST_V4.into(),
        Ipv4Addr::new(10, 113, 0, 3).into(),
        HOST_V6.into(),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0x74, 0x70ff, 0xfe00, 0x102).into(),
    ];
    for address in addresses {
        table.add_address(address)?;
    }
    for number in 0..CLAIMS {
        let protocol = if number % 2 == 0 { Protocol::Udp } else { Protocol::Tcp };
        table.add_claim(Claim::port(protocol, CLAIMED_PORT + number / 2))?;
    }
    Ok(table)
}

/// Frames to that host without a claim: bulk TCP, its acknowledgements, and small UDP, over IPv4 and IPv6.
///
/// # Errors
/// None in fact: every buffer is as long as what is written to it.
pub fn frames() -> Result<Vec<KernelFrame>, EmitError> {
    frames_to(UNCLAIMED_PORT)
}

/// Those of TCP: to a port at which connections are claimed, of one that the kernel has; or to a port without a claim.
///
/// # Errors
/// As [`frames`].
pub fn segments(claimed: bool) -> Result<Vec<KernelFrame>, EmitError> {
    let mut frames = frames_to(if claimed { CLAIMED_PORT } else { UNCLAIMED_PORT })?;
    frames.retain(|frame| frame.name.starts_with("tcp"));
    Ok(frames)
}

fn frames_to(port: u16) -> Result<Vec<KernelFrame>, EmitError> {
    let tcp = |payload| transport(TCP_LEN + payload);
    let kinds: [(&'static str, bool, Protocol, Vec<u8>); 6] = [
        ("tcp-segment", true, Protocol::Tcp, tcp(1448)),
        ("tcp-ack", true, Protocol::Tcp, tcp(0)),
        ("udp", true, Protocol::Udp, transport(UDP_LEN + 64)),
        ("tcp-segment-v6", false, Protocol::Tcp, tcp(1428)),
        ("tcp-ack-v6", false, Protocol::Tcp, tcp(0)),
        ("udp-v6", false, Protocol::Udp, transport(UDP_LEN + 64)),
    ];
    kinds
        .into_iter()
        .map(|(name, v4, protocol, mut transport)| {
            transport[2..4].copy_from_slice(&port.to_be_bytes());
            finish(protocol, &mut transport);
            Ok(KernelFrame { name, bytes: frame(v4, protocol, &transport)? })
        })
        .collect()
}

fn transport(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..2].copy_from_slice(&40_000u16.to_be_bytes());
    bytes
}

/// Sets the fields that differ between the protocols. Checksums stay zero: no program reads them.
fn finish(protocol: Protocol, transport: &mut [u8]) {
    match protocol {
        Protocol::Tcp => {
            transport[12] = ((TCP_LEN / 4) << 4) as u8;
            transport[13] = ACK;
        }
        Protocol::Udp => {
            let len = transport.len() as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
        }
    }
}

fn frame(v4: bool, protocol: Protocol, transport: &[u8]) -> Result<Vec<u8>, EmitError> {
    let ethertype = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let ip_len = if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let mut frame = vec![0; eth::HEADER_LEN + ip_len];
    eth::Repr { destination: HOST, source: PEER, tag: None, ethertype }.emit(&mut frame)?;
    let ip = &mut frame[eth::HEADER_LEN..];
    if v4 {
        let header = ipv4::Repr {
            source: Ipv4Addr::new(10, 113, 0, 1),
            destination: HOST_V4,
            protocol: protocol.number(),
            hop_limit: 64,
            identification: 1,
            payload_len: transport.len(),
        };
        header.emit(ip)?;
    } else {
        let header = ipv6::Repr {
            source: Ipv6Addr::new(0xfd74, 0x7770, 1, 0, 0, 0, 0, 1),
            destination: HOST_V6,
            next_header: protocol.number(),
            hop_limit: 64,
            payload_len: transport.len(),
        };
        header.emit(ip)?;
    }
    frame.extend_from_slice(transport);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use twinpath_claims::{Context, PassReason, Verdict, verdict};

    use super::*;

    #[test]
    fn every_frame_is_the_kernels_because_nothing_claims_its_port() {
        let table = table().unwrap();
        assert_eq!((table.claims().len(), table.addresses().len()), (usize::from(CLAIMS), 4));
        let frames = frames().unwrap();
        assert_eq!(frames.len(), 6);
        for frame in &frames {
            let verdict = verdict(&frame.bytes, &Context::default(), &table);
            assert_eq!(verdict, Verdict::Pass(PassReason::Unclaimed), "{}", frame.name);
        }
        for claimed in [false, true] {
            let segments = segments(claimed).unwrap();
            assert_eq!(segments.len(), 4);
            for segment in &segments {
                let verdict = verdict(&segment.bytes, &Context::default(), &table);
                assert!(matches!(verdict, Verdict::Pass(_)), "{}: {verdict:?}", segment.name);
            }
        }
        let len = |name: &str| frames.iter().find(|frame| frame.name == name).unwrap().bytes.len();
        assert_eq!((len("tcp-segment"), len("tcp-segment-v6"), len("tcp-ack")), (1514, 1514, 66));
    }
}
