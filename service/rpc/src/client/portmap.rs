//! A client of the port mapper, version 2 (RFC 1833, section 3): registering with rpcbind, and looking up a port.

use nfs3_types::portmap::mapping;

use crate::client::ReplyError;
use crate::xdr::Reader;

/// The arguments of SET, UNSET and GETPORT.
#[must_use]
pub fn portmap_arguments(mapping: &mapping) -> Vec<u8> {
    [mapping.prog, mapping.vers, mapping.prot, mapping.port]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

/// The result of SET and UNSET: whether it succeeded.
///
/// # Errors
/// The results are not a boolean.
pub fn portmap_boolean(results: &[u8]) -> Result<bool, ReplyError> {
    match word(results)? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(ReplyError::Unknown { field: "bool", value }),
    }
}

/// The result of GETPORT: the port, if the program is registered.
///
/// # Errors
/// The results are not a port.
pub fn portmap_port(results: &[u8]) -> Result<Option<u16>, ReplyError> {
    match word(results)? {
        0 => Ok(None),
        port => u16::try_from(port).map(Some).map_err(|_| ReplyError::Unknown { field: "port", value: port }),
    }
}

/// The single word of the results.
fn word(results: &[u8]) -> Result<u32, ReplyError> {
    let mut reader = Reader::new(results);
    let word = reader.u32()?;
    reader.finish()?;
    Ok(word)
}

#[cfg(test)]
mod tests {
    use nfs3_types::xdr_codec::Pack;

    use super::*;

    #[test]
    fn arguments_are_what_the_library_writes() {
        let mapping = mapping { prog: 100_003, vers: 3, prot: 17, port: 62_049 };
        let mut expected = Vec::new();
        mapping.pack(&mut expected).expect("packs");
        assert_eq!(portmap_arguments(&mapping), expected);
    }

    #[test]
    fn results_are_one_word() {
        assert_eq!(portmap_boolean(&[0, 0, 0, 1]), Ok(true));
        assert!(portmap_boolean(&[0, 0, 0, 2]).is_err() && portmap_boolean(&[]).is_err());
        assert_eq!(portmap_port(&[0; 4]), Ok(None));
        assert_eq!(portmap_port(&[0, 0, 8, 1]), Ok(Some(2049)));
        assert!(portmap_port(&[0, 1, 0, 0]).is_err() && portmap_port(&[0; 5]).is_err());
    }
}
