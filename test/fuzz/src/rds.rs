//! Fuzzes Reliable Datagram Sockets: a header is the same when it is written and read again, whatever its bytes.

use twinpath_rds_wire::{CongestionMap, HEADER_LEN, Header, Kind, PAYLOAD_MAX};

use crate::fuzz;

#[test]
fn headers() {
    fuzz!("rds__headers", |input: &[u8]| {
        let Some((bytes, rest)) = input.split_first_chunk::<HEADER_LEN>() else { return };
        let Ok(header) = Header::parse(bytes) else { return };
        assert!(header.len as usize <= PAYLOAD_MAX);
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        let handshake = header.extensions.handshake();
        assert_eq!(handshake.extensions().handshake(), handshake);
        if header.kind() == Kind::CongestionMap {
            assert_eq!(CongestionMap::parse(rest).is_some(), rest.len() == header.len as usize);
        }
    });
}
