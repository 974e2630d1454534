//! The corpus: tables, frames and the verdicts they must get, as text in `corpus/`.
//!
//! It is test support. It is here because every implementation of the verdict is tested against it: user space, the
//! XDP program, the socket filter and the tcx program. A file is lines of words; `#` starts a comment.
//!
//! ```text
//! table NAME                      a table, followed by its rules, one a line:
//!   mac 02:00:00:00:00:02         first
//!   frame_len_max 1514            second
//!   address 10.0.0.2
//!   claim udp 7 [at ADDRESS] [vlan ID] [from PREFIX...]
//!   claim ethertype 88b5 [vlan ID]
//!   claim flow tcp 10.0.0.1:4000 10.0.0.2:7 [vlan ID]
//!   claim connections 7 [at ADDRESS] [from PREFIX...]
//!
//! case NAME                       a frame, followed by:
//!   under NAME                    its table
//!   tag 8100 100                  a VLAN tag beside the frame: protocol, control
//!   segments 4                    number of segments that were coalesced
//!   segment_len 100               payload of each of them, bytes
//!   known 10.0.0.1:4000 10.0.0.2:7 [declined]
//!                                 a connection that a worker has: the peer, this host
//!   not PROGRAM: REASON           a test run of this program can't decide it: xdp, filter
//!   frame                         bytes in hexadecimal until the next keyword
//!     0200 0000 0002              digits; white space means nothing
//!     fill 00 1400                one byte, that many times
//!   is claimed 0                  or `is large 0`, `is opening 0`, `is pass REASON`; ends the case
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::{FromStr, SplitWhitespace};

use twinpath_wire::{EtherType, FlowKey, Mac, Protocol, Tag};

use crate::{Claim, ClaimKind, Context, Known, PassReason, Table, Verdict};

const FILES: [(&str, &str); 9] = [
    ("tables.txt", include_str!("../corpus/tables.txt")),
    ("ethernet.txt", include_str!("../corpus/ethernet.txt")),
    ("vlan.txt", include_str!("../corpus/vlan.txt")),
    ("ipv4.txt", include_str!("../corpus/ipv4.txt")),
    ("ipv6.txt", include_str!("../corpus/ipv6.txt")),
    ("transport.txt", include_str!("../corpus/transport.txt")),
    ("connections.txt", include_str!("../corpus/connections.txt")),
    ("claims.txt", include_str!("../corpus/claims.txt")),
    ("datagrams.txt", include_str!("../corpus/datagrams.txt")),
];

/// All tables and cases.
#[derive(Debug, Default)]
pub struct Corpus {
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Cases in the order of the files.
    pub cases: Vec<Case>,
}

/// One frame and its verdict.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique.
    pub name: String,
    /// The name of the table that decides it.
    pub table: String,
    /// The kernel's knowledge of the frame besides its bytes.
    pub context: Context,
    /// The bytes, from the MAC header on.
    pub frame: Vec<u8>,
    /// The verdict it must get.
    pub verdict: Verdict,
    /// Why a test run of the XDP program cannot decide this case, if so.
    pub not_xdp: Option<String>,
    /// Why a test run of the socket filter cannot decide this case, if so.
    pub not_filter: Option<String>,
}

/// A line of the corpus that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("corpus/{file}:{line}: {what}")]
pub struct CorpusError {
    file: &'static str,
    line: usize,
    what: String,
}

/// Reads the whole corpus.
///
/// # Errors
/// [`CorpusError`], which names the line.
pub fn all() -> Result<Corpus, CorpusError> {
    let mut corpus = Corpus::default();
    FILES.into_iter().try_for_each(|(file, text)| read(&mut corpus, file, text))?;
    Ok(corpus)
}

/// Adds the contents of a file.
fn read(corpus: &mut Corpus, file: &'static str, text: &str) -> Result<(), CorpusError> {
    let mut reader = Reader { corpus, at: At::Nothing };
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        reader.line(text).map_err(|what| CorpusError { file, line, what })?;
    }
    if matches!(reader.at, At::Case { .. }) {
        let (line, what) = (text.lines().count(), "the last case has no verdict".to_owned());
        return Err(CorpusError { file, line, what });
    }
    Ok(())
}

