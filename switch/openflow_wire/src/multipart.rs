//! Requests and replies that may take several messages (section 7.3.5).

use crate::error::{BadRequest, ErrorCode};
use crate::flow::{FlowStats, FlowStatsRequest};
use crate::group::{GroupDesc, GroupFeatures, GroupStats};
use crate::meter::{MeterConfig, MeterFeatures, MeterStats};
use crate::port::{Port, PortStats};
use crate::queue::QueueStats;
use crate::table::{TableFeatures, TableStats};
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// What is asked (section 7.3.5, `ofp_multipart_type`).
    MultipartType: u16 {
        /// What the switch is.
        Desc = 0,
        /// Flows.
        Flow = 1,
        /// The sums of flows.
        Aggregate = 2,
        /// Counters of tables.
        Table = 3,
        /// Counters of ports.
        PortStats = 4,
        /// Counters of queues.
        Queue = 5,
        /// Counters of groups.
        Group = 6,
        /// Groups as they were made.
        GroupDesc = 7,
        /// What the switch can do with groups.
        GroupFeatures = 8,
        /// Counters of meters.
        Meter = 9,
        /// Meters as they were made.
        MeterConfig = 10,
        /// What the switch can do with meters.
        MeterFeatures = 11,
        /// What tables can do.
        TableFeatures = 12,
        /// Ports.
        PortDesc = 13,
        /// Something that the specification does not define.
        Experimenter = 0xffff,
    }
}

/// The flag that more messages follow.
const MORE: u16 = 1;

/// A part of a request or of a reply (section 7.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart<B> {
    /// Whether further parts follow.
    pub more: bool,
    /// What it says.
    pub body: B,
}

/// What a controller asks (section 7.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// What the switch is.
    Desc,
    /// Flows.
    Flow(FlowStatsRequest),
    /// The sums of flows.
    Aggregate(FlowStatsRequest),
    /// Counters of tables.
    Table,
    /// Counters of a port, or of [`crate::number::port::ANY`].
    PortStats(u32),
    /// Counters of queues.
    Queue {
        /// The port, or [`crate::number::port::ANY`].
        port: u32,
        /// The queue, or [`crate::number::QUEUE_ALL`].
        queue_id: u32,
    },
    /// Counters of a group, or of [`crate::number::group::ALL`].
    Group(u32),
    /// Groups as they were made.
    GroupDesc,
    /// What the switch can do with groups.
    GroupFeatures,
    /// Counters of a meter, or of [`crate::number::meter::ALL`].
    Meter(u32),
    /// A meter as it was made, or [`crate::number::meter::ALL`].
    MeterConfig(u32),
    /// What the switch can do with meters.
    MeterFeatures,
    /// What tables can do; if there are any here, what they are to do.
    TableFeatures(Box<[TableFeatures]>),
    /// Ports.
    PortDesc,
    /// Something that the specification does not define.
    Experimenter(ExperimenterBody),
}

/// Something that the specification does not define (section 7.3.5.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimenterBody {
    /// The experimenter that defines it.
    pub experimenter: u32,
    /// Its type.
    pub exp_type: u32,
    /// The data that follow.
    pub data: Box<[u8]>,
}

impl Wire for ExperimenterBody {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self { experimenter: reader.u32()?, exp_type: reader.u32()?, data: reader.remaining().into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.experimenter);
        out.u32(self.exp_type);
        out.extend_from_slice(&self.data);
    }
}

/// Reads type and flags.
fn read_head(reader: &mut Reader<'_>) -> Result<(MultipartType, bool), ErrorCode> {
    let kind = reader.u16()?;
    let flags = reader.u16()?;
    reader.skip(4)?;
    Ok((MultipartType::from_number(kind).ok_or(BadRequest::BadMultipart)?, flags & MORE != 0))
}

fn write_head(kind: MultipartType, more: bool, out: &mut Vec<u8>) {
    out.u16(kind.number());
    out.u16(if more { MORE } else { 0 });
    out.zeros(4);
}

/// A number, then padding to 8 bytes.
fn padded_number(reader: &mut Reader<'_>) -> Result<u32, ErrorCode> {
    let number = reader.u32()?;
    reader.skip(4)?;
    Ok(number)
}

