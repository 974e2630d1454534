//! What sockets count.

/// What a socket has received, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Datagrams that came by the ring.
    pub by_ring: u64,
    /// Datagrams that came by the kernel's socket.
    pub by_kernel: u64,
    /// Frames in the ring that the kernel would have dropped: wrong checksums, impossible senders.
    pub refused: u64,
    /// Leases taken.
    pub leases: u64,
    /// Leases that the program in the kernel ended, for any reason: the two that follow, or a frame that had to go by the kernel.
    pub ended: u32,
    /// Of these, because the ring was full.
    pub full: u32,
    /// Of these, because no call looked for too long.
    pub lapsed: u32,
    /// Datagrams that were sent as frames.
    pub sent_by_frame: u64,
    /// Datagrams that the kernel has sent although frames were asked for, as it had not sent to the peer just before.
    pub sent_by_kernel: u64,
}
