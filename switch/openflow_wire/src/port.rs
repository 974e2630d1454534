//! Ports (sections 7.2.1, 7.3.4.3, 7.3.5.6 and 7.4.3).

use crate::error::{BadRequest, ErrorCode};
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

/// Longest name of a port, with the zero byte at its end.
pub const PORT_NAME_LEN: usize = 16;

wire_enum! {
    /// What has become of a port (section 7.4.3, `ofp_port_reason`).
    PortReason: u8 {
        /// It is new.
        Add = 0,
        /// It is gone.
        Delete = 1,
        /// Something of it has changed.
        Modify = 2,
    }
}

/// What a controller may set of a port (section 7.2.1, `ofp_port_config`).
pub mod port_config {
    /// Administratively down.
    pub const PORT_DOWN: u32 = 1;
    /// Frames that come in by it are dropped.
    pub const NO_RECV: u32 = 1 << 2;
    /// Frames that are to leave by it are dropped.
    pub const NO_FWD: u32 = 1 << 5;
    /// Frames that came in by it are not sent as packet-in.
    pub const NO_PACKET_IN: u32 = 1 << 6;
    /// All of them.
    pub const ALL: u32 = PORT_DOWN | NO_RECV | NO_FWD | NO_PACKET_IN;
}

/// How a port is (section 7.2.1, `ofp_port_state`).
pub mod port_state {
    /// No link.
    pub const LINK_DOWN: u32 = 1;
    /// Blocked by a protocol outside OpenFlow.
    pub const BLOCKED: u32 = 1 << 1;
    /// Live for fast failover.
    pub const LIVE: u32 = 1 << 2;
}

/// Speeds and media of a port (section 7.2.1, `ofp_port_features`).
#[allow(missing_docs, reason = "the names say it")]
pub mod port_features {
    pub const HALF_10_MBIT: u32 = 1;
    pub const FULL_10_MBIT: u32 = 1 << 1;
    pub const HALF_100_MBIT: u32 = 1 << 2;
    pub const FULL_100_MBIT: u32 = 1 << 3;
    pub const HALF_1_GBIT: u32 = 1 << 4;
    pub const FULL_1_GBIT: u32 = 1 << 5;
    pub const FULL_10_GBIT: u32 = 1 << 6;
    pub const FULL_40_GBIT: u32 = 1 << 7;
    pub const FULL_100_GBIT: u32 = 1 << 8;
    pub const FULL_1_TBIT: u32 = 1 << 9;
    /// Another rate.
    pub const OTHER: u32 = 1 << 10;
    pub const COPPER: u32 = 1 << 11;
    pub const FIBER: u32 = 1 << 12;
    /// The ends agree on a mode.
    pub const AUTONEG: u32 = 1 << 13;
    pub const PAUSE: u32 = 1 << 14;
    /// In one direction.
    pub const PAUSE_ASYM: u32 = 1 << 15;
}

/// A port (section 7.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub port_no: u32,
    /// Its Ethernet address.
    pub hw_addr: [u8; 6],
    /// Its name; cut to [`PORT_NAME_LEN`].
    pub name: String,
    /// Of [`port_config`].
    pub config: u32,
    /// Of [`port_state`].
    pub state: u32,
    /// Speeds and media in use (`ofp_port_features`), as all that follow.
    pub curr: u32,
    /// Told to the peer.
    pub advertised: u32,
    /// That it can do.
    pub supported: u32,
    /// That the peer tells.
    pub peer: u32,
    /// Speed, kbit/s.
    pub curr_speed: u32,
    /// Highest speed, kbit/s.
    pub max_speed: u32,
}

impl Wire for Port {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let port_no = reader.u32()?;
        reader.skip(4)?;
        let hw_addr = reader.array()?;
        reader.skip(2)?;
        Ok(Self {
            port_no,
            hw_addr,
            name: reader.text(PORT_NAME_LEN)?,
            config: reader.u32()?,
            state: reader.u32()?,
            curr: reader.u32()?,
            advertised: reader.u32()?,
            supported: reader.u32()?,
            peer: reader.u32()?,
            curr_speed: reader.u32()?,
            max_speed: reader.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.port_no);
        out.zeros(4);
        out.extend_from_slice(&self.hw_addr);
        out.zeros(2);
        out.text(&self.name, PORT_NAME_LEN);
        let words = [self.config, self.state, self.curr, self.advertised, self.supported, self.peer];
        for word in words.into_iter().chain([self.curr_speed, self.max_speed]) {
            out.u32(word);
        }
    }
}

/// Something has become of a port (section 7.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// What.
    pub reason: PortReason,
    /// The port, as it is now or was last.
    pub port: Port,
}

impl Wire for PortStatus {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let reason = PortReason::from_number(reader.u8()?).ok_or(BadRequest::BadType)?;
        reader.skip(7)?;
        Ok(Self { reason, port: Port::read(reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u8(self.reason.number());
        out.zeros(7);
        self.port.write(out);
    }
}

/// A change of a port (section 7.3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Its number.
    pub port_no: u32,
    /// Its Ethernet address, as a check.
    pub hw_addr: [u8; 6],
    /// Of [`port_config`].
    pub config: u32,
    /// Which bits of it change.
    pub mask: u32,
    /// What is to be told to the peer; 0: no change.
    pub advertise: u32,
}

impl Wire for PortMod {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let port_no = reader.u32()?;
        reader.skip(4)?;
        let hw_addr = reader.array()?;
        reader.skip(2)?;
        let this =
            Self { port_no, hw_addr, config: reader.u32()?, mask: reader.u32()?, advertise: reader.u32()? };
        reader.skip(4)?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.port_no);
        out.zeros(4);
        out.extend_from_slice(&self.hw_addr);
        out.zeros(2);
        out.u32(self.config);
        out.u32(self.mask);
        out.u32(self.advertise);
        out.zeros(4);
    }
}

/// The counters of a port (section 7.3.5.6). What is not counted has all bits set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Its number.
    pub port_no: u32,
    /// Packets received, packets sent.
    pub packets: [u64; 2],
    /// Bytes received, bytes sent.
    pub bytes: [u64; 2],
    /// Packets dropped that came in, and that were to leave.
    pub dropped: [u64; 2],
    /// Errors of receiving and of sending.
    pub errors: [u64; 2],
    /// Frame alignment errors, overruns and CRC errors of receiving.
    pub rx_errors: [u64; 3],
    /// Collisions.
    pub collisions: u64,
    /// Seconds that it has been there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
}

impl Wire for PortStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let port_no = reader.u32()?;
        reader.skip(4)?;
        let mut words = [0; 12];
        for word in &mut words {
            *word = reader.u64()?;
        }
        let [rx, tx, rx_bytes, tx_bytes, rx_drop, tx_drop, rx_err, tx_err, frame, over, crc, collisions] =
            words;
        Ok(Self {
            port_no,
            packets: [rx, tx],
            bytes: [rx_bytes, tx_bytes],
            dropped: [rx_drop, tx_drop],
            errors: [rx_err, tx_err],
            rx_errors: [frame, over, crc],
            collisions,
            duration_s: reader.u32()?,
            duration_ns: reader.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.port_no);
        out.zeros(4);
        let pairs = [self.packets, self.bytes, self.dropped, self.errors].into_iter().flatten();
        for word in pairs.chain(self.rx_errors).chain([self.collisions]) {
            out.u64(word);
        }
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
    }
}
