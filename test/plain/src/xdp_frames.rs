//! The source and the sink of XDP frames: frames that are no packets of the kernel's at either end.

use aya::Ebpf;
use aya::maps::PerCpuArray;
use aya::programs::xdp::XdpLink;
use aya::programs::{TestRun as _, TestRunAttrs, TestRunOptions, Xdp};
use twinpath_time::Duration;

use crate::PlainError;
use crate::frame_source::FRAME_BYTES;
use crate::xdp_redirect::{PROGRAM, attach, load};

/// Frames that the kernel makes at a time; it handles interrupts of the network after each batch, so that the receiving interface
/// takes them before the next ones come.
const BATCH: u32 = 64;

/// A UDP datagram over IPv4 in a frame of 64 bytes, with its checksum of Ethernet.
#[must_use]
pub fn datagram_frame(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x1b, 0x58, 0x1b, 0x58, 0, 26, 0, 0]);
    frame.resize(FRAME_BYTES, 0);
    frame
}

/// Sends copies of a frame through an interface, without a socket (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).
pub struct XdpSource {
    object: Ebpf,
    ifindex: u32,
}

impl XdpSource {
    /// Of the interface with this index, of the calling thread's namespace. On a veth pair the other end needs an XDP program or
    /// GRO.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN.
    pub fn new(ifindex: u32) -> Result<Self, PlainError> {
        let mut source = Self { object: load(ifindex)?, ifindex };
        source.program()?.load().map_err(|error| source.failed(&error))?;
        Ok(source)
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> PlainError {
        PlainError::XdpRedirect { ifindex: self.ifindex, reason: error.to_string() }
    }

    fn program(&mut self) -> Result<&mut Xdp, PlainError> {
        let ifindex = self.ifindex;
        let failed = |reason: String| PlainError::XdpRedirect { ifindex, reason };
        let program = self.object.program_mut(PROGRAM).ok_or_else(|| failed(format!("no {PROGRAM}")))?;
        program.try_into().map_err(|error| failed(format!("{error}")))
    }

    /// Sends so many on the calling thread, and returns the time that they took, without that for setting up (some 20 ms).
    ///
    /// # Errors
    /// Before Linux 5.18, or for a frame that the kernel does not take.
    pub fn send(&mut self, frame: &[u8], frames: u32) -> Result<Duration, PlainError> {
        let options = TestRunOptions {
            data_in: Some(frame),
            repeat: frames,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::default()
        };
        let ran = self.program()?.test_run(options).map_err(|error| self.failed(&error))?;
        // The kernel reports the average.
        Ok(ran.duration * frames)
    }
}

/// Takes all frames that arrive at an interface, in its driver. Dropping it takes the program off.
pub struct XdpSink {
    object: Ebpf,
    ifindex: u32,
    _link: XdpLink,
}

impl XdpSink {
    /// At the interface with this index, of the calling thread's namespace.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN, or where the interface's driver runs no XDP.
    pub fn attach(ifindex: u32) -> Result<Self, PlainError> {
        let (object, link) = attach(load(ifindex)?, "sink_xdp", ifindex)?;
        Ok(Self { object, ifindex, _link: link })
    }

    /// Frames that have come.
    ///
    /// # Errors
    /// The kernel does not give the count.
    pub fn count(&self) -> Result<u64, PlainError> {
        let failed = |reason: String| PlainError::XdpRedirect { ifindex: self.ifindex, reason };
        let map = self.object.map("sunk").ok_or_else(|| failed("no count".to_owned()))?;
        let counts: PerCpuArray<_, u64> =
            PerCpuArray::try_from(map).map_err(|error| failed(error.to_string()))?;
        let counts = counts.get(&0, 0).map_err(|error| failed(error.to_string()))?;
        Ok(counts.iter().sum())
    }
}
