//! Where controllers are, as it is written: `tcp:HOST:PORT` or `unix:PATH`.

use std::path::PathBuf;
use std::str::FromStr;

/// An address of a controller, or one to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Host and port, as a resolver takes them.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// The text is no address of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an OpenFlow controller is written tcp:HOST:PORT or unix:PATH, as in tcp:192.0.2.1:6653")]
pub struct EndpointError;

/// The port of OpenFlow (OpenFlow 1.3.5, section 6.3.1).
const PORT: u16 = 6653;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (kind, address) = text.split_once(':').ok_or(EndpointError)?;
        match kind {
            "unix" if !address.is_empty() => Ok(Self::Unix(address.into())),
            "tcp" => {
                let host = address.strip_suffix(']').map_or(address, |_| address);
                let has_port = !host.ends_with(']') && host.rsplit_once(':').is_some();
                let (name, port) = match host.rsplit_once(':') {
                    Some((name, port)) if has_port => (name, port.parse().map_err(|_| EndpointError)?),
                    _ => (host, PORT),
                };
                let is_name = !name.is_empty() && (name.starts_with('[') || !name.contains(':'));
                if is_name { Ok(Self::Tcp(format!("{name}:{port}"))) } else { Err(EndpointError) }
            }
            _ => Err(EndpointError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| Ok(Endpoint::Tcp(text.to_owned()));
        assert_eq!("tcp:192.0.2.1:6633".parse(), tcp("192.0.2.1:6633"));
        assert_eq!("tcp:controller".parse(), tcp("controller:6653"));
        assert_eq!("tcp:[::1]:1".parse(), tcp("[::1]:1"));
        assert_eq!("tcp:[::1]".parse(), tcp("[::1]:6653"));
        assert_eq!("unix:/run/of".parse(), Ok(Endpoint::Unix("/run/of".into())));
        for bad in ["", "tcp", "tcp:", "tcp:::1", "tcp:a:70000", "tcp:a:", "unix:", "ssl:a:1", "tcp::1"] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError), "{bad}");
        }
    }
}
