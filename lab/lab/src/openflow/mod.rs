//! The controllers of the labs: OpenFlow over a UNIX socket, by the codec that the switch has, too.

mod controller;
pub(crate) mod flows;
pub(crate) mod hostile;

pub(crate) use self::controller::Controller;
