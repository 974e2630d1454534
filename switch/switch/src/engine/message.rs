//! What control and a switch's engine tell each other.

use std::sync::Arc;

use twinpath_forwarding::learning::{Notice, Snapshot};
use twinpath_forwarding::openflow::pipeline::PacketIn;
use twinpath_frame::Frame;
use twinpath_inspect::Reason;
use twinpath_openflow_wire::Action;
use twinpath_port::wire_copy::Seen;
use twinpath_worker::{ENGINE_RESERVE, Io};

/// Packet-in buffers that control lends each worker, more than a port may send at once; a further one comes back empty.
pub const LENT_MAX: usize = 64;

/// Packet-outs that may be on their way to one worker and back at a time: control sends no more before it has some back.
pub const PACKET_OUTS_MAX: usize = 64;

/// Samples that one worker may have at a time.
pub const SAMPLES_MAX: usize = 4;

// Beside them one snapshot and one version of the tables go back at a time, or a few if control is quick.
const _: () = assert!(LENT_MAX + PACKET_OUTS_MAX + SAMPLES_MAX + 32 <= ENGINE_RESERVE as usize);

/// What control tells the engine. An engine without tables gives back what belongs to them.
#[derive(Debug)]
pub enum SwitchCommand {
    /// Judge by this snapshot from now on. Later ones have higher numbers.
    Adopt(u64, Arc<Snapshot>),
    /// Judge by this version of OpenFlow's tables from now on; the former one goes back.
    Tables(Arc<twinpath_forwarding::openflow::pipeline::Snapshot>),
    /// What decides where frames go.
    Forward(Forwarding),
    /// The number of the port that is OpenFlow's LOCAL; `None`: there is none.
    LocalPort(Option<u16>),
    /// How many packets a second each port may send to the controllers, through all workers together; a tenth of that may
    /// come at once. None may before this is told.
    PacketInRate(u32),
    /// Memory for one packet-in. It comes back with one in it; a worker without such memory drops the packet-in.
    Lend(Box<PacketInBuffer>),
    /// Do this with a frame.
    PacketOut(Box<PacketOut>),
    /// Memory for the head of a frame. It comes back with that of one that has gone through the tables, or, without tables, from one
    /// learned address to another.
    LendSample(Box<Sample>),
}

/// What the engine tells control.
#[derive(Debug)]
pub enum SwitchEvent {
    /// Frames are judged by the snapshot of that number; this is the former one, to be freed.
    Adopted(u64, Arc<Snapshot>),
    /// Frames are judged by that version of OpenFlow's tables.
    TablesAdopted {
        /// The number of the version.
        version: u64,
        /// The former one, to be freed.
        former: Arc<twinpath_forwarding::openflow::pipeline::Snapshot>,
    },
    /// A frame for the controllers; or the buffer is empty, as the worker has no use for it.
    PacketIn(Box<PacketInBuffer>),
    /// A packet-out was done or refused. Its memory is control's again.
    PacketOutDone(Box<PacketOut>),
    /// The head of a frame that the kernel may be able to forward, as one of many.
    Sample(Box<Sample>),
    /// What the switch has noticed.
    Notice(Notice),
}

/// What decides where frames go in a switch with OpenFlow tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// The tables.
    #[default]
    Tables,
    /// Learned addresses, as in a switch without tables: no controller is there, and the switch is to work without
    /// (OpenFlow 1.3.5, 6.3.2: fail standalone mode).
    Learning,
}

/// Memory for one packet-in, which control lends a worker.
#[derive(Debug)]
pub struct PacketInBuffer {
    /// What is said of the frame; `None`: there is none in it.
    pub about: Option<PacketIn>,
    /// Bytes of the whole frame.
    pub total_len: u16,
    memory: Box<[u8]>,
    len: usize,
}

impl PacketInBuffer {
    /// An empty buffer for this many bytes of a frame.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { about: None, total_len: 0, memory: vec![0; capacity].into_boxed_slice(), len: 0 }
    }

    /// The frame as on a wire, or its start: as much as there is capacity for.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Copies a packet into it, with its tag, and with a checksum that was left to hardware.
    pub(crate) fn fill(&mut self, packet: &Frame, about: PacketIn) {
        const SEEN: Seen = Seen { has_tags: true, may_be_partial: false };
        let copy = SEEN.copy(packet, &mut self.memory);
        let (len, total_len) = (copy.bytes.len(), copy.packet_len);
        let is_elsewhere = copy.bytes.as_ptr() == packet.bytes().as_ptr();
        if is_elsewhere {
            self.memory[..len].copy_from_slice(&packet.bytes()[..len]);
        }
        (self.about, self.len) = (Some(about), len);
        self.total_len = u16::try_from(total_len).unwrap_or(u16::MAX);
    }
}

/// Bytes of a frame's head in a sample: all headers that flows are matched by, unless there are very many.
const SAMPLE_LEN: usize = 192;

/// The head of a frame, for control: it may have the kernel forward frames like it.
#[derive(Debug)]
pub struct Sample {
    /// The port that it came in by, as OpenFlow has it.
    pub in_port: u32,
    /// The network of the tunnel that it came out of; 0: none.
    pub tunnel_id: u32,
    /// The tag beside its bytes.
    pub vlan: Option<u16>,
    /// The port, by its number in the switch.
    pub(crate) port: u16,
    /// When it is back: the kernel got nothing to forward by it.
    pub was_useless: bool,
    memory: [u8; SAMPLE_LEN],
    len: usize,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            in_port: 0,
            tunnel_id: 0,
            vlan: None,
            port: 0,
            was_useless: false,
            memory: [0; SAMPLE_LEN],
            len: 0,
        }
    }
}

impl Sample {
    /// The start of the frame.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn fill(&mut self, frame: &Frame, in_port: u32, tunnel_id: u32) {
        (self.in_port, self.tunnel_id) = (in_port, tunnel_id);
        (self.port, self.vlan) = (frame.meta().port, frame.meta().vlan);
        self.len = frame.bytes().len().min(SAMPLE_LEN);
        self.memory[..self.len].copy_from_slice(&frame.bytes()[..self.len]);
    }
}

/// Tells control what there is always room for.
pub(crate) fn tell_reserved(event: SwitchEvent, io: &mut Io<'_, SwitchEvent>) {
    if io.tell_reserved(event).is_err() {
        io.drops().add(Reason::MailboxFull, 1);
    }
}

/// A controller's frame, and what is done with it (OpenFlow 1.3.5, 7.3.7).
#[derive(Debug)]
pub struct PacketOut {
    /// Where it counts as having come in: the OpenFlow number of a port, or that of the controllers.
    pub in_port: u32,
    /// What is done with it; output to TABLE takes it through the tables.
    pub actions: Box<[Action]>,
    /// The frame.
    pub bytes: Box<[u8]>,
    /// When it is back: why nothing was done with it. [`Reason::PoolEmpty`]: the worker had too few free frames to hold it;
    /// [`Reason::TableMiss`]: the engine has no tables. What becomes of a frame after that is counted as for others.
    pub refused: Option<Reason>,
}

impl PacketOut {
    /// A packet-out that was not done yet.
    #[must_use]
    pub const fn new(in_port: u32, actions: Box<[Action]>, bytes: Box<[u8]>) -> Self {
        Self { in_port, actions, bytes, refused: None }
    }
}