struct Reader<'a> {
    corpus: &'a mut Corpus,
    at: At,
}

enum At {
    Nothing,
    /// A table's name and, once it is known, its MAC.
    Table(String, Option<Mac>),
    Case {
        case: Case,
        in_frame: bool,
    },
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { return Ok(()) };
        match word {
            "table" => {
                self.at = At::Table(parsed(words.next())?, None);
                return Ok(());
            }
            "case" => {
                if matches!(self.at, At::Case { .. }) {
                    return Err("the case before has no verdict".to_owned());
                }
                let case = new_case(parsed(words.next())?);
                if self.corpus.cases.iter().any(|other| other.name == case.name) {
                    return Err(format!("a second case {}", case.name));
                }
                self.at = At::Case { case, in_frame: false };
                return Ok(());
            }
            _ => {}
        }
        match &mut self.at {
            At::Nothing => Err(format!("{word} outside table and case")),
            At::Table(name, mac) => table_line(&mut self.corpus.tables, name, mac, word, words),
            At::Case { case, in_frame } => {
                if word != "is" {
                    return case_line(case, in_frame, line, word, words);
                }
                case.verdict = verdict(words)?;
                if !self.corpus.tables.contains_key(&case.table) {
                    return Err(format!("no table {:?}", case.table));
                }
                self.corpus.cases.push(case.clone());
                self.at = At::Nothing;
                Ok(())
            }
        }
    }
}

fn new_case(name: String) -> Case {
    Case {
        name,
        table: String::new(),
        context: Context::default(),
        frame: Vec::new(),
        verdict: Verdict::Pass(PassReason::Unclaimed),
        not_xdp: None,
        not_filter: None,
    }
}

fn table_line(
    tables: &mut BTreeMap<String, Table>,
    name: &str,
    mac: &mut Option<Mac>,
    word: &str,
    mut words: SplitWhitespace<'_>,
) -> Result<(), String> {
    if word == "mac" {
        *mac = Some(parsed(words.next())?);
        return Ok(());
    }
    if word == "frame_len_max" {
        let mac = mac.ok_or("the MAC comes first")?;
        let table = Table::new(mac, parsed(words.next())?).map_err(|error| error.to_string())?;
        tables.insert(name.to_owned(), table);
        return Ok(());
    }
    let table = tables.get_mut(name).ok_or("mac and frame_len_max come first")?;
    match word {
        "address" => table.add_address(parsed(words.next())?).map_err(|error| error.to_string()),
        "claim" => table.add_claim(claim(words)?).map(|_| ()).map_err(|error| error.to_string()),
        _ => Err(format!("no rule {word}")),
    }
}

fn claim(mut words: SplitWhitespace<'_>) -> Result<Claim, String> {
    let mut claim = match words.next() {
        Some("ethertype") => Claim::ethertype(hexadecimal(words.next())?),
        Some("flow") => {
            let protocol = protocol(words.next())?;
            let (source, destination): (SocketAddr, SocketAddr) =
                (parsed(words.next())?, parsed(words.next())?);
            Claim::flow(FlowKey::new(protocol, source, destination))
        }
        Some("connections") => Claim::connections(parsed(words.next())?),
        other => Claim::port(protocol(other)?, parsed(words.next())?),
    };
    while let Some(word) = words.next() {
        match (word, &mut claim.kind) {
            ("vlan", _) => claim.vlan = Some(parsed(words.next())?),
            ("at", ClaimKind::Port { address, .. }) => *address = Some(parsed::<IpAddr>(words.next())?),
            ("from", _) => {
                claim.sources = words.by_ref().map(|word| parsed(Some(word))).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("no {word} for this claim")),
        }
    }
    Ok(claim)
}

