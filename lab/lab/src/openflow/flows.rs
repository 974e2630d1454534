//! The flows that the labs' controllers put in.

use twinpath_openflow_wire::{
    Action, ErrorCode, Field, FlowMod, FlowModCommand, Instruction, Match, MatchField, Message, PortMod,
    number, port_config,
};

const ETH_IPV4: u128 = 0x800;
const UDP: u128 = 17;
/// The EtherType of the frames of `plain frame-source`.
const FLOOD: u128 = 0x88b5;
/// Above that of [`normal`] and [`two_ports`].
pub(super) const PRIORITY: u16 = 100;

/// A new flow of table 0 without timeouts.
fn flow(priority: u16, fields: Vec<MatchField>, actions: Vec<Action>) -> Result<FlowMod, ErrorCode> {
    let instructions =
        if actions.is_empty() { Vec::new() } else { vec![Instruction::ApplyActions(actions.into())] };
    Ok(FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table_id: 0,
        command: FlowModCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority,
        buffer_id: number::NO_BUFFER,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        flags: 0,
        matches: Match::new(fields)?,
        instructions: instructions.into(),
    })
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: number::max_len::NO_BUFFER }
}

/// Takes all flows out.
pub(crate) fn delete_all() -> Result<Message, ErrorCode> {
    let all = FlowMod {
        table_id: number::table::ALL,
        command: FlowModCommand::Delete,
        ..flow(0, Vec::new(), Vec::new())?
    };
    Ok(Message::FlowMod(Box::new(all)))
}

/// Every frame goes as in a switch without controllers, unless another flow takes it.
pub(crate) fn normal() -> Result<Message, ErrorCode> {
    Ok(Message::FlowMod(Box::new(flow(1, Vec::new(), vec![output(number::port::NORMAL)])?)))
}

/// What comes in by port 1 leaves by port 2, and the other way; what comes in by port 1 goes to controllers, too, if it is a
/// frame of [`FLOOD`].
pub(crate) fn two_ports(flood_to_controllers: bool) -> Result<[Message; 3], ErrorCode> {
    let by = |from: u32| vec![MatchField::exact(Field::InPort, from.into())];
    let flood = vec![MatchField::exact(Field::InPort, 1), MatchField::exact(Field::EthType, FLOOD)];
    let both = [Some(output(2)), flood_to_controllers.then(|| output(number::port::CONTROLLER))];
    let message = |flow| Message::FlowMod(Box::new(flow));
    Ok([
        message(flow(10, by(1), vec![output(2)])?),
        message(flow(10, by(2), vec![output(1)])?),
        message(flow(20, flood, both.into_iter().flatten().collect())?),
    ])
}

/// Sets or clears, in turn, the bit of port 1 that keeps frames from controllers, which changes nothing for flows. `mac` is the
/// port's own address.
pub(crate) fn port_mod(mac: [u8; 6], number: u64) -> Message {
    let mask = port_config::NO_PACKET_IN;
    let config = if number.is_multiple_of(2) { mask } else { 0 };
    Message::PortMod(PortMod { port_no: 1, hw_addr: mac, config, mask, advertise: 0 })
}

/// UDP to this port goes to port `to` of the switch, with `source` as its source port.
pub(crate) fn rewriting(udp_port: u16, source: u16, to: u32) -> Result<Message, ErrorCode> {
    let rewrite = Action::SetField { field: Field::UdpSrc, value: source.into() };
    Ok(Message::FlowMod(Box::new(flow(PRIORITY, udp_to(udp_port), vec![rewrite, output(to)])?)))
}

/// UDP to this port goes to port `to` of the switch.
pub(crate) fn forwarding(udp_port: u16, to: u32, cookie: u64) -> Result<Message, ErrorCode> {
    let flow = flow(PRIORITY, udp_to(udp_port), vec![output(to)])?;
    Ok(Message::FlowMod(Box::new(FlowMod { cookie, ..flow })))
}

/// UDP to this port is dropped.
pub(crate) fn dropping(udp_port: u16) -> Result<Message, ErrorCode> {
    Ok(Message::FlowMod(Box::new(flow(PRIORITY, udp_to(udp_port), Vec::new())?)))
}

fn udp_to(port: u16) -> Vec<MatchField> {
    vec![
        MatchField::exact(Field::EthType, ETH_IPV4),
        MatchField::exact(Field::IpProto, UDP),
        MatchField::exact(Field::UdpDst, port.into()),
    ]
}

/// IPv4 with these prefixes of source and destination, an address and its length each, leaves by port 2.
pub(super) fn prefixes(priority: u16, [source, destination]: [(u32, u32); 2]) -> Result<Message, ErrorCode> {
    let prefix = |field, (address, len): (u32, u32)| {
        let mask = u32::MAX << (32 - len);
        MatchField::masked(field, (address & mask).into(), mask.into())
    };
    let fields = vec![
        MatchField::exact(Field::EthType, ETH_IPV4),
        prefix(Field::Ipv4Src, source),
        prefix(Field::Ipv4Dst, destination),
    ];
    Ok(Message::FlowMod(Box::new(flow(priority, fields, vec![output(2)])?)))
}

/// The flow with that priority of many that have one match: no frame of the labs has it.
pub(crate) fn one_of_many_priorities(priority: u16, version: u64) -> Result<Message, ErrorCode> {
    const NOBODY: u128 = 0x0bff_ffff;
    let fields = vec![MatchField::exact(Field::EthType, ETH_IPV4), MatchField::exact(Field::Ipv4Dst, NOBODY)];
    let flow = flow(priority, fields, vec![output(2)])?;
    Ok(Message::FlowMod(Box::new(FlowMod { cookie: version, ..flow })))
}

/// The flow with that number of many: one destination each, as routes of hosts have it. `version` tells the flows of one
/// number apart.
pub(crate) fn one_of_many(number: u32, version: u64, idle_timeout_s: u16) -> Result<Message, ErrorCode> {
    const NETWORK: u32 = 0x0b00_0000;
    let address = MatchField::exact(Field::Ipv4Dst, (NETWORK + number).into());
    let fields = vec![MatchField::exact(Field::EthType, ETH_IPV4), address];
    let flow = flow(PRIORITY, fields, vec![output(2)])?;
    Ok(Message::FlowMod(Box::new(FlowMod { cookie: version, idle_timeout_s, ..flow })))
}
