//! One capture: a thread that takes what taps copied and writes it as pcapng (draft-ietf-opsawg-pcapng) into the client's
//! connection.
//!
//! Workers never wait for it: a client that reads too slowly misses frames, which the last block of the file counts. It ends
//! when the client closes its writing half or goes away, when it has as many frames as were asked for, and with the instance.

use std::borrow::Cow;
use std::io::{self, Write};
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
use twinpath_rings::slots::{Note, SlotConsumer};
use twinpath_sys::{EventFd, clock};
use twinpath_worker::{SENT, TapCounters};

/// Captures of one instance at a time.
pub const CAPTURES_MAX: usize = twinpath_worker::TAPS_MAX;

/// Frames that wait for one capture, per worker: some 20 ms at 200,000 frames a second.
pub const SLOTS: u32 = 4096;

/// Bytes kept of a frame at most, and without a wish.
pub const SNAPLEN_MAX: u32 = 2048;

/// Frames taken from a ring before the others have their turn, and before they are written.
const BATCH: usize = 256;

/// How long a write may block before the thread looks whether it is to end.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);

/// `epb_flags`: direction (section "Enhanced Packet Block Flags Word").
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// What a capture takes from one worker.
pub struct Source {
    /// Copies of its frames.
    pub ring: SlotConsumer,
    /// Frames that found no room there.
    pub counters: Arc<TapCounters>,
}

/// What a capture is to do.
pub struct CapturePlan {
    /// Name of the interface, for the file's header.
    pub interface: String,
    /// The filter as it was written, for the file's header.
    pub filter: String,
    /// Bytes kept of a frame at most.
    pub snaplen: u32,
    /// Frames after which it ends.
    pub count: Option<u64>,
}

/// Wall time less that of the workers' clock, read once: a clock that is set meanwhile does not tear the file.
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
    /// Starts it; `ended` is called on its thread when it has.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        plan: CapturePlan,
        sources: Vec<Source>,
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
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
            stream,
            written: 0,
            ahead: wall_ahead(),
            started_ns: 0,
            batch: Vec::with_capacity(BATCH),
            bytes: Vec::with_capacity(BATCH * 128),
            room: vec![0; plan.snaplen as usize],
        };
        let thread = std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            if let Err(error) = capture.run(&plan) {
                // The client has gone, most likely, which is how captures end.
                tracing::debug!(%error, "a capture ended early");
            }
            // The client is told before control: it need not wait for that.
            drop(capture);
            ended();
        })?;
        Ok(Self { wake, stop, thread })
    }

    /// Asks it to end, with what is under way.
    pub fn ask_to_end(&self) {
        // Release: with nothing; it is only a flag.
        self.stop.store(true, Ordering::Release);
        self.wake.signal();
    }

    /// Waits until it has ended: not long after it was asked to.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a capture panicked; serving goes on");
        }
    }
}

/// A frame taken and not yet written.
struct Taken {
    note: Note,
    /// Where it stands in the bytes of the batch.
    from: usize,
    len: usize,
}

struct Capture {
    count: u64,
    snaplen: u32,
    sources: Vec<Source>,
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    stream: UnixStream,
    written: u64,
    /// Wall time less the workers' time.
    ahead: Duration,
    started_ns: u64,
    batch: Vec<Taken>,
    bytes: Vec<u8>,
    room: Vec<u8>,
}

/// Where the writer writes: a buffer that the thread empties into the connection.
type Writer = PcapNgWriter<Vec<u8>>;

impl Capture {
    fn run(&mut self, plan: &CapturePlan) -> Result<(), PcapError> {
        // Big-endian: the two halves of a time in the statistics then stand as the format wants them.
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
            if self.take() == 0 {
                self.wait();
                continue;
            }
            self.write(&mut writer)?;
        }
        // What was taken before the end, and no more: workers may go on for ever.
        let mut left = SLOTS as usize;
        while self.written < self.count && left > 0 {
            let taken = self.take();
            if taken == 0 {
                break;
            }
            left = left.saturating_sub(taken);
            self.write(&mut writer)?;
        }
        self.write_statistics(&mut writer)?;
        self.send(&mut writer)?;
        Ok(())
    }

    fn wall_ns(&self, nanos: u64) -> u64 {
        nanos.saturating_add(self.ahead.as_nanos() as u64)
    }

    /// Takes a batch from every ring, in order of time; how many.
    fn take(&mut self) -> usize {
        self.batch.clear();
        self.bytes.clear();
        for source in &mut self.sources {
            for _ in 0..BATCH {
                let Some(slot) = source.ring.pop_into(&mut self.room) else { break };
                // Our own worker does not lie about lengths.
                let Ok(slot) = slot else { continue };
                let from = self.bytes.len();
                self.bytes.extend_from_slice(&self.room[..slot.len.min(self.room.len())]);
                self.batch.push(Taken { note: slot.note, from, len: self.bytes.len() - from });
            }
        }
        self.batch.sort_by_key(|taken| taken.note.time_ns);
        self.batch.len()
    }

    fn write(&mut self, writer: &mut Writer) -> Result<(), PcapError> {
        let left = (self.count - self.written).min(self.batch.len() as u64);
        for Taken { note, from, len } in &self.batch[..left as usize] {
            let direction = if note.tag & SENT == 0 { INBOUND } else { OUTBOUND };
            writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(self.wall_ns(note.time_ns)),
                original_len: note.original_len,
                data: Cow::Borrowed(&self.bytes[*from..from + len]),
                options: vec![EnhancedPacketOption::Flags(direction)],
            })?;
        }
        self.written += left;
        self.send(writer)
    }

    fn write_statistics(&self, writer: &mut Writer) -> Result<(), PcapError> {
        let sum = |count: fn(&TapCounters) -> u64| self.sources.iter().map(|it| count(&it.counters)).sum();
        let now = self.wall_ns(clock::now().as_nanos());
        writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: now,
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(self.started_ns),
                InterfaceStatisticsOption::IsbEndTime(now),
                InterfaceStatisticsOption::IsbFilterAccept(sum(|it| it.wanted.get())),
                InterfaceStatisticsOption::IsbIfDrop(sum(|it| it.missed.get())),
                InterfaceStatisticsOption::IsbUsrDeliv(self.written),
            ],
        })?;
        Ok(())
    }

    /// Empties the buffer into the connection, however slowly that is read, unless it is to end.
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

    /// Whether the instance or the client has said so. The client has nothing else to say.
    fn is_to_end(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.stop.load(Ordering::Acquire) || poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Sleeps until there is something to take, or it is to end.
    fn wait(&mut self) {
        self.wake.drain();
        self.sources.iter_mut().for_each(|source| source.ring.arm());
        if !self.stop.load(Ordering::Acquire) && !self.sources.iter().any(|source| source.ring.look()) {
            let mut fds = [
                PollFd::new(&*self.wake, PollFlags::IN),
                PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP),
            ];
            // Interrupted by a signal, at worst: then it looks again.
            let _ = poll(&mut fds, None);
        }
        for source in &mut self.sources {
            source.ring.disarm();
        }
    }
}
