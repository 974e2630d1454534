//! A private link for measurements: a veth pair between two anonymous namespaces, which ends with this value, or with
//! the process.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

use futures_util::StreamExt as _;
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage, State};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, MulticastGroup};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use twinpath_sys::Namespace;
use twinpath_sys::netns::NetnsError;
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

/// A veth pair has carrier at once; a kernel that needs longer is not worth measuring on.
const CARRIER_PATIENCE: Duration = Duration::from_secs(2);

/// The reason that there is no scratch link.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// No namespace.
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    /// No event loop or socket.
    #[error("cannot open netlink in the scratch namespace: {0}")]
    Netlink(std::io::Error),
    /// A link could not be created or changed.
    #[error("cannot {step} the scratch link: {source}")]
    Link {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// It is not there.
    #[error("the scratch link {0} has gone")]
    Gone(&'static str),
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
        let pair = pair_message(&peer);
        let add = async |handle: &Handle| {
            handle
                .link()
                .add(pair)
                .execute()
                .await
                .map_err(|source| ScratchError::Link { step: "make", source })
        };
        inside(&host, add)?;
        inside(&peer, async |handle: &Handle| set_up(handle, PEER).await.map(|_| ()))?;
        let host_ifindex = inside(&host, async |handle: &Handle| set_up(handle, HOST).await)?;
        for (namespace, end) in [(&host, HOST), (&peer, PEER)] {
            wait_for_carrier(namespace, end.name)?;
        }
        Ok(Self { host, peer, host_ifindex })
    }
}

/// One message creates both ends, the second directly in the other namespace. They have one queue, for one worker.
fn pair_message(peer: &Namespace) -> LinkMessage {
    let other = LinkMessageBuilder::<LinkUnspec>::new()
        .name(PEER.name)
        .address(PEER.mac.0.to_vec())
        .setns_by_fd(peer.as_fd().as_raw_fd())
        .build();
    LinkVeth::new(HOST.name, PEER.name)
        .address(HOST.mac.0.to_vec())
        .set_info_data(InfoData::Veth(InfoVeth::Peer(other)))
        .build()
}

async fn set_up(handle: &Handle, end: End) -> Result<u32, ScratchError> {
    let failed = |step| move |source| ScratchError::Link { step, source };
    let index = link(handle, end.name).await?.header.index;
    let address = handle.address().add(index, end.address.into(), 24);
    address.execute().await.map_err(failed("give an address to"))?;
    let up = LinkUnspec::new_with_name(end.name).up().build();
    handle.link().set(up).execute().await.map_err(failed("set up"))?;
    Ok(index)
}

async fn link(handle: &Handle, name: &'static str) -> Result<LinkMessage, ScratchError> {
    let links = handle.link().get().match_name(name.to_owned()).execute();
    let mut links = std::pin::pin!(links);
    let found = links.next().await.ok_or(ScratchError::Gone(name))?;
    found.map_err(|source| ScratchError::Link { step: "look at", source })
}

/// Subscribes before it looks, so that no change is missed.
fn wait_for_carrier(namespace: &Namespace, name: &'static str) -> Result<(), ScratchError> {
    let wait = async || {
        let (connection, handle, mut events) =
            rtnetlink::new_multicast_connection(&[MulticastGroup::Link]).map_err(ScratchError::Netlink)?;
        let connection = tokio::spawn(connection);
        while !carries(&link(&handle, name).await?) {
            events.next().await.ok_or(ScratchError::Gone(name))?;
        }
        connection.abort();
        Ok(())
    };
    let bounded =
        async || timeout(CARRIER_PATIENCE, wait()).await.map_err(|_| ScratchError::NoCarrier(name))?;
    namespace.run(|| event_loop().map_err(ScratchError::Netlink)?.block_on(bounded()))?
}

fn carries(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::OperState(State::Up)))
}

/// Runs `work` on a thread inside `namespace`, with a netlink connection of it.
fn inside<R: Send>(
    namespace: &Namespace,
    work: impl AsyncFnOnce(&Handle) -> Result<R, ScratchError> + Send,
) -> Result<R, ScratchError> {
    namespace.run(|| {
        event_loop().map_err(ScratchError::Netlink)?.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().map_err(ScratchError::Netlink)?;
            let connection = tokio::spawn(connection);
            let result = work(&handle).await;
            connection.abort();
            result
        })
    })?
}

pub(super) fn event_loop() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
