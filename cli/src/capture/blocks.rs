//! Counts the blocks of a pcapng file in a stream.

use std::fmt;

use pcap_file::PcapError;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgParser};

/// The counts so far.
#[derive(Default)]
pub(crate) struct Blocks {
    parser: Option<PcapNgParser>,
    /// The start of an incomplete block.
    rest: Vec<u8>,
    frames: u64,
    /// Frames that were missed; `None` until the last block.
    missed: Option<u64>,
    /// The stream is not pcapng: counting has stopped.
    lost: bool,
}

impl Blocks {
    /// Takes the next bytes of the file.
    pub(crate) fn see(&mut self, bytes: &[u8]) {
        if self.lost {
            return;
        }
        self.rest.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            match self.next(done) {
                Ok(left) => done = self.rest.len() - left,
                Err(PcapError::IncompleteBuffer) => break,
                Err(_) => {
                    self.lost = true;
                    break;
                }
            }
        }
        self.rest.drain(..done);
    }

    /// Whether the end of the file has been reached, as far as can be told.
    pub(crate) const fn are_whole(&self) -> bool {
        self.lost || self.missed.is_some()
    }

    /// Reads one block; returns how many bytes follow it.
    fn next(&mut self, from: usize) -> Result<usize, PcapError> {
        let bytes = &self.rest[from..];
        let Some(parser) = &mut self.parser else {
            let (left, parser) = PcapNgParser::new(bytes)?;
            self.parser = Some(parser);
            return Ok(left.len());
        };
        if bytes.is_empty() {
            return Err(PcapError::IncompleteBuffer);
        }
        let (left, block) = parser.next_block(bytes)?;
        match block {
            Block::EnhancedPacket(_) => self.frames += 1,
            Block::InterfaceStatistics(statistics) => {
                self.missed = statistics.options.iter().find_map(|option| match option {
                    InterfaceStatisticsOption::IsbIfDrop(missed) => Some(*missed),
                    _ => None,
                });
            }
            _ => {}
        }
        Ok(left.len())
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames captured, ", self.frames)?;
        match self.missed {
            Some(missed) => write!(f, "{missed} missed"),
            None => f.write_str("the end of the file is missing"),
        }
    }
}
