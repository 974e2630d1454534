//! Layouts of messages, and their cases.

use std::collections::{BTreeMap, BTreeSet};

use twinpath_openflow_wire::{HEADER_LEN, MessageType, number};

/// Transaction number of the message that is wrong.
pub(super) const XID: u32 = 0x0102_0304;

/// What comes before the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The same flows, groups, meters and ports each time.
    Usual,
    /// An election beside it: the present generation is 7.
    Election,
    /// The controller is a slave.
    Slave,
}

/// One field.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    value: Vec<u8>,
    wrong: Vec<Vec<u8>>,
}

/// A valid message, field by field.
#[derive(Clone, Debug)]
pub struct Layout {
    name: String,
    version: u8,
    kind: u8,
    parts: Vec<Part>,
    /// Whether its head and its end are made wrong, too.
    is_whole: bool,
    before: Before,
}

/// A message with one field wrong, or none.
#[derive(Clone, Debug)]
pub struct Case {
    /// The message and its field, such as `flow_mod.command`.
    pub field: String,
    /// What is in the field's place: a number in hexadecimal digits, or for `length` the length of all, bytes.
    pub value: String,
    /// The message.
    pub bytes: Vec<u8>,
    pub(super) before: Before,
}

fn be(value: u128, width: usize) -> Vec<u8> {
    value.to_be_bytes()[16 - width..].to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that are wrong in place of one, or may be: the ends of the range, the neighbours, the highest bit alone.
fn near(value: u128, width: usize) -> BTreeSet<u128> {
    let most = u128::MAX >> (128 - 8 * width);
    let mut near = BTreeSet::from([0, 1, most, most ^ most >> 1]);
    near.extend([value.wrapping_sub(1) & most, value.wrapping_add(1) & most]);
    near
}

impl Layout {
    /// A message without a body.
    pub(super) fn new(name: &str, kind: MessageType) -> Self {
        let (name, kind) = (name.to_owned(), kind.number());
        Self {
            name,
            version: number::VERSION,
            kind,
            parts: Vec::new(),
            is_whole: true,
            before: Before::Usual,
        }
    }

    /// The same under another name, of which neither head nor end are made wrong.
    pub(super) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self.is_whole = false;
        self
    }

    /// A message of a type that need not be one of the specification's.
    pub(super) fn of_type(name: &str, kind: u8) -> Self {
        Self { kind, ..Self::new(name, MessageType::Hello).named(name) }
    }

    pub(super) const fn of_version(mut self, version: u8) -> Self {
        self.version = version;
        self
    }

    pub(super) const fn after(mut self, before: Before) -> Self {
        self.before = before;
        self
    }

    fn part(mut self, name: &str, value: Vec<u8>, wrong: Vec<Vec<u8>>) -> Self {
        let wrong = wrong.into_iter().filter(|wrong| *wrong != value).collect();
        self.parts.push(Part { name: name.to_owned(), value, wrong });
        self
    }

    /// A number of this many bytes. Its neighbours and the ends of its range are tried, and these.
    pub(super) fn number(self, name: &str, width: usize, value: u128, more: &[u128]) -> Self {
        let mut wrong = near(value, width);
        wrong.extend(more);
        self.part(name, be(value, width), wrong.into_iter().map(|wrong| be(wrong, width)).collect())
    }

    /// A number of this many bytes. Only these values are tried, as others would make it a message of another kind.
    pub(super) fn choice(self, name: &str, width: usize, value: u128, wrong: &[u128]) -> Self {
        self.part(name, be(value, width), wrong.iter().map(|wrong| be(*wrong, width)).collect())
    }

    /// The length of a part, of two bytes: those that miss the units of 4 and 8 bytes are tried, too.
    pub(super) fn len(self, name: &str, value: u16) -> Self {
        let by = |more: i32| u128::from((i32::from(value) + more).clamp(0, 0xffff) as u16);
        self.number(name, 2, value.into(), &[by(-8), by(-4), by(4), by(8), 4, 8])
    }

    /// Bytes that must be ignored.
    pub(super) fn pad(self, name: &str, len: usize) -> Self {
        self.part(name, vec![0; len], vec![vec![0xff; len]])
    }

    /// Bytes that are never wrong.
    pub(super) fn data(self, name: &str, bytes: &[u8]) -> Self {
        self.part(name, bytes.to_vec(), Vec::new())
    }

    /// What is in another layout.
    pub(super) fn then(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// The same with no field of it made wrong until here.
    pub(super) fn fixed(mut self) -> Self {
        self.parts.iter_mut().for_each(|part| part.wrong.clear());
        self
    }

    /// The same with no field made wrong whose name begins so.
    pub(super) fn without(mut self, names: &str) -> Self {
        let some = self.parts.iter_mut().filter(|part| part.name.starts_with(names));
        some.for_each(|part| part.wrong.clear());
        self
    }

    /// Bytes of the body until here.
    pub(super) fn body_len(&self) -> usize {
        self.parts.iter().map(|part| part.value.len()).sum()
    }

    /// The same from a slave.
    pub(super) fn of_slave(self) -> Self {
        let name = format!("slave.{}", self.name);
        self.named(&name).after(Before::Slave)
    }

    fn message(&self, version: u8, xid: u32, body: &[u8]) -> Vec<u8> {
        let len = (HEADER_LEN + body.len()) as u16;
        [&[version, self.kind][..], &len.to_be_bytes(), &xid.to_be_bytes(), body].concat()
    }

    fn body(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| part.value.iter().copied()).collect()
    }

    /// The valid message, and each with one field wrong.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let body = self.body();
        let mut cases = Vec::new();
        let mut add = |field: &str, value: String, bytes: Vec<u8>| {
            cases.push(Case { field: format!("{}.{field}", self.name), value, bytes, before: self.before });
        };
        add("valid", "-".to_owned(), self.message(self.version, XID, &body));
        if self.is_whole {
            for version in near(self.version.into(), 1).into_iter().filter(|it| *it != self.version.into()) {
                add("version", hex(&[version as u8]), self.message(version as u8, XID, &body));
            }
            add("xid", "ffffffff".to_owned(), self.message(self.version, u32::MAX, &body));
            let mut ends = BTreeSet::from([body.len().saturating_sub(1)]);
            ends.extend([1, 4, 8].map(|more| body.len() + more));
            let mut end = 0;
            for part in &self.parts {
                ends.insert(end);
                end += part.value.len();
            }
            for end in ends.into_iter().filter(|end| *end != body.len()) {
                let mut other = body.clone();
                other.resize(end, 0);
                add("length", (HEADER_LEN + end).to_string(), self.message(self.version, XID, &other));
            }
        }
        // Fields of the same name are numbered.
        let (mut at, mut seen) = (0, BTreeMap::<&str, u32>::new());
        for part in &self.parts {
            let end = at + part.value.len();
            let times = seen.entry(&part.name).or_default();
            *times += u32::from(!part.wrong.is_empty());
            let name = if *times > 1 { format!("{}_{times}", part.name) } else { part.name.clone() };
            for wrong in &part.wrong {
                let mut other = body.clone();
                other[at..end].copy_from_slice(wrong);
                add(&name, hex(wrong), self.message(self.version, XID, &other));
            }
            at = end;
        }
        cases
    }
}
