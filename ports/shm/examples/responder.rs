//! A process on a switch: it answers ARP requests, pings and UDP echo (port 7) for one address.
//!
//! `responder SOCKET ADDRESS`, where SOCKET is the socket that `twinpath show ports` prints for the memory port.
//! docs/examples/switch-memory.sh starts it.

use std::error::Error;
use std::net::Ipv4Addr;

use twinpath_shm::{Application, Woken};

/// The Ethernet address of the process: a locally administered one (IEEE 802, 8.4).
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ETHERNET: usize = 14;
const ARP: [u8; 2] = [8, 6];
const IPV4: [u8; 2] = [8, 0];
const ICMP: u8 = 1;
const UDP: u8 = 17;
/// The port for echo over UDP (RFC 862).
const ECHO: [u8; 2] = [0, 7];

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().rev();
    let (address, socket) =
        arguments.next().zip(arguments.next()).ok_or("usage: responder SOCKET ADDRESS")?;
    run(&socket, address.parse()?)
}

/// Answers until the switch ends.
fn run(socket: &str, address: Ipv4Addr) -> Result<(), Box<dyn Error>> {
    let mut port = Application::connect(socket.as_ref())?;
    let mut frame = [0; 2048];
    loop {
        // All frames of a burst are answered before the switch is woken, once.
        while let Some(packet) = port.receive(&mut frame) {
            let len = packet?.len.min(frame.len());
            if answer(&mut frame[..len], address).is_some() {
                // A ring that is full drops the answer, as a network would.
                let _ = port.send(&frame[..len]);
            }
        }
        port.flush();
        if port.wait(None)? == Woken::OwnerGone && !port.look() {
            return Ok(());
        }
    }
}

/// Turns a request into its answer in place; `None` if it is not for this process.
fn answer(frame: &mut [u8], address: Ipv4Addr) -> Option<()> {
    let (ethernet, packet) = frame.split_first_chunk_mut::<ETHERNET>()?;
    let kind = [ethernet[12], ethernet[13]];
    match kind {
        ARP => answer_arp(packet.first_chunk_mut()?, address)?,
        IPV4 => answer_ipv4(packet, address)?,
        _ => return None,
    }
    // Back to the sender.
    ethernet.copy_within(6..12, 0);
    ethernet[6..12].copy_from_slice(&OWN);
    Some(())
}

/// RFC 826: the answer has both addresses of both sides, ours first.
fn answer_arp(packet: &mut [u8; 28], address: Ipv4Addr) -> Option<()> {
    let asks = packet[..8] == [0, 1, 8, 0, 6, 4, 0, 1] && packet[24..] == address.octets();
    asks.then_some(())?;
    packet[7] = 2;
    packet.copy_within(8..18, 18);
    packet[8..14].copy_from_slice(&OWN);
    packet[14..18].copy_from_slice(&address.octets());
    Some(())
}

/// The checksum of the IP header stays right when source and destination change places.
fn answer_ipv4(packet: &mut [u8], address: Ipv4Addr) -> Option<()> {
    let (header, payload) = packet.split_first_chunk_mut::<20>()?;
    // Without options, and no fragment.
    let is_plain = header[0] == 0x45 && [header[6] & 0x3f, header[7]] == [0, 0];
    (is_plain && header[16..] == address.octets()).then_some(())?;
    match (header[9], payload) {
        // An echo request of type 8 becomes a reply of type 0; the checksum grows by as much (RFC 1624).
        (ICMP, [kind @ 8, 0, high, low, ..]) => {
            *kind = 0;
            let (sum, carry) = u16::from_be_bytes([*high, *low]).overflowing_add(0x0800);
            [*high, *low] = (sum + u16::from(carry)).to_be_bytes();
        }
        // Ports change places. A checksum of zero is none (RFC 768): the sender may have left its own to hardware.
        (UDP, [from_high, from_low, to_high, to_low, _, _, checksum_high, checksum_low, ..])
            if [*to_high, *to_low] == ECHO =>
        {
            (*from_high, *to_high) = (*to_high, *from_high);
            (*from_low, *to_low) = (*to_low, *from_low);
            (*checksum_high, *checksum_low) = (0, 0);
        }
        _ => return None,
    }
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = header;
    ([*s0, *s1, *s2, *s3], [*d0, *d1, *d2, *d3]) = ([*d0, *d1, *d2, *d3], [*s0, *s1, *s2, *s3]);
    Some(())
}
