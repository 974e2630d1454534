//! Finds the records of a name and a type in a zone (RFC 1034, 4.3.2; RFC 4592 for wildcards).

use domain::base::Name;
use domain::base::iana::Class;
use domain::base::iana::Rtype;
use domain::base::{Record, Ttl};
use domain::rdata::ZoneRecordData;

use crate::zone::{Node, RrSet, Stored, Zone, key};

/// Maximum number of CNAME records followed for one query.
const CNAMES_MAX: usize = 8;

/// The type of data in a zone.
type Data = ZoneRecordData<Vec<u8>, Name<Vec<u8>>>;

/// Records of the zone, under their own name or under a name that matched a wildcard.
pub(crate) struct NamedSet<'z> {
    set: &'z RrSet,
    owner: Option<Name<Vec<u8>>>,
}

impl<'z> NamedSet<'z> {
    /// The records as they are written: name, class, TTL, data.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Name<Vec<u8>>, Class, Ttl, &'z Data)> {
        let owner = self.owner.as_ref();
        self.set.records.iter().map(move |record: &'z Record<_, _>| {
            (owner.unwrap_or(record.owner()), record.class(), record.ttl(), record.data())
        })
    }
}

/// The contents of an answer.
#[derive(Default)]
pub(crate) struct Reply<'z> {
    pub(crate) exists: bool,
    /// Whether we are authoritative for the name: not if it was delegated.
    pub(crate) authoritative: bool,
    pub(crate) answer: Vec<NamedSet<'z>>,
    pub(crate) authority: Vec<&'z Stored>,
    pub(crate) additional: Vec<&'z RrSet>,
}

/// Finds the records of a name that is in the zone.
pub(crate) fn find(zone: &Zone, mut name: Vec<u8>, rtype: Rtype) -> Reply<'_> {
    let mut found = Reply { exists: true, authoritative: true, ..Reply::default() };
    for _ in 0..=CNAMES_MAX {
        if let Some(servers) = zone.delegated(&name) {
            // Above the cut there is only the delegation itself and the records that prove it (RFC 4035,
            // 3.1.4.1).
            let at_cut = key(servers.records[0].owner()) == name;
            if !(at_cut && rtype == Rtype::DS) {
                found.authoritative = !found.answer.is_empty();
                found.authority.extend(&servers.records);
                found.additional = addresses(zone, servers);
                return found;
            }
        }
        let (node, owner) = match (zone.node(&name), zone.wildcard(&name)) {
            (Some(node), _) => (node, None),
            // The query's own spelling of the name is used, because name compression can then refer to the
            // question.
            (None, Some(node)) => (node, Name::from_octets(name).ok()),
            (None, None) => {
                found.exists = false;
                break;
            }
        };
        if let Some(set) = asked(node, rtype) {
            found.answer.push(NamedSet { set, owner });
            return found;
        }
        let Some(set) = node.of(Rtype::CNAME) else { break };
        found.answer.push(NamedSet { set, owner });
        let ZoneRecordData::Cname(target) = set.records[0].data() else { return found };
        name = key(target.cname());
        if !zone.contains(&name) {
            return found;
        }
    }
    found.authority.push(&zone.negative);
    found
}

/// The records of a type. For a query for any type, one set is enough of an answer (RFC 8482, 4.1).
fn asked(node: &Node, rtype: Rtype) -> Option<&RrSet> {
    if rtype == Rtype::ANY { node.sets.first() } else { node.of(rtype) }
}

/// The addresses of those name servers that are in the zone or below it.
fn addresses<'z>(zone: &'z Zone, servers: &RrSet) -> Vec<&'z RrSet> {
    let nodes = servers.records.iter().filter_map(|record| match record.data() {
        ZoneRecordData::Ns(server) => zone.node(&key(server.nsdname())),
        _ => None,
    });
    nodes.flat_map(|node| [Rtype::A, Rtype::AAAA].into_iter().filter_map(|rtype| node.of(rtype))).collect()
}
