//! Tuple-space explosion (Csikor et al., CoNEXT 2019): flows with a mask for each pair of prefix lengths, 1,024 in all, in no
//! order of priority, and the headers that have a table search as many of them as can be. Always the same ones.

use twinpath_openflow_wire::{ErrorCode, Message};
use twinpath_test_plain::{FRAME_BYTES, Frame, bare_frame};

use super::flows;

const SEED: u64 = 7;
const LENGTHS: std::ops::RangeInclusive<u32> = 1..=32;
const ETH_IPV4: u16 = 0x800;
const UDP: u8 = 17;

/// Source and destination address.
pub(crate) type Addresses = [u32; 2];

/// Differs from `address` in the bit behind the common prefix, `len` bits with it; the rest is anything.
fn differing(address: u32, len: u32, random: &mut fastrand::Rng) -> u32 {
    let bit = 1_u32 << (32 - len);
    let above = !(bit | (bit - 1));
    (address & above) | ((address ^ bit) & bit) | (random.u32(..) & (bit - 1))
}

/// The prefix lengths of each flow with its addresses, then the addresses of frames that no flow takes.
pub(crate) fn all() -> (Vec<(Addresses, Addresses)>, Vec<Addresses>) {
    let mut random = fastrand::Rng::with_seed(SEED);
    let allowed = [random.u32(..), random.u32(..)];
    let mut taken = Vec::new();
    for source in LENGTHS {
        for destination in LENGTHS {
            let addresses =
                [differing(allowed[0], source, &mut random), differing(allowed[1], destination, &mut random)];
            taken.push(([source, destination], addresses));
        }
    }
    let unknown = taken.iter().map(|_| [allowed[0], random.u32(..)]).collect();
    (taken, unknown)
}

/// The flows; what they take leaves by port 2.
pub(crate) fn flows() -> Result<Vec<Message>, ErrorCode> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let flow = |([source, destination], addresses): (Addresses, Addresses)| {
        flows::prefixes(random.u16(flows::PRIORITY..), [(addresses[0], source), (addresses[1], destination)])
    };
    all().0.into_iter().map(flow).collect()
}

/// The frames; half of them are of one of the flows.
pub(crate) fn frames(from: [u8; 6], to: [u8; 6]) -> Vec<Frame> {
    let (taken, unknown) = all();
    let mut addresses: Vec<_> = taken.into_iter().map(|(_, addresses)| addresses).chain(unknown).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut addresses);
    addresses.into_iter().map(|addresses| frame(from, to, addresses)).collect()
}

/// A datagram without checksums, which the host that gets it drops.
fn frame(from: [u8; 6], to: [u8; 6], [source, destination]: Addresses) -> Frame {
    let mut frame = bare_frame(from, to);
    frame[12..14].copy_from_slice(&ETH_IPV4.to_be_bytes());
    frame[14..24].copy_from_slice(&[0x45, 0, 0, (FRAME_BYTES - 14) as u8, 0, 0, 0, 0, 64, UDP]);
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.to_be_bytes());
    frame[39] = (FRAME_BYTES - 34) as u8;
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_a_mask_of_its_own_and_takes_a_frame() {
        let (taken, unknown) = all();
        assert_eq!((taken.len(), unknown.len(), flows().unwrap().len()), (1024, 1024, 1024));
        let lengths: std::collections::BTreeSet<_> = taken.iter().map(|(lengths, _)| lengths).collect();
        assert_eq!(lengths.len(), 1024);
        assert_eq!(differing(0xffff_0000, 16, &mut fastrand::Rng::with_seed(1)) >> 16, 0xfffe);
        assert_eq!(differing(0, 32, &mut fastrand::Rng::with_seed(1)), 1);
        assert_eq!(frames([2; 6], [4; 6]).len(), 2048);
    }
}
