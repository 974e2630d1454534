//! Programs that do nothing: they measure the cost of a hook itself.

use aya::programs::xdp::XdpLink;
use aya::programs::{Program, SchedClassifier, SocketFilter, Xdp, xdp};
use aya::{Ebpf, include_bytes_aligned};

use crate::program::{loaded, program};
use crate::steering::{refused, xdp_links};
use crate::{SteerError, XdpMode};

static EMPTY: &[u8] = include_bytes_aligned!("../object/empty.o");

/// The empty programs, loaded.
pub(crate) struct Empty {
    object: Ebpf,
}

impl Empty {
    pub(crate) fn load() -> Result<Self, SteerError> {
        let mut object = Ebpf::load(EMPTY).map_err(|error| SteerError::Object(Box::new(error)))?;
        let xdp = program::<Xdp>(&mut object, "empty_xdp")?;
        loaded("empty_xdp", || xdp.load())?;
        let filter = program::<SocketFilter>(&mut object, "empty_filter")?;
        loaded("empty_filter", || filter.load())?;
        let ingress = program::<SchedClassifier>(&mut object, "empty_ingress")?;
        loaded("empty_ingress", || ingress.load())?;
        Ok(Self { object })
    }

    pub(crate) fn program(&self, name: &'static str) -> Result<&Program, SteerError> {
        self.object.program(name).ok_or(SteerError::Missing(name))
    }
}

/// An XDP program on an interface that passes every frame. Dropping it detaches it.
///
/// The cost for the interface is the cost of running XDP in its driver at all, for any program.
pub struct EmptyXdp {
    _link: XdpLink,
    _object: Empty,
}

impl EmptyXdp {
    /// Attaches it to an interface, by a link.
    ///
    /// # Errors
    /// As [`crate::Steering::attach_xdp`].
    pub fn attach(ifindex: u32, mode: XdpMode) -> Result<Self, SteerError> {
        xdp_links()?;
        let mut object = Empty::load()?;
        let empty: &mut Xdp = program(&mut object.object, "empty_xdp")?;
        let flags = match mode {
            XdpMode::Native => xdp::XdpMode::Driver,
            XdpMode::Generic => xdp::XdpMode::Skb,
        };
        let id = empty.attach_to_if_index(ifindex, flags).map_err(|error| refused(ifindex, mode, error))?;
        let link = empty.take_link(id).map_err(|error| refused(ifindex, mode, error))?;
        Ok(Self { _link: link, _object: object })
    }
}
