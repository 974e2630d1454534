//! Resolves the target that a user names to an address.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail, ensure};

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
        let mut addresses = name.to_socket_addrs().with_context(|| format!("cannot resolve \"{name}\""))?;
        let address = addresses.next().with_context(|| format!("\"{name}\" has no address"))?;
        if address.port() == 0 {
            bail!("{name}: nothing listens on port 0");
        }
        Ok(Self { name, address })
    }

    /// The name without the port.
    pub(crate) fn host(&self) -> &str {
        self.name.rsplit_once(':').map_or(self.name.as_str(), |(host, _)| host)
    }
}

/// The port, if both host and port are given.
fn named_port(written: &str) -> Option<u16> {
    let (host, port) = written.rsplit_once(':')?;
    (!host.is_empty() && (!host.contains(':') || host.ends_with(']'))).then(|| port.parse().ok())?
}

/// A host without a port, with an IPv6 address in brackets.
fn bare_host(written: &str) -> Option<String> {
    match written.parse() {
        Ok(IpAddr::V4(_)) => Some(written.to_owned()),
        Ok(IpAddr::V6(_)) => Some(format!("[{written}]")),
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
            ("no-such-host.invalid:7", None, None, "cannot resolve \"no-such-host.invalid:7\""),
        ] {
            let error = Target::resolve(written, port, default_port).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{written}: {error:#}");
        }
    }
}