impl MultipartRequest {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> MultipartType {
        match self {
            Self::Desc => MultipartType::Desc,
            Self::Flow(_) => MultipartType::Flow,
            Self::Aggregate(_) => MultipartType::Aggregate,
            Self::Table => MultipartType::Table,
            Self::PortStats(_) => MultipartType::PortStats,
            Self::Queue { .. } => MultipartType::Queue,
            Self::Group(_) => MultipartType::Group,
            Self::GroupDesc => MultipartType::GroupDesc,
            Self::GroupFeatures => MultipartType::GroupFeatures,
            Self::Meter(_) => MultipartType::Meter,
            Self::MeterConfig(_) => MultipartType::MeterConfig,
            Self::MeterFeatures => MultipartType::MeterFeatures,
            Self::TableFeatures(_) => MultipartType::TableFeatures,
            Self::PortDesc => MultipartType::PortDesc,
            Self::Experimenter(_) => MultipartType::Experimenter,
        }
    }
}

impl Wire for Multipart<MultipartRequest> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (kind, more) = read_head(reader)?;
        let body = match kind {
            MultipartType::Desc => MultipartRequest::Desc,
            MultipartType::Flow => MultipartRequest::Flow(FlowStatsRequest::read(reader)?),
            MultipartType::Aggregate => MultipartRequest::Aggregate(FlowStatsRequest::read(reader)?),
            MultipartType::Table => MultipartRequest::Table,
            MultipartType::PortStats => MultipartRequest::PortStats(padded_number(reader)?),
            MultipartType::Queue => MultipartRequest::Queue { port: reader.u32()?, queue_id: reader.u32()? },
            MultipartType::Group => MultipartRequest::Group(padded_number(reader)?),
            MultipartType::GroupDesc => MultipartRequest::GroupDesc,
            MultipartType::GroupFeatures => MultipartRequest::GroupFeatures,
            MultipartType::Meter => MultipartRequest::Meter(padded_number(reader)?),
            MultipartType::MeterConfig => MultipartRequest::MeterConfig(padded_number(reader)?),
            MultipartType::MeterFeatures => MultipartRequest::MeterFeatures,
            MultipartType::TableFeatures => MultipartRequest::TableFeatures(reader.list()?.into()),
            MultipartType::PortDesc => MultipartRequest::PortDesc,
            MultipartType::Experimenter => MultipartRequest::Experimenter(ExperimenterBody::read(reader)?),
        };
        Ok(Self { more, body })
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_head(self.body.kind(), self.more, out);
        match &self.body {
            MultipartRequest::Desc
            | MultipartRequest::Table
            | MultipartRequest::GroupDesc
            | MultipartRequest::GroupFeatures
            | MultipartRequest::MeterFeatures
            | MultipartRequest::PortDesc => {}
            MultipartRequest::Flow(request) | MultipartRequest::Aggregate(request) => request.write(out),
            MultipartRequest::PortStats(number)
            | MultipartRequest::Group(number)
            | MultipartRequest::Meter(number)
            | MultipartRequest::MeterConfig(number) => {
                out.u32(*number);
                out.zeros(4);
            }
            MultipartRequest::Queue { port, queue_id } => {
                out.u32(*port);
                out.u32(*queue_id);
            }
            MultipartRequest::TableFeatures(tables) => out.list(tables),
            MultipartRequest::Experimenter(body) => body.write(out),
        }
    }
}

/// What a switch is (section 7.3.5.1). Each text is cut to its field: 255 bytes, the serial number 31.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    /// Its manufacturer.
    pub manufacturer: String,
    /// Its hardware.
    pub hardware: String,
    /// Its software.
    pub software: String,
    /// Its serial number.
    pub serial_number: String,
    /// What it is called by people.
    pub datapath: String,
}

impl Wire for Desc {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self {
            manufacturer: reader.text(256)?,
            hardware: reader.text(256)?,
            software: reader.text(256)?,
            serial_number: reader.text(32)?,
            datapath: reader.text(256)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.text(&self.manufacturer, 256);
        out.text(&self.hardware, 256);
        out.text(&self.software, 256);
        out.text(&self.serial_number, 32);
        out.text(&self.datapath, 256);
    }
}

/// The sums of flows (section 7.3.5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// Packets that they have taken.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How many they are.
    pub flows: u32,
}

impl Wire for Aggregate {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self { packets: reader.u64()?, bytes: reader.u64()?, flows: padded_number(reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.packets);
        out.u64(self.bytes);
        out.u32(self.flows);
        out.zeros(4);
    }
}

