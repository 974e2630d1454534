//! `plain tap`: records when each frame of one TCP port passed an interface, by the kernel's clock, from headers only.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_sys::FrameTap;

/// Ethernet, IPv4 and TCP without options.
const HEADERS: usize = 14 + 20 + 20;
/// Room for IPv4 options too.
const SNAP: usize = 128;
/// The longest wait before the thread checks whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface
    #[arg(long)]
    on: String,
    /// The server's TCP port
    #[arg(long)]
    port: u16,
    /// Where to write the frames, one JSON object per line
    #[arg(long)]
    write: PathBuf,
}

/// A TCP frame that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passed {
    /// Nanoseconds since 1970.
    pub(crate) at_ns: u64,
    pub(crate) from_server: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// TCP payload, bytes: more than a segment's if the sender's kernel left segmentation to the device.
    pub(crate) payload: u32,
}

/// Records until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let tap = FrameTap::open(&args.on).with_context(|| format!("cannot tap {}", args.on))?;
    let stop = Stop::new();
    print(json!({ "ready": true, "pid": std::process::id() }))?;
    let (frames, _) = attend(&stop, None, || collect(&tap, args.port, &stop))?;
    let frames = frames?;
    let dropped = tap.dropped().context("cannot read what was dropped")?;
    ensure!(dropped == 0, "{dropped} frames of {} were not seen: the socket's buffer was full", args.on);
    let file =
        File::create(&args.write).with_context(|| format!("cannot create {}", args.write.display()))?;
    let mut file = BufWriter::new(file);
    for frame in &frames {
        serde_json::to_writer(&mut file, frame)?;
        file.write_all(b"\n")?;
    }
    file.flush().with_context(|| format!("cannot write {}", args.write.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn collect(tap: &FrameTap, port: u16, stop: &Stop) -> anyhow::Result<Vec<Passed>> {
    let mut frames = Vec::new();
    let mut buffer = [0; SNAP];
    loop {
        // Read before the last look, so that no frame that passed before the signal is missed.
        let last = stop.is_requested();
        loop {
            match tap.next(&mut buffer) {
                Ok(tapped) => frames.extend(parse(&buffer[..tapped.kept], port, tapped.at_ns)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot read from the tap"),
            }
        }
        if last {
            return Ok(frames);
        }
        match poll(&mut [PollFd::new(tap, PollFlags::IN)], Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for frames"),
        }
    }
}

/// Parses IPv4 and TCP of `port` from headers alone, because the rest of the frame was not kept.
fn parse(frame: &[u8], port: u16, at_ns: u64) -> Option<Passed> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let u32_at = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    if frame.len() < HEADERS || u16_at(12)? != 0x0800 || frame[14] >> 4 != 4 || frame[23] != 6 {
        return None;
    }
    let tcp = 14 + 4 * usize::from(frame[14] & 15);
    let headers = tcp - 14 + 4 * usize::from(frame.get(tcp + 12)? >> 4);
    let (source, destination) = (u16_at(tcp)?, u16_at(tcp + 2)?);
    let payload = u32::from(u16_at(16)?).checked_sub(headers as u32)?;
    (source == port || destination == port).then_some(Passed {
        at_ns,
        from_server: source == port,
        seq: u32_at(tcp + 4)?,
        ack: u32_at(tcp + 8)?,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_options_are_read_and_other_ports_are_not() {
        let mut frame = vec![0; 14];
        frame[12..14].copy_from_slice(&[8, 0]);
        // IPv4 with one word of options, 24 + 32 + 100 bytes.
        frame.extend([0x46, 0, 0, 156, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
        // TCP 2049 to 700, sequence 5, acknowledgement 6, three words of options.
        frame.extend([8, 1, 2, 188, 0, 0, 0, 5, 0, 0, 0, 6, 0x80, 0x18, 0, 0, 0, 0, 0, 0]);
        frame.extend([1; 12]);
        let expected = Passed { at_ns: 9, from_server: true, seq: 5, ack: 6, payload: 100 };
        assert_eq!(parse(&frame, 2049, 9), Some(expected));
        assert_eq!(parse(&frame, 700, 9), Some(Passed { from_server: false, ..expected }));
        assert_eq!(parse(&frame, 80, 9), None);
        for length in 0..frame.len() - 12 {
            let _ = parse(&frame[..length], 2049, 9);
        }
    }
}
