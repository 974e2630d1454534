//! Messages: reads a query and writes the zone's answer to it. Neither a socket nor a clock is involved.

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, PushError, StaticCompressor};
use domain::base::opt::OptRecord;
use domain::base::{Message, MessageBuilder};

use crate::find::{NamedSet, Reply, find};
use crate::zone::{Zone, key};

/// The UDP size limit that we apply to our own replies and advertise by EDNS: such a datagram passes
/// everywhere without fragmentation (DNS flag day 2020).
const EDNS_MAX: u16 = 1232;

/// The limit of a UDP reply to a query without EDNS (RFC 1035, 4.2.1).
const PLAIN_MAX: u16 = 512;

/// Bytes of our OPT record.
const OPT_LEN: usize = 11;

/// The version of EDNS that we speak (RFC 6891, 6.1.3).
const EDNS_VERSION: u8 = 0;

/// The transport by which a query arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// The outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Answered; the answer depends on nothing but the query and the zone.
    ByZone,
    /// Refused; other servers would refuse it too.
    Refused,
    /// Not a query. Nothing is sent, so that two servers never answer each other.
    Not,
}

/// Answers `query` into `reply`, in place of what that had.
pub(crate) fn answer(zone: &Zone, query: &[u8], transport: Transport, reply: &mut Vec<u8>) -> Answered {
    reply.clear();
    let Ok(message) = Message::from_slice(query) else { return Answered::Not };
    if message.header().qr() {
        return Answered::Not;
    }
    let opt = message.opt();
    let refused = judge(message, opt.as_ref());
    let (rcode, found) = match refused {
        Err(rcode) => (rcode, Reply::default()),
        Ok((name, rtype)) if zone.contains(&name) => {
            let found = find(zone, name, rtype);
            (if found.exists { Rcode::NOERROR.into() } else { Rcode::NXDOMAIN.into() }, found)
        }
        Ok(_) => (Rcode::REFUSED.into(), Reply::default()),
    };
    let max = match (transport, &opt) {
        (Transport::Tcp, _) => u16::MAX,
        (Transport::Udp, Some(opt)) => opt.udp_payload_size().clamp(PLAIN_MAX, EDNS_MAX),
        (Transport::Udp, None) => PLAIN_MAX,
    };
    match write(message, opt.as_ref(), rcode, &found, usize::from(max), std::mem::take(reply)) {
        Ok(written) => *reply = written,
        // Not even the question fits, although a name of 255 bytes would.
        Err(_) => return Answered::Not,
    }
    if rcode == OptRcode::NOERROR || rcode == OptRcode::NXDOMAIN {
        Answered::ByZone
    } else {
        Answered::Refused
    }
}

/// The name and type that are asked for.
fn judge(message: &Message<[u8]>, opt: Option<&OptRecord<&[u8]>>) -> Result<(Vec<u8>, Rtype), OptRcode> {
    if message.header().opcode() != Opcode::QUERY {
        return Err(Rcode::NOTIMP.into());
    }
    let Ok(question) = message.sole_question() else { return Err(Rcode::FORMERR.into()) };
    if opt.is_some_and(|opt| opt.version() > EDNS_VERSION) {
        return Err(OptRcode::BADVERS);
    }
    match (question.qclass(), question.qtype()) {
        (Class::IN, Rtype::AXFR | Rtype::IXFR) => Err(Rcode::REFUSED.into()),
        (Class::IN, rtype) => Ok((key(question.qname()), rtype)),
        _ => Err(Rcode::REFUSED.into()),
    }
}

type Builder = AdditionalBuilder<StaticCompressor<Vec<u8>>>;

/// Writes the message. Records that do not fit are left out; the TC bit is set unless they were only
/// additional.
fn write(
    query: &Message<[u8]>,
    opt: Option<&OptRecord<&[u8]>>,
    rcode: OptRcode,
    found: &Reply<'_>,
    max: usize,
    target: Vec<u8>,
) -> Result<Vec<u8>, PushError> {
    let Ok(mut builder) = MessageBuilder::from_target(StaticCompressor::new(target));
    builder.set_push_limit(max - if opt.is_some() { OPT_LEN } else { 0 });
    let mut answer = builder.start_answer(query, rcode.rcode())?;
    answer.header_mut().set_aa(found.authoritative);
    let fits = found.answer.iter().flat_map(NamedSet::records).try_for_each(|record| answer.push(record));
    let mut authority = if fits.is_ok() { answer.authority() } else { answer.tc_rewind_into().authority() };
    let fits = fits.and_then(|()| found.authority.iter().try_for_each(|record| authority.push(*record)));
    let mut additional: Builder =
        if fits.is_ok() { authority.additional() } else { authority.tc_rewind_into().additional() };
    // Addresses of name servers can be asked for.
    let _ = fits.and_then(|()| {
        let mut records = found.additional.iter().flat_map(|set| &set.records);
        records.try_for_each(|record| additional.push(record))
    });
    if let Some(opt) = opt {
        additional.set_push_limit(max);
        additional.opt(|ours| {
            ours.set_udp_payload_size(EDNS_MAX);
            ours.set_version(EDNS_VERSION);
            ours.set_rcode(rcode);
            ours.set_dnssec_ok(opt.dnssec_ok());
            Ok(())
        })?;
    }
    Ok(additional.finish().into_target())
}