fn case_line(
    case: &mut Case,
    in_frame: &mut bool,
    line: &str,
    word: &str,
    mut words: SplitWhitespace<'_>,
) -> Result<(), String> {
    match word {
        "under" => case.table = parsed(words.next())?,
        "tag" => {
            let protocol = EtherType(hexadecimal(words.next())?);
            case.context.tag = Some(Tag { protocol, control: parsed(words.next())? });
        }
        "segments" => case.context.segments = parsed(words.next())?,
        "segment_len" => case.context.segment_len = parsed(words.next())?,
        "known" => {
            let (peer, local): (SocketAddr, SocketAddr) = (parsed(words.next())?, parsed(words.next())?);
            let declined = match words.next() {
                None => false,
                Some("declined") => true,
                Some(other) => return Err(format!("no {other} connection")),
            };
            case.context.known = Some(Known { flow: FlowKey::new(Protocol::Tcp, peer, local), declined });
        }
        "not" => {
            let (program, reason) =
                line.trim_start_matches("not").split_once(':').ok_or("not PROGRAM: REASON")?;
            let reason = Some(reason.trim().to_owned());
            match program.trim() {
                "xdp" => case.not_xdp = reason,
                "filter" => case.not_filter = reason,
                other => return Err(format!("no program {other}")),
            }
        }
        "frame" => {
            *in_frame = true;
            return Ok(());
        }
        "fill" if *in_frame => {
            let byte = hexadecimal(words.next())?;
            let len: usize = parsed(words.next())?;
            let byte = u8::try_from(byte).map_err(|_| "more than a byte")?;
            case.frame.resize(case.frame.len() + len, byte);
            return Ok(());
        }
        _ if *in_frame => return hex_bytes(line, &mut case.frame),
        _ => return Err(format!("no {word} in a case")),
    }
    *in_frame = false;
    Ok(())
}

fn verdict(mut words: SplitWhitespace<'_>) -> Result<Verdict, String> {
    match (words.next(), words.next()) {
        (Some("claimed"), index) => Ok(Verdict::Claimed(parsed(index)?)),
        (Some("large"), index) => Ok(Verdict::ClaimedLarge(parsed(index)?)),
        (Some("opening"), index) => Ok(Verdict::Opens(parsed(index)?)),
        (Some("pass"), Some(name)) => {
            let reason = PassReason::ALL.into_iter().find(|reason| reason.name() == name);
            Ok(Verdict::Pass(reason.ok_or_else(|| format!("no reason {name}"))?))
        }
        _ => Err("is claimed INDEX, or is pass REASON".to_owned()),
    }
}

fn hex_bytes(line: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let digits: Vec<char> = line.chars().filter(|c| !c.is_whitespace()).collect();
    for pair in digits.chunks(2) {
        let text: String = pair.iter().collect();
        if text.len() != 2 {
            return Err("half a byte".to_owned());
        }
        bytes.push(u8::from_str_radix(&text, 16).map_err(|_| format!("{text} is no byte"))?);
    }
    Ok(())
}

fn protocol(word: Option<&str>) -> Result<Protocol, String> {
    word.and_then(Protocol::from_name).ok_or_else(|| format!("no protocol {word:?}"))
}

fn hexadecimal(word: Option<&str>) -> Result<u16, String> {
    let word = word.ok_or("a number is missing")?;
    u16::from_str_radix(word, 16).map_err(|error| format!("{word}: {error}"))
}

