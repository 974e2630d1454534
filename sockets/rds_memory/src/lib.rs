//! Memory of the daemon of Reliable Datagram Sockets that others have as well: programs, and the daemon's next life.
//!
//! - [`PortMaps`]: which ports are congested, for programs.
//! - [`Messages`]: the messages of a program that TCP has not acknowledged, and [`Positions`]: how far each path has come. They
//!   outlive a daemon that is killed, wherever that happens: what is written to them takes effect by one store.

mod messages;
mod ports;
mod positions;
mod words;

pub use messages::{Entry, Messages, Placed, State};
pub use ports::{HOSTS_MAX, PortMaps, PortMapsView};
pub use positions::{PATHS_KEPT, Positions, Record};

use std::net::{IpAddr, Ipv6Addr};

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn from_bits(high: u64, low: u64) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))).to_canonical()
}
