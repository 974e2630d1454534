//! Resolves the target that a user names to an address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use anyhow::{Context, bail, ensure};
use twinpath_sys::packet_socket::interface_index;

/// A target as written, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `HOST:PORT`.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

impl Target {
    /// Resolves `HOST:PORT`, or `HOST` with `port` or else `default_port`; the first address of a name.
    pub(crate) fn resolve(
        written: &str,
        port: Option<u16>,
        default_port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let no_port = || {
            format!(
                "\"{written}\" names no host and port: write HOST:PORT, and an IPv6 address in brackets, as [::1]:7"
            )
        };
        let name = match (named_port(written), port) {
            (Some(_), None) => written.to_owned(),
            (Some(named), Some(port)) => {
                ensure!(named == port, "{written} and --port {port} name two ports: give one of them");
                written.to_owned()
            }
            (None, _) => {
                let host = bare_host(written).with_context(no_port)?;
                format!("{host}:{}", port.or(default_port).with_context(no_port)?)
            }
        };
        let address = match in_zone(&name)? {
            Some(address) => address,
            None => {
                let addresses = name.to_socket_addrs();
                let mut addresses = addresses.with_context(|| format!("cannot resolve \"{name}\""))?;
                addresses.next().with_context(|| format!("\"{name}\" has no address"))?
            }
        };
        if address.port() == 0 {
            bail!("{name}: nothing listens on port 0");
        }
        Ok(Self { name, address })
    }

    /// The same, but a link-local address without a zone gets the link of this interface.
    pub(crate) fn on(mut self, interface: Option<&str>) -> anyhow::Result<Self> {
        let name = &self.name;
        if let SocketAddr::V6(address) = &mut self.address
            && address.ip().is_unicast_link_local()
            && address.scope_id() == 0
        {
            let interface = interface.with_context(|| {
                format!(
                    "{name} is link-local, which every link has: name the interface, as [{}%eth0]:{}",
                    address.ip(),
                    address.port()
                )
            })?;
            address.set_scope_id(index_of(interface)?);
        }
        Ok(self)
    }

    /// Another port of the same host.
    pub(crate) fn move_to(&mut self, port: u16) {
        self.name = format!("{}:{port}", self.host());
        self.address.set_port(port);
    }

    /// The name without the port.
    pub(crate) fn host(&self) -> &str {
        self.name.rsplit_once(':').map_or(self.name.as_str(), |(host, _)| host)
    }
}

/// The port, if both host and port are given.
pub(crate) fn named_port(written: &str) -> Option<u16> {
    let (host, port) = written.rsplit_once(':')?;
    (!host.is_empty() && (!host.contains(':') || host.ends_with(']'))).then(|| port.parse().ok())?
}

/// The address, if an IPv6 address with a zone is written, `[fe80::1%eth0]:7`. A zone is an interface's
/// name or number (RFC 4007, section 11), but the library's resolver accepts only numbers.
fn in_zone(name: &str) -> anyhow::Result<Option<SocketAddr>> {
    let Some((host, port)) = name.rsplit_once(':') else { return Ok(None) };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let Some((address, zone)) = inner.and_then(zoned) else { return Ok(None) };
    let port = port.parse().with_context(|| format!("\"{name}\" has no port"))?;
    ensure!(
        address.is_unicast_link_local() || address.is_multicast(),
        "{name}: {address} is not link-local: leave out %{zone}"
    );
    let index = match zone.parse() {
        Ok(index) => index,
        Err(_) => index_of(zone)?,
    };
    Ok(Some(SocketAddrV6::new(address, port, 0, index).into()))
}

/// An address and its zone.
fn zoned(written: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, zone) = written.split_once('%')?;
    Some((address.parse().ok()?, zone)).filter(|_| !zone.is_empty())
}

fn index_of(interface: &str) -> anyhow::Result<u32> {
    interface_index(interface).with_context(|| format!("there is no interface {interface}"))
}

/// A host without a port, with an IPv6 address in brackets.
fn bare_host(written: &str) -> Option<String> {
    match written.parse() {
        Ok(IpAddr::V4(_)) => Some(written.to_owned()),
        Ok(IpAddr::V6(_)) => Some(format!("[{written}]")),
        Err(_) if zoned(written).is_some() => Some(format!("[{written}]")),
        Err(_) if written.starts_with('[') && written.ends_with(']') => Some(written.to_owned()),
        Err(_) => (!written.is_empty() && !written.contains(':')).then(|| written.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_written_given_or_the_services_own() {
        for (written, port, default_port, name) in [
            ("127.0.0.1:7", None, None, "127.0.0.1:7"),
            ("127.0.0.1:7", Some(7), Some(9), "127.0.0.1:7"),
            ("127.0.0.1", Some(7), Some(9), "127.0.0.1:7"),
            ("127.0.0.1", None, Some(9), "127.0.0.1:9"),
            ("::1", None, Some(9), "[::1]:9"),
            ("[::1]", Some(8), None, "[::1]:8"),
            ("[::1]:7", None, None, "[::1]:7"),
        ] {
            let target = Target::resolve(written, port, default_port).unwrap();
            assert_eq!((target.name.as_str(), target.address), (name, name.parse().unwrap()));
        }
        let lo = interface_index("lo").unwrap();
        for written in
            ["[fe80::1%lo]:7", "[fe80::1%lo]", "fe80::1%lo", &format!("[fe80::1%{lo}]:7"), "fe80::1"]
        {
            let target = Target::resolve(written, None, Some(7)).unwrap().on(Some("lo")).unwrap();
            let address = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, lo);
            assert_eq!(target.address, address.into(), "{written}");
        }
        let target = Target::resolve("localhost:7", None, None).unwrap();
        assert!(target.address.ip().is_loopback());
        assert_eq!(target.host(), "localhost");
    }

    #[test]
    fn a_target_that_is_none_gets_one_sentence() {
        for (written, port, default_port, words) in [
            ("127.0.0.1", None, None, "write HOST:PORT"),
            ("::1:7", None, None, "in brackets"),
            ("127.0.0.1:70000", None, Some(9), "write HOST:PORT"),
            ("", None, Some(9), "write HOST:PORT"),
            (":7", None, Some(9), "write HOST:PORT"),
            ("127.0.0.1:7", Some(8), None, "two ports"),
            ("127.0.0.1:0", None, None, "port 0"),
            ("[fe80::1%nowhere]:7", None, None, "no interface nowhere"),
            ("[fe80::1%]:7", None, None, "cannot resolve"),
            ("[fd00::1%lo]:7", None, None, "leave out %lo"),
            ("[fe80::1]:7", None, None, "as [fe80::1%eth0]:7"),
            ("no-such-host.invalid:7", None, None, "cannot resolve \"no-such-host.invalid:7\""),
        ] {
            let target = Target::resolve(written, port, default_port);
            let error = target.and_then(|target| target.on(None)).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{written}: {error:#}");
        }
    }
}
