//! The subscription to notifications, on a separate netlink socket: a lost notification is detected, and
//! waiting ones use a kernel buffer of fixed size.

use std::os::fd::{AsFd, BorrowedFd};

use twinpath_netlink::{Heard as Read, Protocol, Subscription};
use twinpath_time::Instant;

use super::table::Change;
use super::{MirrorError, message};

/// Everything on which the tables and the egress answers depend, and which control would otherwise have to
/// poll: links, neighbours, traffic control, addresses, routes and rules of both families, and the source
/// check (`RTNLGRP_*` of linux/rtnetlink.h).
const GROUPS: [u32; 10] = [1, 3, 4, 5, 9, 7, 11, 8, 19, 24];

/// RTNLGRP_NEXTHOP. Next-hop objects came with Linux 5.3; without them routes alone are enough.
const NEXT_HOPS: u32 = 32;

/// Maximum number of datagrams read when notifications were lost: more than the socket holds.
const STALE_MAX: usize = 65_536;

/// The result of one read of the socket.
#[derive(Debug)]
pub(super) enum Heard {
    /// Changes, in order.
    Changes(Vec<Change>),
    /// Notifications were lost because the socket was full.
    Overrun,
    /// There are none now.
    Nothing,
}

/// The subscribed socket.
pub(super) struct Watch {
    subscription: Subscription,
    undecoded: u64,
}

impl Watch {
    /// Subscribes, with room for about `buffer_bytes` of notifications.
    pub(super) fn open(buffer_bytes: usize) -> Result<Self, MirrorError> {
        let subscription = Subscription::open(Protocol::Route, &[]).map_err(MirrorError::Open)?;
        let room = subscription.set_room(buffer_bytes);
        room.map_err(|error| MirrorError::Buffer { bytes: buffer_bytes, error })?;
        GROUPS.iter().try_for_each(|group| subscription.join(*group)).map_err(MirrorError::Subscribe)?;
        if let Err(error) = subscription.join(NEXT_HOPS) {
            tracing::debug!("next-hop objects: {error}");
        }
        Ok(Self { subscription, undecoded: 0 })
    }

    /// Messages that could not be decoded and were skipped.
    pub(super) const fn undecoded(&self) -> u64 {
        self.undecoded
    }

    /// Reads the next datagram. Does not wait.
    pub(super) fn take(&mut self) -> Result<Heard, MirrorError> {
        match self.subscription.read().map_err(MirrorError::Receive)? {
            Read::Nothing => Ok(Heard::Nothing),
            Read::Overrun => Ok(Heard::Overrun),
            Read::Messages(messages) => {
                let mut changes = Vec::new();
                for message in messages {
                    match message::change(&message) {
                        Ok(change) => changes.extend(change),
                        Err(message::CutShort) => {
                            self.undecoded += 1;
                            tracing::debug!(kind = message.kind, "netlink message skipped");
                        }
                    }
                }
                Ok(Heard::Changes(changes))
            }
        }
    }

    /// Takes the notifications that waited when others were lost. They are older than the tables that are
    /// read next, and would undo some of their contents.
    pub(super) fn drop_stale(&mut self) -> Result<(), MirrorError> {
        for _ in 0..STALE_MAX {
            if matches!(self.subscription.read().map_err(MirrorError::Receive)?, Read::Nothing) {
                break;
            }
        }
        Ok(())
    }

    /// Waits until there is something to read, or the time has come.
    pub(super) fn wait(&self, until: Instant) -> Result<(), MirrorError> {
        self.subscription.wait(until).map(drop).map_err(MirrorError::Receive)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
    }
}
