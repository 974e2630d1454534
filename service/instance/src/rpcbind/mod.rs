//! Registers programs with rpcbind on this host (port mapper version 2, RFC 1833, section 3), over loopback.
//!
//! Registrations of others are not changed: if a program and version is registered with another port, it is
//! left alone and logged, unless no socket on this host holds that port any more. A killed instance leaves
//! its registration behind. It is right for the next instance on the same port, and replaced by one on
//! another port.
//!
//! A lost registration is restored when rpcbind starts, for the first time or again (`signs.rs`).

#[cfg(not(feature = "rpcbind"))]
mod absent;
#[cfg(feature = "rpcbind")]
mod client;
#[cfg(feature = "rpcbind")]
mod kept;
#[cfg(feature = "rpcbind")]
mod signs;

use std::fmt;

#[cfg(not(feature = "rpcbind"))]
pub use absent::Registered;
#[cfg(feature = "rpcbind")]
pub use kept::Registered;

/// A program's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// [`Self::UDP`] or [`Self::TCP`].
    pub protocol: u32,
    /// The port.
    pub port: u16,
}

impl Registration {
    /// The protocol UDP, by its number.
    pub const UDP: u32 = 17;
    /// The protocol TCP, by its number.
    pub const TCP: u32 = 6;
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.protocol == Self::UDP { "UDP" } else { "TCP" };
        write!(f, "program {} version {} over {protocol}", self.program, self.version)
    }
}
