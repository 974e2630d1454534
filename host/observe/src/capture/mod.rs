//! One capture: a thread that takes the copies made by taps and writes them as pcapng
//! (draft-ietf-opsawg-pcapng) into the client's connection.
//!
//! Workers never wait for it: a client that reads too slowly misses frames, and the last block of the file
//! says how many. Requests that the kernel's programs answer themselves never reach a worker. These
//! programs copy them, and their replies, into a separate ring of the capture ([`Replied`]); a comment
//! marks such packets. A capture ends when the client closes its writing half or goes away, when it has the
//! requested number of frames, and with the instance.

mod replied;

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::{DataLink, Endianness, PcapError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use twinpath_rings::slots::Note;
use twinpath_sys::{EventFd, clock};
use twinpath_worker::{CopyConsumer, TapCounters, tag};

pub use self::replied::Replied;

/// Maximum number of captures of one instance at a time.
pub const CAPTURES_MAX: usize = twinpath_worker::TAPS_MAX;

/// Maximum number of frames that wait for one capture, per worker: about 20 ms at 200,000 frames a second.
/// A super-frame counts as one frame for each 2 KiB kept of it.
pub const SLOTS: u32 = 4096;

/// Maximum number of bytes kept of a frame, and the default: the same as tcpdump's, and more than any port
/// delivers.
pub const SNAPLEN_MAX: u32 = 262_144;

/// Maximum number of frames taken from one ring before the other rings get their turn, and before the
/// frames are written.
const BATCH: usize = 256;

/// How long a write may block before the thread checks whether the capture is to end.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);

/// `epb_flags` (section "Enhanced Packet Block Flags Word"): the direction, and the known offload state of
/// a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
const CHECKSUM_NOT_READY: u32 = 1 << 9;
const CHECKSUM_VALID: u32 = 1 << 10;
const TCP_SEGMENTATION_OFFLOADED: u32 = 1 << 11;

/// `opt_comment` of packets that a program of the kernel, and not a worker, has replied to or sent.
const REQUEST_BY_REFLEX: &str = "answered by reflex";
const REPLY_BY_REFLEX: &str = "reply by reflex";

/// The flags of a packet, from those that its tap recorded.
fn flags(note: &Note) -> u32 {
    let direction = if note.tag & tag::SENT == 0 { INBOUND } else { OUTBOUND };
    let offloads = [
        (tag::CHECKSUM_NOT_READY, CHECKSUM_NOT_READY),
        (tag::CHECKSUM_VALID, CHECKSUM_VALID),
        (tag::TCP_SUPER_FRAME, TCP_SEGMENTATION_OFFLOADED),
    ];
    let set = offloads.iter().filter(|(ours, _)| note.tag & ours != 0);
    set.fold(direction, |flags, (_, theirs)| flags | theirs)
}

/// The reading end of a worker's tap.
pub struct Source {
    /// Copies of its frames.
    pub ring: CopyConsumer,
    /// The tap's counters.
    pub counters: Arc<TapCounters>,
}

/// The settings of a capture.
pub struct CapturePlan {
    /// Name of the interface, for the file's header.
    pub interface: String,
    /// The filter as it was written, for the file's header.
    pub filter: String,
    /// Maximum number of bytes kept of a frame.
    pub snaplen: u32,
    /// Frames after which it ends.
    pub count: Option<u64>,
}

/// Wall time minus the time of the workers' clock. It is read once, so that setting the system's clock does
/// not break the order of the file's time stamps.
fn wall_ahead() -> Duration {
    let before = clock::now().as_nanos();
    let wall = clock_gettime(ClockId::Realtime);
    let after = clock::now().as_nanos();
    let wall = Duration::new(wall.tv_sec.max(0) as u64, wall.tv_nsec as u32);
    wall.saturating_sub(Duration::from_nanos(before.midpoint(after)))
}

/// A capture under way.
pub struct Running {
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts a capture; its thread calls `ended` when it has ended.
    ///
    /// # Errors
    /// The thread could not be started, or the connection set up.
    pub fn start(
        plan: CapturePlan,
        sources: Vec<Source>,
        replied: Option<Replied>,
        wake: Arc<EventFd>,
        stream: UnixStream,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut capture = Capture {
            count: plan.count.unwrap_or(u64::MAX),
            snaplen: plan.snaplen,
            sources,
            replied,
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
            stream,
            written: 0,
            ahead: wall_ahead(),
            started_ns: 0,
            batch: Vec::with_capacity(BATCH),
            bytes: Vec::with_capacity(BATCH * 128),
        };
        let thread = std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            if let Err(error) = capture.run(&plan) {
                // Most likely the client is gone, which is how captures end.
                tracing::debug!(%error, "a capture ended early");
            }
            // Closes the connection first: the client need not wait for control.
            drop(capture);
            ended();
        })?;
        Ok(Self { wake, stop, thread })
    }

    /// Asks it to write the copied frames, and to end.
    pub fn ask_to_end(&self) {
        // Release: it orders nothing else; it is only a flag.
        self.stop.store(true, Ordering::Release);
        self.wake.signal();
    }

    /// Waits until it has ended. After a request to end, this takes no longer than one blocked write.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a capture panicked; serving goes on");
        }
    }
}