/// What a switch answers (section 7.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartReply {
    /// What it is.
    Desc(Box<Desc>),
    /// Flows.
    Flow(Vec<FlowStats>),
    /// The sums of flows.
    Aggregate(Aggregate),
    /// Counters of tables.
    Table(Vec<TableStats>),
    /// Counters of ports.
    PortStats(Vec<PortStats>),
    /// Counters of queues.
    Queue(Vec<QueueStats>),
    /// Counters of groups.
    Group(Vec<GroupStats>),
    /// Groups as they were made.
    GroupDesc(Vec<GroupDesc>),
    /// What it can do with groups.
    GroupFeatures(GroupFeatures),
    /// Counters of meters.
    Meter(Vec<MeterStats>),
    /// Meters as they were made.
    MeterConfig(Vec<MeterConfig>),
    /// What it can do with meters.
    MeterFeatures(MeterFeatures),
    /// What tables can do.
    TableFeatures(Vec<TableFeatures>),
    /// Ports.
    PortDesc(Vec<Port>),
    /// Something that the specification does not define.
    Experimenter(ExperimenterBody),
}

impl MultipartReply {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> MultipartType {
        match self {
            Self::Desc(_) => MultipartType::Desc,
            Self::Flow(_) => MultipartType::Flow,
            Self::Aggregate(_) => MultipartType::Aggregate,
            Self::Table(_) => MultipartType::Table,
            Self::PortStats(_) => MultipartType::PortStats,
            Self::Queue(_) => MultipartType::Queue,
            Self::Group(_) => MultipartType::Group,
            Self::GroupDesc(_) => MultipartType::GroupDesc,
            Self::GroupFeatures(_) => MultipartType::GroupFeatures,
            Self::Meter(_) => MultipartType::Meter,
            Self::MeterConfig(_) => MultipartType::MeterConfig,
            Self::MeterFeatures(_) => MultipartType::MeterFeatures,
            Self::TableFeatures(_) => MultipartType::TableFeatures,
            Self::PortDesc(_) => MultipartType::PortDesc,
            Self::Experimenter(_) => MultipartType::Experimenter,
        }
    }
}

impl Wire for Multipart<MultipartReply> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (kind, more) = read_head(reader)?;
        let body = match kind {
            MultipartType::Desc => MultipartReply::Desc(Box::new(Desc::read(reader)?)),
            MultipartType::Flow => MultipartReply::Flow(reader.list()?),
            MultipartType::Aggregate => MultipartReply::Aggregate(Aggregate::read(reader)?),
            MultipartType::Table => MultipartReply::Table(reader.list()?),
            MultipartType::PortStats => MultipartReply::PortStats(reader.list()?),
            MultipartType::Queue => MultipartReply::Queue(reader.list()?),
            MultipartType::Group => MultipartReply::Group(reader.list()?),
            MultipartType::GroupDesc => MultipartReply::GroupDesc(reader.list()?),
            MultipartType::GroupFeatures => MultipartReply::GroupFeatures(GroupFeatures::read(reader)?),
            MultipartType::Meter => MultipartReply::Meter(reader.list()?),
            MultipartType::MeterConfig => MultipartReply::MeterConfig(reader.list()?),
            MultipartType::MeterFeatures => MultipartReply::MeterFeatures(MeterFeatures::read(reader)?),
            MultipartType::TableFeatures => MultipartReply::TableFeatures(reader.list()?),
            MultipartType::PortDesc => MultipartReply::PortDesc(reader.list()?),
            MultipartType::Experimenter => MultipartReply::Experimenter(ExperimenterBody::read(reader)?),
        };
        Ok(Self { more, body })
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_head(self.body.kind(), self.more, out);
        match &self.body {
            MultipartReply::Desc(desc) => desc.write(out),
            MultipartReply::Flow(list) => out.list(list),
            MultipartReply::Aggregate(sums) => sums.write(out),
            MultipartReply::Table(list) => out.list(list),
            MultipartReply::PortStats(list) => out.list(list),
            MultipartReply::Queue(list) => out.list(list),
            MultipartReply::Group(list) => out.list(list),
            MultipartReply::GroupDesc(list) => out.list(list),
            MultipartReply::GroupFeatures(features) => features.write(out),
            MultipartReply::Meter(list) => out.list(list),
            MultipartReply::MeterConfig(list) => out.list(list),
            MultipartReply::MeterFeatures(features) => features.write(out),
            MultipartReply::TableFeatures(list) => out.list(list),
            MultipartReply::PortDesc(list) => out.list(list),
            MultipartReply::Experimenter(body) => body.write(out),
        }
    }
}
