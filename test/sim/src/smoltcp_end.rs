//! smoltcp as one end of a TCP connection over IPv4: packets go in and come out as bytes, and time is a number.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::Socket;
use smoltcp::wire::{HardwareAddress, IpCidr};
use twinpath_time::Instant;

/// Bytes of the header that [`ip_header`] writes, and that each packet of this end begins with.
pub const IP_HEADER_LEN: usize = 20;

/// The header of a packet with `payload_len` bytes of TCP, without a checksum: nothing here looks at it.
#[must_use]
pub const fn ip_header(payload_len: usize, from: [u8; 4], to: [u8; 4]) -> [u8; IP_HEADER_LEN] {
    let [high, low] = ((IP_HEADER_LEN + payload_len) as u16).to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (from, to);
    [0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, a, b, c, d, e, f, g, h]
}

/// Packets on their way in and out.
#[derive(Debug, Default)]
struct Wire {
    incoming: VecDeque<Vec<u8>>,
    /// The one that is being read.
    current: Vec<u8>,
    outgoing: VecDeque<Vec<u8>>,
    /// Memory for the next ones.
    spare: Vec<Vec<u8>>,
}

struct In<'a>(&'a [u8]);

struct Out<'a> {
    outgoing: &'a mut VecDeque<Vec<u8>>,
    spare: &'a mut Vec<Vec<u8>>,
}

impl RxToken for In<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = self.spare.pop().unwrap_or_default();
        if packet.len() != len {
            packet.resize(len, 0);
        }
        let result = write(&mut packet);
        self.outgoing.push_back(packet);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = In<'a>;
    type TxToken<'a> = Out<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(In<'_>, Out<'_>)> {
        let read = std::mem::replace(&mut self.current, self.incoming.pop_front()?);
        self.spare.push(read);
        Some((In(&self.current), Out { outgoing: &mut self.outgoing, spare: &mut self.spare }))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Out<'_>> {
        Some(Out { outgoing: &mut self.outgoing, spare: &mut self.spare })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// An interface of smoltcp with one socket. Its time is ours, rounded down to microseconds.
pub struct SmoltcpEnd {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl SmoltcpEnd {
    /// An end with this address. smoltcp's random numbers follow from `seed`.
    ///
    /// # Panics
    /// If smoltcp takes no address.
    #[must_use]
    pub fn new(now: Instant, address: [u8; 4], seed: u64, socket: Socket<'static>) -> Self {
        let mut wire = Wire::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, time(now));
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(Ipv4Addr::from(address).into(), 24)).expect("room for an address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { wire, interface, sockets, handle }
    }

    /// Its socket.
    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// If the socket has one.
    pub fn connect(&mut self, remote: ([u8; 4], u16), local_port: u16) {
        let Self { interface, sockets, handle, .. } = self;
        let remote = (Ipv4Addr::from(remote.0), remote.1);
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        socket.connect(interface.context(), remote, local_port).expect("a socket without a connection");
    }

    /// A packet arrives: [`Self::poll`] or [`Self::read_one`] takes it.
    pub fn arrives(&mut self, parts: &[&[u8]]) {
        let mut packet = self.wire.spare.pop().unwrap_or_default();
        packet.clear();
        parts.iter().for_each(|part| packet.extend_from_slice(part));
        self.wire.incoming.push_back(packet);
    }

    /// Takes what has arrived, and sends what is to be sent.
    pub fn poll(&mut self, now: Instant) {
        self.interface.poll(time(now), &mut self.wire, &mut self.sockets);
    }

    /// Takes one packet.
    pub fn read_one(&mut self, now: Instant) {
        self.interface.poll_ingress_single(time(now), &mut self.wire, &mut self.sockets);
    }

    /// Sends what is to be sent.
    pub fn write(&mut self, now: Instant) {
        self.interface.poll_egress(time(now), &mut self.wire, &mut self.sockets);
    }

    /// When [`Self::poll`] is to be called.
    pub fn next(&mut self, now: Instant) -> Instant {
        self.interface.poll_at(time(now), &self.sockets).map_or(Instant::NEVER, |at| {
            Instant::from_nanos(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000))
        })
    }

    /// Hands out the TCP segments that were sent.
    pub fn sent(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(packet) = self.wire.outgoing.pop_front() {
            take(&packet[IP_HEADER_LEN..]);
            self.wire.spare.push(packet);
        }
    }
}

fn time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}
