//! Notifications from the kernel that facts about an interface may have changed, so that nobody has to look regularly.

use std::future::pending;
use std::io;

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_XFRM};
use netlink_sys::{AsyncSocket, AsyncSocketExt as _, SocketAddr, TokioSocket};
use rustix::io::Errno;
use twinpath_netlink::generic::Family;

/// XFRMNLGRP_POLICY of linux/xfrm.h: policies that are added, changed or removed, and the default policy.
const POLICY_GROUP: u32 = 4;

/// The multicast group of the family `ethtool` that announces settings (ETHTOOL_MCGRP_MONITOR_NAME of linux/ethtool_netlink.h).
const MONITOR: &str = "monitor";

/// The multicast group of the family `netdev` that announces what drivers can do with XDP (NETDEV_MCGRP_MGMT of linux/netdev.h).
const MANAGEMENT: &str = "mgmt";

/// What may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// IPsec policies.
    Policies,
    /// Settings of a device, such as the number of its queues.
    Device,
}

/// Subscriptions, in the network namespace of the thread that opened them.
pub struct Announcements {
    policies: Option<TokioSocket>,
    devices: Option<TokioSocket>,
}

impl Announcements {
    /// Subscribes. Called within a tokio runtime. A subscription that fails is logged and left out: IPsec policies are announced, as they
    /// are listed, to processes with CAP_NET_ADMIN only.
    #[must_use]
    pub fn open() -> Self {
        let policies = subscribe(NETLINK_XFRM, POLICY_GROUP);
        // Since Linux 5.6.
        let devices = Family::group("ethtool", MONITOR).and_then(|group| subscribe(NETLINK_GENERIC, group));
        let or_log = |what, socket: io::Result<TokioSocket>| {
            socket.inspect_err(|error| tracing::debug!("changes of {what} are not announced: {error}")).ok()
        };
        Self { policies: or_log("IPsec policies", policies), devices: or_log("device settings", devices) }
    }

    /// Waits for the next notification, and takes all others of its kind that wait with it. Cancelling loses nothing.
    pub async fn next(&mut self) -> Announced {
        tokio::select! {
            () = heard(&mut self.policies) => Announced::Policies,
            () = heard(&mut self.devices) => Announced::Device,
        }
    }
}

/// A subscription to what drivers can do with XDP, in the network namespace of the thread that opened it.
pub struct XdpAnnouncements(Option<TokioSocket>);

impl XdpAnnouncements {
    /// Subscribes. Called within a tokio runtime. If that fails, it is logged, and nothing is heard; the kernel has announced it
    /// since Linux 6.3.
    #[must_use]
    pub fn open() -> Self {
        let socket = Family::group("netdev", MANAGEMENT).and_then(|group| subscribe(NETLINK_GENERIC, group));
        let log = |error: &io::Error| tracing::debug!("changes of XDP features are not announced: {error}");
        Self(socket.inspect_err(log).ok())
    }

    /// Waits for the next notification, and takes all others that wait with it. Cancelling loses nothing.
    pub async fn next(&mut self) {
        heard(&mut self.0).await;
    }
}

/// Waits until something is in the socket, and empties it. Lost notifications mean that something has changed, too.
async fn heard(socket: &mut Option<TokioSocket>) {
    let Some(open) = socket else { return pending().await };
    // The text is not read: what changed is asked for.
    let mut text = [0; 16];
    let mut outcome = open.recv(&mut &mut text[..]).await;
    loop {
        match outcome {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::warn!("a netlink subscription has ended: {error}");
                *socket = None;
                return;
            }
        }
        outcome = open.socket_ref().recv(&mut &mut text[..], 0).map(drop);
    }
}

fn subscribe(protocol: isize, group: u32) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    socket.socket_mut().add_membership(group)?;
    Ok(socket)
}
