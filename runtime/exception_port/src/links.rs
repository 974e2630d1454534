//! The two links of an exception port, read and changed by netlink.

use futures_util::stream::StreamExt as _;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::LinkUnspec;
use tokio::task::JoinHandle;
use twinpath_mirror::message;
use twinpath_mirror::table::{Change, Link};
use twinpath_wire::Mac;

use super::sides::LinkState;

/// A netlink socket for requests about links. Each call waits for the answer, so it returns the present state.
pub(super) struct Links {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Links {
    pub(super) fn open() -> std::io::Result<Self> {
        let (connection, handle, _unsolicited) = rtnetlink::new_connection()?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// A link as it is now; `None` if it is not in our namespace.
    pub(super) async fn get(&self, ifindex: u32) -> Option<Link> {
        let mut answers = self.handle.link().get().match_index(ifindex).execute().boxed();
        let message = answers.next().await?.ok()?;
        match message::change(RouteNetlinkMessage::NewLink(message))? {
            Change::Link(link) => Some(link),
            _ => None,
        }
    }

    pub(super) async fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<(), rtnetlink::Error> {
        self.set(LinkUnspec::new_with_index(ifindex).mtu(mtu)).await
    }

    pub(super) async fn set_mac(&self, ifindex: u32, mac: Mac) -> Result<(), rtnetlink::Error> {
        self.set(LinkUnspec::new_with_index(ifindex).address(mac.0.to_vec())).await
    }

    pub(super) async fn set_up(&self, ifindex: u32, up: bool) -> Result<(), rtnetlink::Error> {
        let link = LinkUnspec::new_with_index(ifindex);
        self.set(if up { link.up() } else { link.down() }).await
    }

    async fn set(&self, change: rtnetlink::LinkMessageBuilder<LinkUnspec>) -> Result<(), rtnetlink::Error> {
        self.handle.link().set(change.build()).execute().await
    }
}

/// The mirrored properties of a link; `None` without an Ethernet address.
pub(super) fn state(link: &Link) -> Option<LinkState> {
    Some(LinkState { mtu: link.mtu, mac: link.mac?, up: link.up, running: link.running })
}
