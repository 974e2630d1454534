//! Where an owner listens.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::SocketAddrUnix;

use crate::lending::message::{TOKEN_LEN, Token};

/// Where an owner listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this path.
    Path(PathBuf),
    /// It is started when the first program connects.
    Started(Started),
}

/// An owner that is started when it is needed, for one program and its children. Written as `@NAME:TOKEN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The abstract name of the socket of the process that starts it.
    pub name: String,
    /// Shows that a process is that program, or a child of it.
    pub token: Token,
}

impl Place {
    pub(crate) fn address(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self {
            Self::Path(path) => SocketAddrUnix::new(path)?,
            Self::Started(started) => SocketAddrUnix::new_abstract_name(started.name.as_bytes())?,
        })
    }

    /// As it is said in messages, without the token.
    pub(crate) fn name(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Started(started) => Path::new(&format!("@{}", started.name)).to_owned(),
        }
    }
}

impl FromStr for Started {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, digits) = text.strip_prefix('@').and_then(|text| text.split_once(':')).ok_or(())?;
        if digits.len() != 2 * TOKEN_LEN || !digits.is_ascii() {
            return Err(());
        }
        let mut token = [0; TOKEN_LEN];
        for (at, byte) in token.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| ())?;
        }
        Ok(Self { name: name.to_owned(), token })
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}:", self.name)?;
        self.token.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_started_owner_is_written_and_read() {
        let started = Started { name: "twinpath-run-7".to_owned(), token: [0xa5; TOKEN_LEN] };
        assert_eq!(started.to_string().parse(), Ok(started));
        for wrong in
            ["", "@x", "@x:12", "x:000102030405060708090a0b0c0d0e0f", "@x:zz0102030405060708090a0b0c0d0e0f"]
        {
            assert_eq!(wrong.parse::<Started>(), Err(()), "{wrong}");
        }
    }
}
