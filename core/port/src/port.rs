//! A port as a value: its name, its capabilities, the state of its interface, and its counters.

use twinpath_frame::{Frame, GsoKind};
use twinpath_inspect::{Computed, Counter, Drops, counters};

use crate::super_frame::packets_of;

/// The number of a port and of one of its queues in this process; stable while the port is attached. Aligned so
/// that two are compared in one instruction, because this is done for each frame that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct PortId {
    /// Number of the port.
    pub port: u16,
    /// Queue of the port.
    pub queue: u16,
}

/// What a queue can send beyond plain frames. It does not change while the queue is attached. Engines that forward
/// frames between ports use [`fit`](crate::fit::fit) to make a frame one that the port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest frame it receives and sends, bytes from the Ethernet header.
    pub frame_len_max: u32,
    /// Largest super-frame that it sends, if that is more.
    pub super_frame_len_max: u32,
    /// It sends frames whose transport checksum is [`Checksum::Partial`](twinpath_frame::Checksum).
    pub checksum: bool,
    /// Frames may arrive with a transport checksum that the sender left to hardware, without the metadata saying
    /// so: a virtual device on the XDP path. On other paths [`Meta::checksum`](twinpath_frame::Meta) says it.
    pub partial_checksums: bool,
    /// The kinds of super-frames that it sends.
    pub segmentation: GsoKinds,
    /// It receives and sends packets that span several frames (`Meta::next`).
    pub chains: bool,
    /// It sends a tag that is beside the frame (`Meta::vlan`); other ports ignore such a tag.
    pub tags: bool,
}

/// The kinds of super-frames that a port sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GsoKinds {
    /// TCP over IPv4 and IPv6.
    pub tcp: bool,
    /// UDP datagrams.
    pub udp: bool,
}

impl GsoKinds {
    /// All kinds.
    pub const ALL: Self = Self { tcp: true, udp: true };

    /// Whether frames of this kind are taken. Those without segmentation always are.
    #[inline]
    #[must_use]
    pub const fn takes(self, kind: GsoKind) -> bool {
        match kind {
            GsoKind::None => true,
            GsoKind::TcpV4 | GsoKind::TcpV6 => self.tcp,
            GsoKind::UdpSegments => self.udp,
        }
    }
}

/// The state of a port's interface that may change while the port is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// MTU, bytes.
    pub mtu: u32,
    /// Whether datagrams may leave as super-frames, because whoever is at the other end of the link gets such frames from
    /// the kernel's sockets, too.
    pub takes_super_frames: bool,
}

impl LinkState {
    /// The longest frame that the interface sends, bytes from the Ethernet header.
    #[must_use]
    pub const fn frame_len_max(&self) -> u32 {
        self.mtu.saturating_add(twinpath_wire::eth::HEADER_LEN as u32)
    }
}

counters! {
    /// The counters of a queue. Written by its worker, read by control.
    pub struct PortCounters {
        /// What a queue has counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        PortCounts {
            /// Frames received on the fast path.
            frames_in: Counter => counter("twinpath_queue_frames_received"), column("frames in"),
                cell(|counts: &PortCounts| with_packets(counts.frames_in, counts.packets_in));
            /// Frames sent on the fast path.
            frames_out: Counter => counter("twinpath_queue_frames_sent"), column("frames out"),
                cell(|counts: &PortCounts| with_packets(counts.frames_out, counts.packets_out));
            /// Bytes received on the fast path, from the Ethernet header.
            bytes_in: Counter => counter("twinpath_queue_bytes_received");
            /// Bytes sent on the fast path, from the Ethernet header.
            bytes_out: Counter => counter("twinpath_queue_bytes_sent");
            /// Received frames that came through the direct ring.
            frames_direct: Counter => counter("twinpath_queue_frames_direct");
            /// Times that the direct ring was opened again, after a sleep of the worker or after long frames.
            direct_opened: Counter => counter("twinpath_queue_direct_opened");
            /// Received packets as on a wire: a super-frame counts as several.
            packets_in: Computed => counter("twinpath_queue_packets_received");
            /// Sent packets as on a wire: a super-frame counts as several.
            packets_out: Computed => counter("twinpath_queue_packets_sent");
            /// Sent frames that left within super-frames, which the kernel cuts.
            frames_joined: Counter => counter("twinpath_queue_frames_joined"), column("joined"), cell(joined);
            /// Received frames that came within super-frames, which the port took apart.
            frames_split: Counter => counter("twinpath_queue_frames_split");
            /// Super-frames that the kernel refused; after the first, every frame leaves by itself.
            super_frames_refused: Counter => counter("twinpath_queue_super_frames_refused");
            /// System calls made to send or to wake the kernel.
            kicks: Counter => counter("twinpath_queue_kicks");
            /// Frames that the kernel could not deliver because the ring was full.
            ring_full: Counter => column("ring full");
        }
    } and {
        /// How often the worker found its claims withdrawn because it had not read its rings for too long.
        pub times_stuck: Counter,
        /// Times the device or socket reported an error condition, such as the interface going down.
        pub errors: Counter,
        /// Super-frames received; each counts as one frame above.
        pub super_frames_in: Counter,
        /// The packets that these are on a wire.
        pub segments_in: Counter,
        /// Super-frames sent, to be segmented by the kernel or the device; each counts as one frame above.
        pub super_frames_out: Counter,
        /// The packets that these are on a wire.
        pub segments_out: Counter,
        /// Super-frames segmented in software, as this port does not send them; their packets count as frames.
        pub super_frames_segmented: Counter,
        /// Checksums completed in software, as this port does not do it.
        pub checksums_completed: Counter,
        /// All drops, by reason.
        pub drops: Drops,
    }
}

/// A number of frames, followed by the number of their packets if it is larger.
fn with_packets(frames: u64, packets: u64) -> String {
    if packets > frames { format!("{frames} ({packets} packets)") } else { frames.to_string() }
}

/// Frames that left within super-frames.
fn joined(counts: &PortCounts) -> String {
    let refused = if counts.super_frames_refused > 0 { " (refused)" } else { "" };
    format!("{}{refused}", counts.frames_joined)
}

impl PortCounters {
    /// What it has counted, for a report.
    #[must_use]
    pub fn counts(&self) -> PortCounts {
        PortCounts {
            packets_in: self.packets_in(),
            packets_out: self.packets_out(),
            ..PortCounts::from(self)
        }
    }

    /// The packets on a wire that the received frames stand for. The counters are read one after the other, so the
    /// sum may be off by the frames of a turn.
    #[must_use]
    pub fn packets_in(&self) -> u64 {
        (self.frames_in.get() + self.segments_in.get()).saturating_sub(self.super_frames_in.get())
    }

    /// The packets on a wire that the sent frames stand for.
    #[must_use]
    pub fn packets_out(&self) -> u64 {
        (self.frames_out.get() + self.segments_out.get()).saturating_sub(self.super_frames_out.get())
    }

    /// Counts the packets of a frame that was received as a super-frame.
    #[inline]
    pub fn count_super_frame_in(&self, frame: &Frame) {
        if frame.meta().gso.kind != GsoKind::None {
            self.super_frames_in.add(1);
            self.segments_in.add(packets_of(frame));
        }
    }

    /// Counts the packets of a frame that was sent as a super-frame.
    #[inline]
    pub fn count_super_frame_out(&self, frame: &Frame) {
        if frame.meta().gso.kind != GsoKind::None {
            self.super_frames_out.add(1);
            self.segments_out.add(packets_of(frame));
        }
    }
}
