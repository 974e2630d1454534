//! Why a message or a connection was dropped, each with a stable name and a count.

/// Makes the enum, the list of all reasons, and their names from one list.
macro_rules! reasons {
    ($($(#[$about:meta])* $reason:ident => $name:literal,)*) => {
        /// Why a message or a connection was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$about])* $reason,)*
        }

        impl Reason {
            /// All reasons, in the order of their counts.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// The stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// A message came again, by a new connection, and was there already.
    Repeated => "repeated",
    /// No message came to this place: TCP had acknowledged it before this host's process was killed, or the peer has given it
    /// up.
    Missing => "missing",
    /// No program has the port.
    NoSocket => "no_socket",
    /// The port's program does not read, and its peers send although the port is congested.
    PortFull => "port_full",
    /// A header that cannot be: the connection was reset.
    BadHeader => "bad_header",
    /// A ping without a source port.
    DeadPing => "dead_ping",
    /// A ping was not answered, because as many answers wait as may.
    PingFlood => "ping_flood",
    /// A connection was reset, because there are as many peers as may be.
    TooManyPeers => "too_many_peers",
    /// A connection was reset: all paths of its peer have one, or as many wait for its path as may.
    TooManyConnections => "too_many_connections",
    /// A connection of the peer with the larger address was reset, and answered by connecting back.
    WrongSide => "wrong_side",
    /// A connection was reset: another one has its path, and the peer did not end that in time.
    NotEnded => "not_ended",
}

/// How often each reason occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; Reason::ALL.len()]);

impl Drops {
    pub(crate) fn count(&mut self, reason: Reason) {
        self.count_many(reason, 1);
    }

    pub(crate) fn count_many(&mut self, reason: Reason, count: u64) {
        self.0[reason as usize] = self.0[reason as usize].saturating_add(count);
    }

    /// The count of a reason.
    #[must_use]
    pub const fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }
}
