//! A private link for measurements: a veth pair between two anonymous namespaces, which ends with this value, or with
//! the process.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use twinpath_netlink::route::{LinkAddress, LinkChange, wait_for_carrier};
use twinpath_netlink::{Netlink, NetlinkError, Protocol};
use twinpath_sys::netns::NetnsError;
use twinpath_sys::{Namespace, clock};
use twinpath_time::Duration;
use twinpath_wire::Mac;

/// One end of the pair.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) name: &'static str,
    pub(super) mac: Mac,
    pub(super) address: Ipv4Addr,
}

/// The end with the programs. Addresses are locally administered and private: nothing is visible outside.
pub(super) const HOST: End =
    End { name: "host0", mac: Mac([0x02, 0x74, 0x70, 0, 1, 2]), address: Ipv4Addr::new(10, 113, 0, 2) };
/// Its peer.
pub(super) const PEER: End =
    End { name: "peer0", mac: Mac([0x02, 0x74, 0x70, 0, 1, 1]), address: Ipv4Addr::new(10, 113, 0, 1) };

/// A veth pair has carrier immediately; a kernel that needs longer is not worth measuring on.
const CARRIER_PATIENCE: Duration = Duration::from_secs(2);

/// The reason that there is no scratch link.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// No namespace.
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    /// A link could not be made or changed.
    #[error("cannot {step} the scratch link: {source}")]
    Link {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        source: NetlinkError,
    },
    /// It has no carrier.
    #[error("the scratch link {0} has no carrier after {CARRIER_PATIENCE:?}")]
    NoCarrier(&'static str),
}

/// Both namespaces.
pub(super) struct Scratch {
    pub(super) host: Namespace,
    pub(super) peer: Namespace,
    pub(super) host_ifindex: u32,
}

impl Scratch {
    /// Creates the namespaces and the pair, and waits for carrier.
    pub(super) fn build() -> Result<Self, ScratchError> {
        let (host, peer) = (Namespace::new()?, Namespace::new()?);
        host.run(|| make_pair(&peer))??;
        peer.run(|| set_up(PEER))??;
        let host_ifindex = host.run(|| set_up(HOST))??;
        for (namespace, end) in [(&host, HOST), (&peer, PEER)] {
            let carries = namespace.run(|| wait_for_carrier(end.name, clock::now() + CARRIER_PATIENCE))?;
            if !carries.map_err(failed("look at"))? {
                return Err(ScratchError::NoCarrier(end.name));
            }
        }
        Ok(Self { host, peer, host_ifindex })
    }
}

fn failed(step: &'static str) -> impl Fn(NetlinkError) -> ScratchError {
    move |source| ScratchError::Link { step, source }
}

/// One message creates both ends, the second directly in the other namespace. They have one queue, for one worker.
fn make_pair(peer: &Namespace) -> Result<(), ScratchError> {
    let netlink = Netlink::open(Protocol::Route).map_err(failed("make"))?;
    let other = LinkChange::named(PEER.name).address(PEER.mac.0).namespace(peer.as_fd());
    LinkChange::named(HOST.name).address(HOST.mac.0).pair(&other).make(&netlink).map_err(failed("make"))
}

/// Gives an end its address and sets it up; returns its index.
fn set_up(end: End) -> Result<u32, ScratchError> {
    let netlink = Netlink::open(Protocol::Route).map_err(failed("look at"))?;
    let link = LinkChange::named(end.name);
    let ifindex = link.look(&netlink, |header, _| header.ifindex).map_err(failed("look at"))?;
    let address = LinkAddress { ifindex, address: end.address.into(), prefix: 24 };
    address.add(&netlink).map_err(failed("give an address to"))?;
    link.up(true).change(&netlink).map_err(failed("set up"))?;
    Ok(ifindex)
}
