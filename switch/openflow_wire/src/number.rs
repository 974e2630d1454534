//! Numbers with a meaning of their own: reserved ports, groups, meters and tables, and limits of the protocol.

/// Ports (section 7.2.1, `ofp_port_no`).
pub mod port {
    /// The highest number of a port.
    pub const MAX: u32 = 0xffff_ff00;
    /// Back out of the port that the frame came in by; only named explicitly does a frame leave there.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// To the first table; in packet-out only.
    pub const TABLE: u32 = 0xffff_fff9;
    /// The switch's own forwarding by learned addresses.
    pub const NORMAL: u32 = 0xffff_fffa;
    /// Flooding, as the switch's own forwarding does it.
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports but that which the frame came in by.
    pub const ALL: u32 = 0xffff_fffc;
    /// The controllers, as packet-in.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The host's own stack.
    pub const LOCAL: u32 = 0xffff_fffe;
    /// No port, or any: in requests and in watched ports.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Groups (section 7.3.4.2, `ofp_group`).
pub mod group {
    /// The highest number of a group.
    pub const MAX: u32 = 0xffff_ff00;
    /// All groups, to delete them.
    pub const ALL: u32 = 0xffff_fffc;
    /// No group, or any: in requests and in watched groups.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Meters (section 7.3.4.4, `ofp_meter`).
pub mod meter {
    /// The highest number of a meter that flows may name.
    pub const MAX: u32 = 0xffff_0000;
    /// Meter of a slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// Meter of the frames that go to the controllers.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// All meters.
    pub const ALL: u32 = 0xffff_ffff;
}

/// Tables (section 7.3.3, `ofp_table`).
pub mod table {
    /// The highest number of a table.
    pub const MAX: u8 = 0xfe;
    /// All tables.
    pub const ALL: u8 = 0xff;
}

/// Bytes of a frame that packet-in carries (section 7.2.5, `ofp_controller_max_len`).
pub mod max_len {
    /// The maximum number of bytes that can be asked for.
    pub const MAX: u16 = 0xffe5;
    /// The whole frame, and no buffer.
    pub const NO_BUFFER: u16 = 0xffff;
}

/// No buffer of the switch (`OFP_NO_BUFFER`).
pub const NO_BUFFER: u32 = 0xffff_ffff;
/// All queues (`OFPQ_ALL`).
pub const QUEUE_ALL: u32 = 0xffff_ffff;
/// The version of OpenFlow 1.3 on the wire.
pub const VERSION: u8 = 4;
/// The bit of `vlan_vid` that says that the frame has a tag (section 7.2.3.8, `OFPVID_PRESENT`).
pub const VLAN_PRESENT: u16 = 0x1000;
