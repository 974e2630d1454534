//! Fuzzes Reliable Datagram Sockets: a header is the same when it is written and read again, whatever its bytes.

use twinpath_rds::{Config, ConnId, Delivered, Delivery, Host, Pair, Piece, Position, Rds, Stamp, Token};
use twinpath_rds_wire::{CongestionMap, HEADER_LEN, Header, Kind, PAYLOAD_MAX};
use twinpath_time::Instant;

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

/// A host without programs.
struct Nobody(Vec<ConnId>);

impl Host for Nobody {
    fn connect(&mut self, conn: ConnId, _pair: Pair, _path: u16) {
        self.0.push(conn);
    }
    fn read(&mut self, _conn: ConnId) {}
    fn pause(&mut self, _conn: ConnId) {}
    fn write(&mut self, _conn: ConnId) {}
    fn finish(&mut self, _conn: ConnId) {}
    fn reset(&mut self, _conn: ConnId) {}
    fn placed(&mut self, _token: Token, _stamp: Stamp) {}
    fn moved(&mut self, _pair: Pair, _path: u16, _position: Position) {}
    fn deliver(&mut self, _delivery: &Delivery<'_>) -> Delivered {
        Delivered::NoSocket
    }
    fn released(&mut self, _token: Token) {}
    fn congestion(&mut self, _pair: Pair, _ports: &CongestionMap) {}
}

/// Whatever a peer sends, by however many connections: what waits for it is bounded, and each byte is used once.
#[test]
fn connections() {
    fuzz!("rds__connections", |input: &[u8]| {
        let Some((&[first, port], mut rest)) = input.split_first_chunk::<2>() else { return };
        let config = Config { paths: 1 << (first & 3), peers_max: 2, answers_max: 3, ..Config::default() };
        let (mut engine, mut host) = (Rds::new(config), Nobody(Vec::new()));
        let pair = Pair { local: [10, 0, 0, 2].into(), remote: [10, 0, 0, 1 + (first >> 7) * 2].into() };
        let mut conns = Vec::new();
        let mut kept = Vec::new();
        for step in 0..64_u64 {
            let now = Instant::from_nanos(step * 10_000_000);
            let Some((&action, after)) = rest.split_first() else { break };
            rest = after;
            match action & 3 {
                0 => conns.extend(engine.accepted(
                    now,
                    pair,
                    u16::from(port) + u16::from(action >> 2),
                    &mut host,
                )),
                1 => engine.timeout(now, &mut host),
                2 => {
                    if let Some(conn) = conns.pop() {
                        engine.closed(now, conn, &mut host);
                    }
                    for conn in std::mem::take(&mut host.0) {
                        engine.closed(now, conn, &mut host);
                    }
                }
                _ => {
                    let Some(&conn) = conns.get(usize::from(action >> 2) % conns.len().max(1)) else {
                        continue;
                    };
                    let (bytes, after) = rest.split_at(rest.len().min(96));
                    rest = after;
                    kept.extend_from_slice(bytes);
                    let used = engine.received(now, conn, &kept, &mut host);
                    assert!(used <= kept.len());
                    kept.drain(..used);
                    let written = engine.pieces(conn).map(|piece| match piece {
                        Piece::Bytes(bytes) => bytes.len(),
                        Piece::Payload { .. } => unreachable!("no program has sent"),
                    });
                    let written = written.sum();
                    engine.advance(conn, written);
                }
            }
            for peer in engine.peers() {
                let waiting: usize = peer.paths.iter().map(|path| path.queued).sum();
                assert!(waiting <= 8 * (3 + 2), "{waiting} answers wait");
            }
        }
    });
}
