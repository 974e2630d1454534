//! The kinds of ports. A further kind is a file here, and a line in [`make`].

mod carried;
mod interface;
mod kind;
mod local;
mod memory;
mod vxlan;

use twinpath_config::PortKind;

pub(crate) use self::carried::Carried;
pub(crate) use self::kind::{About, Kind, Making, OpenError, Opened, Opening, Step};

/// Makes what a port is on. Nothing is opened yet.
///
/// # Errors
/// It cannot listen for the process that is to connect to the port.
pub(crate) fn make(making: &Making<'_>) -> Result<Box<dyn Kind>, OpenError> {
    Ok(match making.name.kind() {
        PortKind::Interface => Box::<interface::Interface>::default(),
        PortKind::Tap => Box::new(interface::Interface::tap()),
        PortKind::Memory => Box::new(memory::Memory::offer(making)?),
        PortKind::Vxlan => Box::<vxlan::Vxlan>::default(),
        PortKind::Local => Box::<local::Local>::default(),
    })
}
