//! What a worker does with the frames that leave a pipeline.

use twinpath_frame::Frame;
use twinpath_inspect::Reason;

use crate::openflow::pipeline::parse::Ingress;
use crate::openflow::pipeline::port::Ports;

/// Why a frame is sent to the controllers (OpenFlow 1.3.5, 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketInReason {
    /// The table-miss entry says so.
    NoMatch,
    /// An action says so.
    Action,
    /// Its TTL has run out.
    InvalidTtl,
}

/// What the controllers are told of a frame, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the flow that says so.
    pub table: u8,
    /// The cookie of that flow; all bits are set if it was a packet-out.
    pub cookie: u64,
    /// Maximum bytes of the frame to send; `None`: as many as the switch is configured to send (`miss_send_len`).
    pub max_len: Option<u16>,
    /// Where the frame came in.
    pub ingress: Ingress,
    /// Its metadata.
    pub metadata: u64,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The port of this OpenFlow number, which is one of [`Pipeline::set_ports`](crate::openflow::pipeline::Pipeline::set_ports).
    Port(u32),
    /// The switch's own forwarding by learned addresses; the frame came in by this port.
    Normal(u32),
    /// The switch's own flooding.
    Flood(u32),
    /// The controllers.
    Controller(PacketIn),
}

/// What a worker lends a pipeline: the frames that it gets are given back through one of these calls, each once.
pub trait Outlet {
    /// Another frame with the same bytes and metadata; `None`: too few frames are free.
    fn share(&mut self, frame: &mut Frame) -> Option<Frame>;

    /// Sends a frame. A port that is named as the destination forwards. For those that [`Destination::Normal`] and
    /// [`Destination::Flood`] lead to, `ports` says whether they do.
    fn send(&mut self, frame: Frame, to: Destination, ports: &Ports);

    /// Drops a frame, and counts that at the port that it came in by.
    fn discard(&mut self, frame: Frame, from: u32, reason: Reason);

    /// Gives back a frame of which others have been sent.
    fn release(&mut self, frame: Frame);
}
