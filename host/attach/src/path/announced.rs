//! Notifications from the kernel that facts about an interface may have changed, so that no polling is
//! needed.

use std::convert::Infallible;
use std::os::fd::{AsFd as _, BorrowedFd};

use twinpath_netlink::generic::Family;
use twinpath_netlink::{NetlinkError, Protocol, Source, Subscription};

/// XFRMNLGRP_POLICY of linux/xfrm.h: policies that are added, changed or removed, and the default policy.
const POLICY_GROUP: u32 = 4;

/// The multicast group of the family `ethtool` that announces settings (ETHTOOL_MCGRP_MONITOR_NAME of linux/ethtool_netlink.h).
const MONITOR: &str = "monitor";

/// The multicast group of the family `netdev` that announces the XDP features of drivers (NETDEV_MCGRP_MGMT
/// of linux/netdev.h).
const MANAGEMENT: &str = "mgmt";

/// The facts that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// IPsec policies.
    Policies,
    /// Settings of a device, such as the number of its queues.
    Device,
}

/// Subscriptions, in the network namespace of the thread that opened them. All notifications of one kind that wait are one event.
pub struct Announcements {
    policies: Announcement,
    devices: Announcement,
}

impl Announcements {
    /// Subscribes. A subscription that fails is logged and left out: the kernel announces IPsec policies,
    /// like their list, only to processes with CAP_NET_ADMIN.
    #[must_use]
    pub fn open() -> Self {
        let policies = Subscription::open(Protocol::Xfrm, &[POLICY_GROUP]);
        // Since Linux 5.6.
        let devices = of_family("ethtool", MONITOR);
        Self {
            policies: Announcement::or_log("IPsec policies", policies),
            devices: Announcement::or_log("device settings", devices),
        }
    }
}

impl Source for Announcements {
    type Event = Announced;
    type Error = Infallible;

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.policies.descriptor().into_iter().chain(self.devices.descriptor()).collect()
    }

    fn is_watched(&self, descriptor: usize) -> bool {
        let open = [&self.policies, &self.devices].into_iter().filter(|of| of.subscription.is_some());
        open.map(|of| !of.has_ended).nth(descriptor).unwrap_or(false)
    }

    fn take(&mut self) -> Result<Option<Announced>, Infallible> {
        let announced = if self.policies.take() { Some(Announced::Policies) } else { None };
        Ok(announced.or_else(|| self.devices.take().then_some(Announced::Device)))
    }
}

/// A subscription to changes of drivers' XDP features, in the network namespace of the thread that opened
/// it. All waiting notifications are one event.
pub struct XdpAnnouncements(Announcement);

impl XdpAnnouncements {
    /// Subscribes. If that fails, it is logged, and there are no events. The kernel has announced these
    /// since Linux 6.3.
    #[must_use]
    pub fn open() -> Self {
        Self(Announcement::or_log("XDP features", of_family("netdev", MANAGEMENT)))
    }
}

impl Source for XdpAnnouncements {
    type Event = ();
    type Error = Infallible;

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.descriptor().into_iter().collect()
    }

    fn is_watched(&self, _descriptor: usize) -> bool {
        !self.0.has_ended
    }

    fn take(&mut self) -> Result<Option<()>, Infallible> {
        Ok(self.0.take().then_some(()))
    }
}

/// One subscription, or none. The contents of its notifications are not read: the caller queries the new
/// state.
struct Announcement {
    subscription: Option<Subscription>,
    /// It failed. The control loop has a duplicate of its descriptor, so it stays.
    has_ended: bool,
}

impl Announcement {
    fn or_log(what: &str, opened: Result<Subscription, NetlinkError>) -> Self {
        let log = |error: &NetlinkError| tracing::debug!("changes of {what} are not announced: {error}");
        Self { subscription: opened.inspect_err(log).ok(), has_ended: false }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.subscription.as_ref().map(|subscription| subscription.as_fd())
    }

    /// Takes all waiting notifications; returns whether there were any. Lost ones count as a change, too.
    fn take(&mut self) -> bool {
        let open = self.subscription.as_mut().filter(|_| !self.has_ended);
        match open.map(Subscription::take_all) {
            Some(Ok(any)) => any,
            Some(Err(error)) => {
                tracing::warn!("a netlink subscription has ended: {error}");
                self.has_ended = true;
                true
            }
            None => false,
        }
    }
}

fn of_family(family: &str, group: &str) -> Result<Subscription, NetlinkError> {
    Subscription::open(Protocol::Generic, &[Family::group(family, group)?])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use twinpath_sys::Namespace;

    use super::*;

    #[test]
    fn policies_that_change_are_announced_once_however_many() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let seen = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let run = |program: &str, arguments: &str| {
                    let status = Command::new(program).args(arguments.split(' ')).status();
                    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments}");
                };
                let mut announcements = Announcements::open();
                run("ip", "link add p0 type veth peer name p1");
                // The loop that the descriptors wake takes events until there are no more.
                while announcements.take().is_ok_and(|event| event.is_some()) {}
                run("ip", "xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out action allow");
                run("ip", "xfrm policy flush");
                let mut seen = Vec::new();
                while let Ok(Some(event)) = announcements.take() {
                    seen.push(event);
                }
                (announcements.descriptors().len(), seen)
            })
        });
        assert_eq!(seen.expect("a namespace"), (2, vec![Announced::Policies]));
    }
}
