//! A kernel thread that receives the frames of a veth interface, in place of the system call that sends
//! them.
//!
//! On a veth pair the sender's system call does all work, up to the receiving socket. An interface with
//! receive offload (GRO) has a ring and a NAPI instance instead (drivers/net/veth.c). With
//! `rx-udp-gro-forwarding` as well, frames that packet and UDP sockets send wait in the ring, at most 256
//! of them, and are taken out in batches. A NAPI instance can have a thread for that (`threaded`,
//! Documentation/networking/napi.rst), which runs on any idle CPU. TCP is sent as before, because its
//! packets are large already.

use std::io;

use twinpath_netlink::generic::{Family, command};
use twinpath_netlink::{Attributes, Body};
use twinpath_sys::ethtool;
use twinpath_tune::{Parameter, Trouble, set_napis};

// linux/ethtool_netlink.h
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

/// The features that it needs, by the names of ethtool(8).
const FEATURES: [&str; 2] = ["rx-gro", "rx-udp-gro-forwarding"];

/// Why an interface cannot have such a thread.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveThreadError {
    /// It is not a veth.
    #[error("only a veth interface can have it, and this is {0}")]
    NotVeth(String),
    /// A feature could not be changed.
    #[error("ethtool features: {0}")]
    Features(#[from] io::Error),
    /// The NAPI instance could not be changed.
    #[error("a thread for NAPI: {0}; it needs Linux 6.17")]
    Napi(#[from] Trouble),
}

/// The thread of one interface. [`Self::end`] restores the interface's settings. Dropping it does not,
/// because that must be done in the interface's network namespace.
#[derive(Debug)]
pub struct ReceiveThread {
    ifindex: u32,
    /// The features that were off before.
    switched_on: Vec<&'static str>,
}

impl ReceiveThread {
    /// Starts a thread for the interface `name` of the calling thread's namespace. While the interface is
    /// down it has none, see [`Self::renew`].
    ///
    /// # Errors
    /// [`ReceiveThreadError`]; then its settings are as before.
    pub fn start(name: &str, ifindex: u32) -> Result<Self, ReceiveThreadError> {
        let driver = ethtool::driver(name).map(|driver| driver.name).unwrap_or_default();
        if driver != "veth" {
            let what = if driver.is_empty() { "of no driver that is known".to_owned() } else { driver };
            return Err(ReceiveThreadError::NotVeth(what));
        }
        let active = active(ifindex)?;
        let is_off = |feature: &&str| !active.iter().any(|name| name == feature);
        let switched_on: Vec<_> = FEATURES.into_iter().filter(is_off).collect();
        switch(ifindex, &switched_on, true)?;
        let thread = Self { ifindex, switched_on };
        if let Err(error) = thread.renew() {
            // The error of the refused step is the better message.
            let _ = thread.end();
            return Err(error);
        }
        Ok(thread)
    }

    /// Makes NAPI instances that the interface has got since then poll by threads: it gets new instances
    /// each time that it is set up.
    ///
    /// # Errors
    /// [`ReceiveThreadError::Napi`]
    pub fn renew(&self) -> Result<(), ReceiveThreadError> {
        set_napis(self.ifindex, Parameter::Threaded, 1)?;
        Ok(())
    }

    /// Puts the settings back. Frames that wait in the ring are lost then.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn end(self) -> io::Result<()> {
        // An instance that remains, because the interface had receive offload before, continues without a
        // thread.
        let _ = set_napis(self.ifindex, Parameter::Threaded, 0);
        switch(self.ifindex, &self.switched_on, false)
    }
}

/// A request, up to its header: the interface.
fn request(message: u8, ifindex: u32) -> Body {
    let header = Body::new([]).u32(ETHTOOL_A_HEADER_DEV_INDEX, ifindex);
    command(message).nested(ETHTOOL_A_FEATURES_HEADER, &header)
}

/// The names of the features that are on.
fn active(ifindex: u32) -> io::Result<Vec<String>> {
    let asked = format!("list the features of interface {ifindex}");
    let answers = Family::find("ethtool")?.ask(&asked, &request(ETHTOOL_MSG_FEATURES_GET, ifindex))?;
    let active = answers.first().unwrap_or_default().inside(ETHTOOL_A_FEATURES_ACTIVE);
    Ok(names(active.inside(ETHTOOL_A_BITSET_BITS)))
}

/// The names in a list of bits.
fn names(bits: Attributes<'_>) -> Vec<String> {
    let bits = bits.iter().filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BITS_BIT);
    bits.filter_map(|(_, bit)| Attributes::of(bit).text(ETHTOOL_A_BITSET_BIT_NAME)).collect()
}

/// Switches features on or off.
fn switch(ifindex: u32, features: &[&str], on: bool) -> io::Result<()> {
    if features.is_empty() {
        return Ok(());
    }
    let bits = features.iter().fold(Body::new([]), |bits, name| {
        let bit = Body::new([]).text(ETHTOOL_A_BITSET_BIT_NAME, name);
        // Without a value the bit is to be zero.
        let bit = if on { bit.bytes(ETHTOOL_A_BITSET_BIT_VALUE, []) } else { bit };
        bits.nested(ETHTOOL_A_BITSET_BITS_BIT, &bit)
    });
    let wanted = Body::new([]).nested(ETHTOOL_A_BITSET_BITS, &bits);
    let body = request(ETHTOOL_MSG_FEATURES_SET, ifindex).nested(ETHTOOL_A_FEATURES_WANTED, &wanted);
    Family::find("ethtool")?.ask(&format!("switch features of interface {ifindex}"), &body)?;
    let active = active(ifindex)?;
    let is_as_wanted = |feature: &&&str| active.iter().any(|name| name == **feature) == on;
    match features.iter().find(|feature| !is_as_wanted(feature)) {
        Some(feature) => {
            Err(io::Error::other(format!("{feature} cannot be switched {}", if on { "on" } else { "off" })))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_bits_and_nothing_else_is() {
        let bit = |name: &str| Body::new([]).text(ETHTOOL_A_BITSET_BIT_NAME, name);
        let list = Body::new([]).nested(ETHTOOL_A_BITSET_BITS_BIT, &bit("rx-gro")).text(7, "other");
        let list = list.nested(ETHTOOL_A_BITSET_BITS_BIT, &bit("rx-checksum"));
        let bits = list.as_slice();
        assert_eq!(names(Attributes::of(bits)), ["rx-gro", "rx-checksum"]);
        assert_eq!(names(Attributes::of(&bits[..5])), Vec::<String>::new());
        assert_eq!(names(Attributes::of(&[])), Vec::<String>::new());
    }
}
