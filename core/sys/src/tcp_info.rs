//! What the kernel says of a TCP connection (`TCP_INFO`, tcp(7)).
#![allow(unsafe_code, reason = "rustix has no TCP_INFO")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use twinpath_time::Duration;

use crate::last_errno;

/// Bytes of `struct tcp_info` that are read (include/uapi/linux/tcp.h): up to `tcpi_min_rtt`, which Linux 4.6 has.
const INFO_BYTES: usize = 152;

/// A connection as its kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The state, by its number (include/net/tcp_states.h).
    pub state: u8,
    /// Segments that were sent and are not acknowledged.
    pub unacked: u32,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The minimum round-trip time.
    pub rtt_min: Duration,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// The congestion window, in segments.
    pub window: u32,
    /// Maximum segment size, bytes.
    pub segment_bytes: u32,
}

/// Asks the kernel about a connection.
///
/// # Errors
/// The error of `getsockopt(2)`.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo, Errno> {
    let mut info = [0_u8; INFO_BYTES];
    let mut len = INFO_BYTES as libc::socklen_t;
    // SAFETY: the pointer and length describe `info`, of which the kernel writes at most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(last_errno()) } else { Ok(read(&info)) }
}

/// Parses the fields. A field that an older kernel did not write is 0.
fn read(info: &[u8; INFO_BYTES]) -> TcpInfo {
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let low_first = cfg!(target_endian = "little");
    let long = |at: usize| {
        let (low, high) = if low_first { (word(at), word(at + 4)) } else { (word(at + 4), word(at)) };
        u64::from(low) | u64::from(high) << 32
    };
    TcpInfo {
        state: info[0],
        segment_bytes: word(16),
        unacked: word(24),
        rtt: Duration::from_micros(word(68).into()),
        window: word(80),
        retransmits: word(100).into(),
        bytes_acked: long(120),
        bytes_received: long(128),
        // The kernel's "none yet" is all ones.
        rtt_min: Duration::from_micros(Some(word(148)).filter(|us| *us != u32::MAX).unwrap_or(0).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernels_figures_of_a_connection_are_read() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(&[1; 10_000]).unwrap();
        peer.read_exact(&mut [0; 10_000]).unwrap();
        peer.write_all(b"all").unwrap();
        stream.read_exact(&mut [0; 3]).unwrap();
        let info = tcp_info(&stream).unwrap();
        // The kernel may count the SYN as a byte.
        assert!((10_000..=10_001).contains(&info.bytes_acked), "{info:?}");
        assert_eq!((info.retransmits, info.bytes_received, info.state), (0, 3, 1));
        assert!(info.rtt > Duration::ZERO && info.rtt_min <= info.rtt, "{info:?}");
        assert!(info.segment_bytes > 500 && info.window > 0, "{info:?}");
        assert!(tcp_info(std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap()).is_err());
    }
}