fn parsed<T: FromStr<Err: ToString>>(word: Option<&str>) -> Result<T, String> {
    let word = word.ok_or("a word is missing")?;
    word.parse().map_err(|error: T::Err| format!("{word}: {}", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "table t\nmac 02:00:00:00:00:02\nframe_len_max 1514\n";

    /// The contents of a file, or the fault in its first bad line.
    fn read(text: &str) -> Result<Corpus, String> {
        let mut corpus = Corpus::default();
        super::read(&mut corpus, "file", text).map_err(|error| error.to_string())?;
        Ok(corpus)
    }

    #[test]
    fn a_case_has_what_its_lines_say() {
        let text = format!(
            "{TABLE}address 10.0.0.2\nclaim udp 7 vlan 9 from 10.0.0.0/8 192.168.1.1\n\
             case c\nunder t\ntag 8100 100\nsegments 4\nsegment_len 9\nnot xdp: it has a tag\nnot filter: so it has\n\
             frame\n  0102 03ff # bytes\n  fill ab 3\n# a comment\n\nis claimed 5\ncase d\nunder t\nis pass fragment"
        );
        let corpus = read(&text).unwrap();
        let table = &corpus.tables["t"];
        let sources = ["10.0.0.0/8", "192.168.1.1/32"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(table.claims(), [Claim { vlan: Some(9), sources, ..Claim::port(Protocol::Udp, 7) }]);
        assert_eq!((table.addresses().len(), table.frame_len_max()), (1, 1514));
        let [c, d] = &corpus.cases[..] else { panic!("{:?}", corpus.cases) };
        assert_eq!((c.name.as_str(), c.table.as_str(), c.context.segments), ("c", "t", 4));
        assert_eq!(c.context.segment_len, 9);
        assert_eq!(c.context.tag, Some(Tag { protocol: EtherType::VLAN, control: 100 }));
        assert_eq!(c.frame, [1, 2, 3, 0xff, 0xab, 0xab, 0xab]);
        assert_eq!(c.verdict, Verdict::Claimed(5));
        assert_eq!(
            (c.not_xdp.as_deref(), c.not_filter.as_deref()),
            (Some("it has a tag"), Some("so it has"))
        );
        assert_eq!((d.frame.len(), d.verdict), (0, Verdict::Pass(PassReason::Fragment)));
        assert_eq!((&d.not_xdp, &d.not_filter, d.context), (&None, &None, Context::default()));
    }

    #[test]
    fn a_line_that_means_nothing_is_an_error_that_says_so() {
        for (lines, wrong) in [
            ("under t", "corpus/file:1: under outside table and case"),
            ("# comments\n\n under t", "corpus/file:3: under outside table and case"),
            ("table", "a word is missing"),
            ("table t\nframe_len_max 1514", "the MAC comes first"),
            ("table t\naddress 10.0.0.1", "mac and frame_len_max come first"),
            ("table t\nmac 1", "1: a MAC address is"),
            ("table t\nmac 02:00:00:00:00:02\nframe_len_max 1", "shorter than Ethernet's own minimum"),
        ] {
            let error = read(lines).map(|_| ()).unwrap_err();
            assert!(error.contains(wrong), "{lines}: {error}");
        }
        for (line, wrong) in [
            ("rule", "no rule rule"),
            ("address 10", "10: "),
            ("claim sctp 7", "no protocol Some(\"sctp\")"),
            ("claim udp", "a word is missing"),
            ("claim udp 0", "port 0 cannot be claimed"),
            ("claim udp 7 via 1", "no via for this claim"),
            ("claim ethertype 88b5 at 10.0.0.2", "no at for this claim"),
            ("claim ethertype", "a number is missing"),
            ("claim ethertype xyz", "xyz: "),
            ("case c\nunder u\nis pass fragment", "no table \"u\""),
            ("case c\ncase d", "corpus/file:5: the case before has no verdict"),
            ("case c\nunder t", "corpus/file:5: the last case has no verdict"),
            ("case c\nunder t\nis pass fragment\ncase c", "a second case c"),
            ("case c\nis", "is claimed INDEX"),
            ("case c\nis pass whatever", "no reason whatever"),
            ("case c\nis lost 1", "is claimed INDEX"),
            ("case c\nover t", "no over in a case"),
            ("case c\nfill 00 1", "no fill in a case"),
            ("case c\nframe\nfill 100 1", "more than a byte"),
            ("case c\nframe\n012", "half a byte"),
            ("case c\nframe\n0g", "0g is no byte"),
            ("case c\nframe\n01\nunder t\n02", "no 02 in a case"),
            ("case c\nnot tc: it can", "no program tc"),
            ("case c\nnot xdp", "not PROGRAM: REASON"),
        ] {
            let error = read(&format!("{TABLE}{line}")).map(|_| ()).unwrap_err();
            assert!(error.contains(wrong), "{line}: {error}");
        }
    }
}
