//! The service: queries in datagrams and on connections.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use twinpath::{
    Answer, Datagram, HOLD_MAX, Instant, Keep, KeptReplies, Output, Reason, Reflex, Service, Shape,
};

use crate::answer::{Answered, Transport, answer};
use crate::zone::Zone;

/// The reply has the query's ID (RFC 1035, 4.1.1). Every other byte of the query matters, even the case of
/// its name.
const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

/// The version key on which all answers depend.
const ZONE: u64 = 0;

/// The longest answer over TCP, with its length in front (RFC 1035, 4.2.2).
const TCP_ANSWER_MAX: usize = 2 + 65_535;

/// Every worker has a clone; all clones share the zone.
#[derive(Clone)]
pub(crate) struct Dns {
    zone: Arc<RwLock<Arc<Zone>>>,
    kept: KeptReplies,
    reply: Vec<u8>,
}

impl Dns {
    /// A service for a zone.
    pub(crate) fn new(zone: Zone) -> Self {
        let zone = Arc::new(RwLock::new(Arc::new(zone)));
        Self { zone, kept: KeptReplies::new(&[BY_ID]), reply: Vec::new() }
    }

    fn answer(&mut self, query: &[u8], transport: Transport) -> Answered {
        let zone = Arc::clone(&self.zone.read().unwrap_or_else(PoisonError::into_inner));
        answer(&zone, query, transport, &mut self.reply)
    }

    /// Replaces the zone that is served.
    pub(crate) fn replace(&self, zone: Zone) {
        *self.zone.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(zone);
        // After the change, and before anybody is told of it.
        self.kept.withdraw(ZONE);
    }
}

impl Service for Dns {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        // Before the zone is read.
        let version = datagram.version_of(ZONE);
        match self.answer(datagram.request(), Transport::Udp) {
            Answered::ByZone => {
                datagram.answer_and_keep(&self.reply, &Keep { shape: &BY_ID, version, hold: HOLD_MAX })
            }
            Answered::Refused => datagram.answer(&self.reply),
            Answered::Not => Answer::Drop(Reason::ProtocolError),
        }
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    /// A reply is marked as one (RFC 1035, 4.1.1), and a reply is never answered.
    fn may_loop(&self) -> bool {
        false
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some((len, rest)) = input.split_first_chunk() else { return 0 };
        let Some(query) = rest.get(..usize::from(u16::from_be_bytes(*len))) else { return 0 };
        if output.room() < TCP_ANSWER_MAX {
            return 0; // The query comes again when there is room.
        }
        if self.answer(query, Transport::Tcp) == Answered::Not {
            output.refuse(Reason::ProtocolError);
            return 0;
        }
        let reply_len = self.reply.len() as u16;
        let written = output.write(&reply_len.to_be_bytes()) && output.write(&self.reply);
        if written { len.len() + query.len() } else { 0 }
    }
}
