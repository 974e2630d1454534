//! Queues of ports (sections 7.2.2, 7.3.5.8 and 7.3.6).

use crate::error::{BadRequest, ErrorCode};
use crate::wire::{Put, Reader, Wire};

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
const EXPERIMENTER: u16 = 0xffff;

/// A property of a queue (section 7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueProperty {
    /// Rate that it is sure of, tenths of a percent.
    MinRate(u16),
    /// Rate that it does not exceed, tenths of a percent.
    MaxRate(u16),
    /// One that the specification does not define.
    Experimenter {
        /// The experimenter that defines it.
        experimenter: u32,
        /// The data that follow.
        data: Box<[u8]>,
    },
}

impl Wire for QueueProperty {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let mut part = reader.counted(len, 4, BadRequest::BadLen)?;
        part.skip(4)?;
        let this = match kind {
            MIN_RATE | MAX_RATE => {
                let rate = part.u16()?;
                part.skip(6)?;
                if kind == MIN_RATE { Self::MinRate(rate) } else { Self::MaxRate(rate) }
            }
            EXPERIMENTER => {
                let experimenter = part.u32()?;
                part.skip(4)?;
                Self::Experimenter { experimenter, data: part.remaining().into() }
            }
            _ => return Err(BadRequest::BadType.into()),
        };
        part.end()?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(match self {
            Self::MinRate(_) => MIN_RATE,
            Self::MaxRate(_) => MAX_RATE,
            Self::Experimenter { .. } => EXPERIMENTER,
        });
        out.zeros(6);
        match self {
            Self::MinRate(rate) | Self::MaxRate(rate) => {
                out.u16(*rate);
                out.zeros(6);
            }
            Self::Experimenter { experimenter, data } => {
                out.u32(*experimenter);
                out.zeros(4);
                out.extend_from_slice(data);
            }
        }
        out.put_len(start + 2, start);
    }
}

/// A queue (section 7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number, on its port.
    pub queue_id: u32,
    /// Its port.
    pub port: u32,
    /// Its properties.
    pub properties: Box<[QueueProperty]>,
}

impl Wire for Queue {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (queue_id, port) = (reader.u32()?, reader.u32()?);
        let len = reader.u16()?;
        let mut part = reader.counted(len, 10, BadRequest::BadLen)?;
        part.skip(6)?;
        Ok(Self { queue_id, port, properties: part.list()?.into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(self.queue_id);
        out.u32(self.port);
        out.zeros(8);
        out.list(&self.properties);
        out.put_len(start + 8, start);
    }
}

/// The queues of a port (section 7.3.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The port, or [`crate::number::port::ANY`].
    pub port: u32,
    /// Its queues.
    pub queues: Box<[Queue]>,
}

impl Wire for QueueConfig {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let port = reader.u32()?;
        reader.skip(4)?;
        Ok(Self { port, queues: reader.list()?.into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.port);
        out.zeros(4);
        out.list(&self.queues);
    }
}

/// The counters of a queue (section 7.3.5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its port.
    pub port: u32,
    /// Its number, on that port.
    pub queue_id: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped because it was full.
    pub tx_errors: u64,
    /// Seconds that it has been there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
}

impl Wire for QueueStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self {
            port: reader.u32()?,
            queue_id: reader.u32()?,
            tx_bytes: reader.u64()?,
            tx_packets: reader.u64()?,
            tx_errors: reader.u64()?,
            duration_s: reader.u32()?,
            duration_ns: reader.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.port);
        out.u32(self.queue_id);
        out.u64(self.tx_bytes);
        out.u64(self.tx_packets);
        out.u64(self.tx_errors);
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
    }
}