/// A frame taken and not yet written.
struct Taken {
    note: Note,
    /// Its offset in the bytes of the batch.
    from: usize,
    len: usize,
    by_reflex: bool,
}

impl Taken {
    fn options(&self) -> Vec<EnhancedPacketOption<'static>> {
        let comment = match (self.by_reflex, self.note.tag & tag::SENT == 0) {
            (false, _) => None,
            (true, true) => Some(REQUEST_BY_REFLEX),
            (true, false) => Some(REPLY_BY_REFLEX),
        };
        let comment = comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text)));
        comment.into_iter().chain([EnhancedPacketOption::Flags(flags(&self.note))]).collect()
    }
}

struct Capture {
    count: u64,
    snaplen: u32,
    sources: Vec<Source>,
    replied: Option<Replied>,
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    stream: UnixStream,
    written: u64,
    /// Wall time minus the workers' time.
    ahead: Duration,
    started_ns: u64,
    batch: Vec<Taken>,
    bytes: Vec<u8>,
}

/// Writes into a buffer, which the thread empties into the connection.
type Writer = PcapNgWriter<Vec<u8>>;

impl Capture {
    fn run(&mut self, plan: &CapturePlan) -> Result<(), PcapError> {
        // Big-endian: the crate then writes the two halves of a time in the statistics in the order of the format.
        let mut writer = Writer::with_endianness(Vec::new(), Endianness::Big)?;
        let mut options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(plan.interface.as_str())),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed("the fast path of twinpath")),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        if !plan.filter.is_empty() {
            // First byte 0: the filter is a text.
            let filter = format!("\0{}", plan.filter).into_bytes();
            options.push(InterfaceDescriptionOption::IfFilter(Cow::Owned(filter)));
        }
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snaplen,
            options,
        })?;
        self.started_ns = self.wall_ns(clock::now().as_nanos());
        self.send(&mut writer)?;
        while self.written < self.count && !self.is_to_end() {
            match self.take() {
                0 if self.batch.is_empty() => self.wait(),
                taken => self.write(taken, &mut writer)?,
            }
        }
        // Only the copies made before the end: workers continue to copy.
        let mut left = SLOTS as usize;
        while self.written < self.count && left > 0 {
            let taken = self.take();
            if taken == 0 && self.batch.is_empty() {
                break;
            }
            left = left.saturating_sub(taken);
            self.write(taken, &mut writer)?;
        }
        self.write_statistics(&mut writer)?;
        self.send(&mut writer)?;
        Ok(())
    }

    fn wall_ns(&self, nanos: u64) -> u64 {
        nanos.saturating_add(self.ahead.as_nanos() as u64)
    }

    /// Takes a batch from every ring, and sorts by time the frames that were copied before the batch began.
    /// Returns the number of those frames. A ring that was read first may meanwhile have received older
    /// frames than one that was read last, so the other frames wait for the next batch.
    fn take(&mut self) -> usize {
        let before_ns = clock::now().as_nanos();
        for source in &mut self.sources {
            for _ in 0..BATCH {
                let Some((note, copy)) = source.ring.pop() else { break };
                let (from, len) = (self.bytes.len(), copy.len());
                self.bytes.extend_from_slice(copy);
                self.batch.push(Taken { note, from, len, by_reflex: false });
            }
        }
        let Self { replied, batch, bytes, .. } = self;
        for _ in 0..BATCH / 2 {
            let more = replied.as_mut().is_some_and(|replied| {
                replied.take(|note, frame| {
                    let (from, len) = (bytes.len(), frame.len().min(self.snaplen as usize));
                    bytes.extend_from_slice(&frame[..len]);
                    batch.push(Taken { note, from, len, by_reflex: true });
                })
            });
            if !more {
                break;
            }
        }
        self.batch.sort_by_key(|taken| taken.note.time_ns);
        self.batch.partition_point(|taken| taken.note.time_ns <= before_ns)
    }

    /// Writes this many frames of the batch, and keeps the others.
    fn write(&mut self, taken: usize, writer: &mut Writer) -> Result<(), PcapError> {
        let left = (self.count - self.written).min(taken as u64);
        for taken in &self.batch[..left as usize] {
            writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(self.wall_ns(taken.note.time_ns)),
                original_len: taken.note.original_len,
                data: Cow::Borrowed(&self.bytes[taken.from..taken.from + taken.len]),
                options: taken.options(),
            })?;
        }
        self.written += left;
        self.batch.drain(..taken);
        // Usually none is left.
        let mut kept = Vec::new();
        for taken in &mut self.batch {
            let bytes = &self.bytes[taken.from..taken.from + taken.len];
            taken.from = kept.len();
            kept.extend_from_slice(bytes);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&kept);
        self.send(writer)
    }

    fn write_statistics(&self, writer: &mut Writer) -> Result<(), PcapError> {
        let sum = |count: fn(&TapCounters) -> u64| -> u64 {
            self.sources.iter().map(|source| count(&source.counters)).sum()
        };
        let of_programs = |count: fn(&Replied) -> u64| self.replied.as_ref().map_or(0, count);
        let wanted = sum(|it| it.wanted.get()) + of_programs(Replied::wanted);
        let missed = sum(|it| it.missed.get()) + of_programs(Replied::missed);
        let now = self.wall_ns(clock::now().as_nanos());
        writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: now,
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(self.started_ns),
                InterfaceStatisticsOption::IsbEndTime(now),
                InterfaceStatisticsOption::IsbFilterAccept(wanted),
                InterfaceStatisticsOption::IsbIfDrop(missed),
                InterfaceStatisticsOption::IsbUsrDeliv(self.written),
            ],
        })?;
        Ok(())
    }

    /// Empties the buffer into the connection, however slowly the client reads, unless the capture is to end.
    fn send(&mut self, writer: &mut Writer) -> Result<(), PcapError> {
        let buffer = writer.get_mut();
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(PcapError::IoError(io::ErrorKind::WriteZero.into())),
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && !self.stop.load(Ordering::Acquire) => {}
                Err(error) => return Err(PcapError::IoError(error)),
            }
        }
        buffer.clear();
        Ok(())
    }

    /// Whether the instance or the client has asked for the end. The client sends nothing else.
    fn is_to_end(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.stop.load(Ordering::Acquire) || poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Sleeps until there is something to take, or the capture is to end.
    fn wait(&mut self) {
        self.wake.drain();
        self.sources.iter_mut().for_each(|source| source.ring.arm());
        if !self.stop.load(Ordering::Acquire) && !self.sources.iter().any(|source| source.ring.look()) {
            // The kernel looks into the programs' ring itself before it sleeps.
            let replied = self.replied.as_ref().map_or_else(|| self.wake.as_fd(), Replied::as_fd);
            let mut fds = [
                PollFd::new(&*self.wake, PollFlags::IN),
                PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP),
                PollFd::from_borrowed_fd(replied, PollFlags::IN),
            ];
            // A signal may interrupt it: the caller then looks again.
            let _ = poll(&mut fds, None);
        }
        for source in &mut self.sources {
            source.ring.disarm();
        }
    }
}
