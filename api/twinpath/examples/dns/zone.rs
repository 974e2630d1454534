//! A zone: the records of a zone file, by name.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use domain::base::iana::{Class, Rtype};
use domain::base::name::{FlattenInto, Label, ToLabelIter};
use domain::base::{Name, Record, Ttl};
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};

/// A record with owner, class and TTL.
pub(crate) type Stored = Record<Name<Vec<u8>>, ZoneRecordData<Vec<u8>, Name<Vec<u8>>>>;

/// The records of one name and type, at least one.
pub(crate) struct RrSet {
    pub(crate) rtype: Rtype,
    pub(crate) records: Vec<Stored>,
}

/// The records of one name; none for a name that only has others below it.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) sets: Vec<RrSet>,
}

impl Node {
    /// The records of a type.
    pub(crate) fn of(&self, rtype: Rtype) -> Option<&RrSet> {
        self.sets.iter().find(|set| set.rtype == rtype)
    }
}

/// The label of a wildcard, which stands for names that do not exist (RFC 4592).
const WILDCARD: &[u8] = b"\x01*";

/// A zone as it is served.
pub(crate) struct Zone {
    /// The key of the name at its top.
    pub(crate) apex: Vec<u8>,
    /// The SOA record with the TTL for negative answers (RFC 2308, 3).
    pub(crate) negative: Stored,
    nodes: HashMap<Vec<u8>, Node>,
}

/// A name in the form used for comparison: wire format in lower case (RFC 4343).
pub(crate) fn key(name: &impl ToLabelIter) -> Vec<u8> {
    let labels = name.iter_labels().flat_map(|label: &Label| {
        let bytes = label.as_slice();
        std::iter::once(bytes.len() as u8).chain(bytes.iter().map(u8::to_ascii_lowercase))
    });
    labels.collect()
}

/// The key itself, then its parent, and so on up to the root.
pub(crate) fn upwards(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(key), |key| {
        let len = usize::from(*key.first()?);
        key.get(1 + len..).filter(|_| len > 0)
    })
}

impl Zone {
    /// Reads a zone file (RFC 1035, 5).
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn load(file: &Path) -> Result<Self, String> {
        let wrong = |what: String| format!("{}: {what}", file.display());
        let open = File::open(file).and_then(|mut file| Zonefile::load(&mut file));
        let mut entries = open.map_err(|error| wrong(error.to_string()))?;
        entries.set_default_class(Class::IN);
        let mut records = Vec::new();
        while let Some(entry) = entries.next_entry().map_err(|error| wrong(error.to_string()))? {
            match entry {
                Entry::Record(record) => {
                    let Ok(record) = record.try_flatten_into();
                    records.push(record);
                }
                Entry::Include { path, .. } => {
                    return Err(wrong(format!("$INCLUDE {path}: put everything into one file")));
                }
            }
        }
        Self::new(records).map_err(wrong)
    }

    /// Builds a zone from these records.
    fn new(records: Vec<Stored>) -> Result<Self, String> {
        let mut starts = records.iter().filter(|record| record.rtype() == Rtype::SOA);
        let (Some(soa), None) = (starts.next().cloned(), starts.next()) else {
            return Err("a zone has exactly one SOA record, at its top".to_owned());
        };
        let ZoneRecordData::Soa(data) = soa.data() else {
            return Err("the SOA record has other data".to_owned());
        };
        let mut negative = soa.clone();
        negative.set_ttl(Ttl::min(soa.ttl(), data.minimum()));
        let apex = key(soa.owner());
        let mut nodes = HashMap::<Vec<u8>, Node>::new();
        for record in records {
            let (owner, rtype) = (key(record.owner()), record.rtype());
            let name = record.owner().fmt_with_dot().to_string();
            if !upwards(&owner).any(|above| above == apex) {
                return Err(format!("{name} is not in the zone of {}", soa.owner().fmt_with_dot()));
            }
            if rtype == Rtype::NS && owner.starts_with(WILDCARD) {
                return Err(format!("{name}: a wildcard delegates nothing (RFC 4592, 4.2)"));
            }
            if rtype == Rtype::DNAME {
                return Err(format!("{name}: this server has no DNAME (RFC 6672): name what there is"));
            }
            for above in upwards(&owner).skip(1).take_while(|above| above.len() >= apex.len()) {
                nodes.entry(above.to_vec()).or_default();
            }
            let sets = &mut nodes.entry(owner).or_default().sets;
            match sets.iter_mut().find(|set| set.rtype == rtype) {
                Some(set) => set.records.push(record),
                None => sets.push(RrSet { rtype, records: vec![record] }),
            }
        }
        for node in nodes.values() {
            if let Some(set) =
                node.of(Rtype::CNAME).filter(|set| node.sets.len() > 1 || set.records.len() > 1)
            {
                let name = set.records[0].owner().fmt_with_dot().to_string();
                return Err(format!("{name} has a CNAME record and others: it is alone (RFC 1034, 3.6.2)"));
            }
        }
        Ok(Self { apex, negative, nodes })
    }

    /// The node of a name, if the name exists.
    pub(crate) fn node(&self, key: &[u8]) -> Option<&Node> {
        self.nodes.get(key)
    }

    /// The wildcard that stands for a name that does not exist: the one below the name's closest existing
    /// ancestor (RFC 4592, 3.3.1), if there is one.
    pub(crate) fn wildcard(&self, key: &[u8]) -> Option<&Node> {
        let closest = upwards(key).find(|above| self.nodes.contains_key(*above))?;
        self.node(&[WILDCARD, closest].concat())
    }

    /// Whether a name is in the zone or below it.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        upwards(key).any(|above| above == self.apex)
    }

    /// The name servers that a name is delegated to, if it is: at the cut nearest to the top (RFC 1034,
    /// 4.2.1).
    pub(crate) fn delegated(&self, key: &[u8]) -> Option<&RrSet> {
        let within = upwards(key).take_while(|above| above.len() > self.apex.len());
        within.filter_map(|above| self.node(above)?.of(Rtype::NS)).last()
    }
}
