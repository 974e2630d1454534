//! A port that records the frames that pass, as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and tcpdump.
//!
//! It is for tests and for frames of the fast path, which the kernel never sees. Writing allocates and may block, so
//! it wraps a real port only on request.

use std::borrow::Cow;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use twinpath_frame::{Burst, Frame, Pool};
use twinpath_time::Instant;

use crate::{Capabilities, PortCounters, PortId, PortQueue, WaitSource};

/// `epb_flags`: direction (pcapng, section "Enhanced Packet Block Flags Word").
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Records frames in both directions and passes them to the inner port.
pub struct CapturePort<W: Write + Send> {
    inner: Box<dyn PortQueue>,
    writer: PcapNgWriter<W>,
    now: Instant,
    /// Set when the writer fails: recording stops, traffic does not.
    failed: Option<PcapError>,
}

impl<W: Write + Send> CapturePort<W> {
    /// Wraps `inner`; writes to `out`. Times are those of the worker's clock.
    ///
    /// # Errors
    /// What writing the file header returns.
    pub fn new(inner: Box<dyn PortQueue>, name: &str, out: W) -> Result<Self, PcapError> {
        let mut writer = PcapNgWriter::new(out)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Owned(name.to_owned())),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options,
        })?;
        Ok(Self { inner, writer, now: Instant::ZERO, failed: None })
    }

    /// Why recording stopped, if it did.
    #[must_use]
    pub fn failed(&self) -> Option<&PcapError> {
        self.failed.as_ref()
    }

    fn record(&mut self, at: Instant, bytes: &[u8], direction: u32) {
        if self.failed.is_some() {
            return;
        }
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(at.as_nanos()),
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(bytes),
            options: vec![EnhancedPacketOption::Flags(direction)],
        };
        self.failed = self.writer.write_pcapng_block(block).err();
    }
}

impl<W: Write + Send> WaitSource for CapturePort<W> {
    fn look(&self) -> bool {
        self.inner.look()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

impl<W: Write + Send> PortQueue for CapturePort<W> {
    fn id(&self) -> PortId {
        self.inner.id()
    }

    fn ifindex(&self) -> u32 {
        self.inner.ifindex()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn prepare(&mut self, pool: &mut Pool) {
        self.inner.prepare(pool);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let before = burst.len();
        self.now = now;
        self.inner.receive(now, pool, burst);
        for frame in &burst.frames()[before..] {
            self.record(now, frame.bytes(), INBOUND);
        }
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.frames() {
            self.record(self.now, frame.bytes(), OUTBOUND);
        }
        self.inner.transmit(pool, burst);
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.inner.flush(pool);
    }

    fn on_error(&mut self) {
        self.inner.on_error();
    }

    fn is_withdrawn(&self) -> bool {
        self.inner.is_withdrawn()
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn counters(&self) -> &Arc<PortCounters> {
        self.inner.counters()
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::Mutex;

    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;
    use crate::loopback::pair;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic while locked").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn both_directions_are_recorded_with_their_times() {
        let mut pool = Pool::new(8).expect("pool");
        let (mut near, far) = pair(PortId::default(), PortId::default()).expect("eventfds");
        let file = Shared::default();
        let mut far = CapturePort::new(Box::new(far), "test0", file.clone()).expect("header");
        let mut burst = Burst::new();
        let mut frame = pool.take().expect("free");
        frame.copy_from(b"ping").expect("fits");
        burst.push(frame).expect("room");
        near.transmit(&mut pool, &mut burst);
        far.receive(Instant::from_nanos(1_500), &mut pool, &mut burst);
        far.transmit(&mut pool, &mut burst);
        assert!(far.failed().is_none());

        let bytes = file.0.lock().expect("no panic while locked").clone();
        let mut reader = PcapNgReader::new(Cursor::new(bytes)).expect("a pcapng file");
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.expect("a whole block") {
                let direction = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(direction) => Some(*direction),
                    _ => None,
                });
                packets.push((packet.data.to_vec(), direction));
            }
        }
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|(data, _)| data == b"ping"));
        assert_eq!(packets[0].1, Some(INBOUND));
        assert_eq!(packets[1].1, Some(OUTBOUND));
    }
}
