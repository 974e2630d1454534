//! Requests of memcached over UDP (protocol.txt of memcached, "UDP protocol"), which three clients send.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, ensure};

/// The longest datagram.
const DATAGRAM_MAX: usize = 2048;
/// The header of a datagram: the number of the request, which datagram of how many this is, and reserved bytes.
const HEADER_LEN: usize = 8;

/// A socket that is connected to a server.
pub(super) struct Datagrams {
    socket: UdpSocket,
    number: u16,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Datagrams {
    pub(super) fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let any: SocketAddr = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        Ok(Self { socket, number: 0, request: Vec::new(), answer: vec![0; DATAGRAM_MAX] })
    }

    /// How long [`Self::receive`] waits from here on; `None`: not at all.
    pub(super) fn wait(&self, within: Option<Duration>) -> anyhow::Result<()> {
        self.socket.set_nonblocking(within.is_none())?;
        Ok(self.socket.set_read_timeout(within)?)
    }

    /// Sends a request; returns its number.
    pub(super) fn ask(&mut self, text: &str) -> anyhow::Result<u16> {
        self.number = self.number.wrapping_add(1);
        self.request.clear();
        self.request.extend(self.number.to_be_bytes());
        // 0 of 1 datagrams, reserved.
        self.request.extend([0, 0, 0, 1, 0, 0]);
        self.request.extend(text.as_bytes());
        self.socket.send(&self.request)?;
        Ok(self.number)
    }

    /// The next answer, with the number of its request, if one comes in time.
    pub(super) fn receive(&mut self) -> anyhow::Result<Option<(u16, &[u8])>> {
        let len = match self.socket.recv(&mut self.answer) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(error).context("no answer over UDP"),
        };
        ensure!(len >= HEADER_LEN, "an answer of {len} bytes");
        Ok(Some((u16::from_be_bytes([self.answer[0], self.answer[1]]), &self.answer[HEADER_LEN..len])))
    }
}
