//! Compiles the text of a filter to steps. Every error points at a word of the text.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::filter::test::{Family, Net, Side, Test};
use crate::filter::{Filter, Step, UNWANTED, WANTED};

/// Longest text, bytes.
pub const TEXT_MAX: usize = 4096;
/// Maximum number of conditions in a filter. It bounds the work per frame.
pub const CONDITIONS_MAX: usize = 64;
/// Deepest nesting of parentheses and `not`.
const DEPTH_MAX: usize = 32;

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n  {text}\n  {mark}", mark = mark(text, *at, *len))]
pub struct FilterError {
    /// The fault, and what was expected instead.
    pub what: String,
    /// The text of the filter.
    pub text: String,
    /// Offset of the word at fault, bytes.
    pub at: usize,
    /// Its length, bytes; 0 at the end of the text.
    pub len: usize,
}

/// The line with carets below the word at fault.
fn mark(text: &str, at: usize, len: usize) -> String {
    let column = text[..at].chars().count();
    let width = text[at..at + len].chars().count().max(1);
    format!("{}{}", " ".repeat(column), "^".repeat(width))
}

/// The syntax tree: one condition, or several joined.
enum Node {
    Test { test: Test, vlans: u8 },
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

impl FromStr for Filter {
    type Err = FilterError;

    /// Compiles a filter. A text of blanks only matches every frame.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser { text, words: Vec::new(), at: 0, conditions: 0, vlans: 0, depth: 0 };
        if text.len() > TEXT_MAX {
            return Err(parser.error_at(TEXT_MAX, 0, format!("the filter is longer than {TEXT_MAX} bytes")));
        }
        parser.words = words(text);
        if parser.words.is_empty() {
            return Ok(Self::default());
        }
        let node = parser.expression()?;
        if let Some(word) = parser.word() {
            return Err(parser.error(format!("`and`, `or` or the end expected, not `{word}`")));
        }
        let mut filter = Self { steps: Vec::with_capacity(parser.conditions), first: WANTED };
        filter.first = filter.lay(&node, WANTED, UNWANTED);
        Ok(filter)
    }
}

impl Filter {
    /// Emits the steps of `node`, the last ones first, and returns the number of its first step.
    fn lay(&mut self, node: &Node, yes: u16, no: u16) -> u16 {
        match node {
            Node::Test { test, vlans } => {
                self.steps.push(Step { test: *test, vlans: *vlans, yes, no });
                (self.steps.len() - 1) as u16
            }
            Node::Not(inner) => self.lay(inner, no, yes),
            Node::And(left, right) => {
                let then = self.lay(right, yes, no);
                self.lay(left, then, no)
            }
            Node::Or(left, right) => {
                let otherwise = self.lay(right, yes, no);
                self.lay(left, yes, otherwise)
            }
        }
    }
}

/// Start and end of each word, bytes. Blanks separate words; `(`, `)`, `!`, `&&` and `||` are words by themselves.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut begun = None;
    let mut skip = 0;
    for (at, character) in text.char_indices() {
        if at < skip {
            continue;
        }
        let rest = &text[at..];
        let sign = ["(", ")", "&&", "||", "!"].into_iter().find(|sign| rest.starts_with(sign));
        if sign.is_some() || character.is_whitespace() {
            words.extend(begun.take().map(|begin| (begin, at)));
        } else if begun.is_none() {
            begun = Some(at);
        }
        if let Some(sign) = sign {
            skip = at + sign.len();
            words.push((at, skip));
        }
    }
    words.extend(begun.map(|begin| (begin, text.len())));
    words
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, usize)>,
    at: usize,
    conditions: usize,
    /// The number of `vlan` so far.
    vlans: u8,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn word(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|(begin, end)| &self.text[*begin..*end])
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.word();
        self.at += usize::from(word.is_some());
        word
    }

    /// Consumes and returns the next word if it is one of `wanted`.
    fn take(&mut self, wanted: &[&str]) -> Option<&'a str> {
        self.word().filter(|word| wanted.contains(word)).inspect(|_| self.at += 1)
    }

    fn error_at(&self, at: usize, len: usize, what: String) -> FilterError {
        // Truncated to the length that is shown, at a character boundary.
        let end = (0..=self.text.len().min(TEXT_MAX)).rev().find(|end| self.text.is_char_boundary(*end));
        let text = self.text[..end.unwrap_or(0)].to_owned();
        let at = at.min(text.len());
        FilterError { what, len: len.min(text.len() - at), at, text }
    }

    /// An error at the word that comes next.
    fn error(&self, what: String) -> FilterError {
        let (begin, end) = self.words.get(self.at).copied().unwrap_or((self.text.len(), self.text.len()));
        self.error_at(begin, end - begin, what)
    }

    /// An error at the word just consumed.
    fn error_before(&mut self, what: String) -> FilterError {
        self.at = self.at.saturating_sub(1);
        self.error(what)
    }

    fn expected(&self, what: &str) -> FilterError {
        match self.word() {
            Some(word) => self.error(format!("{what} expected, not `{word}`")),
            None => self.error(format!("{what} expected at the end")),
        }
    }

    fn expression(&mut self) -> Result<Node, FilterError> {
        let mut left = self.term()?;
        // Equal precedence, from the left, as in pcap-filter(7).
        while let Some(word) = self.take(&["and", "or", "&&", "||"]) {
            let right = Box::new(self.term()?);
            left = match word {
                "and" | "&&" => Node::And(Box::new(left), right),
                _ => Node::Or(Box::new(left), right),
            };
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} parentheses or `not`s within each other")));
        }
        let node = if self.take(&["not", "!"]).is_some() {
            Node::Not(Box::new(self.term()?))
        } else if self.take(&["("]).is_some() {
            let inner = self.expression()?;
            if self.take(&[")"]).is_none() {
                return Err(self.expected("`)`, `and` or `or`"));
            }
            inner
        } else {
            self.conditions += 1;
            if self.conditions > CONDITIONS_MAX {
                return Err(self.error(format!("more than {CONDITIONS_MAX} conditions")));
            }
            let vlans = self.vlans;
            let test = self.condition()?;
            self.vlans += u8::from(matches!(test, Test::Vlan(_)));
            Node::Test { test, vlans }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn condition(&mut self) -> Result<Test, FilterError> {
        if self.take(&["ether"]).is_some() {
            return self.ether_proto();
        }
        if self.take(&["vlan"]).is_some() {
            return self.vlan();
        }
        let protocol = self.take(&["udp", "tcp", "sctp", "icmp", "icmp6", "arp", "ip", "ip6"]);
        let side = match self.take(&["src", "dst"]) {
            Some("src") => Some(Side::Source),
            Some(_) => Some(Side::Destination),
            None => None,
        };
        let kind = self.take(&["host", "port", "net"]);
        match (protocol, side, kind) {
            (Some(protocol), None, None) => Ok(alone(protocol)),
            (protocol, side, Some("port")) => self.port(protocol, side.unwrap_or(Side::Either)),
            (protocol, side, Some("net")) => self.net(protocol, side.unwrap_or(Side::Either)),
            (protocol, side, Some(_)) => self.host(protocol, side.unwrap_or(Side::Either)),
            // `src 10.0.0.1` is short for `src host 10.0.0.1`.
            (protocol, Some(side), None) if self.word().is_some_and(|word| word.parse::<IpAddr>().is_ok()) => {
                self.host(protocol, side)
            }
            (_, Some(_), None) => Err(self.expected("`host`, `port`, `net` or an address")),
            (None, None, None) => Err(self.expected(
                "a condition (udp, tcp, icmp, icmp6, arp, ip, ip6, [src|dst] host A, [src|dst] port N, [src|dst] net \
                 P/L, ether proto N, vlan [N])",
            )),
        }
    }

    fn ether_proto(&mut self) -> Result<Test, FilterError> {
        if self.take(&["proto"]).is_none() {
            return Err(self.expected("`proto`"));
        }
        let Some(word) = self.next() else { return Err(self.expected("an EtherType such as 0x88b5")) };
        let number = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => word.parse(),
        };
        match number {
            // A smaller number is the length of an IEEE 802.3 frame (3.2.6), not an EtherType.
            Ok(number) if number >= 0x600 => Ok(Test::EtherType(number)),
            _ => Err(self.error_before(format!("`{word}` is no EtherType: give 0x600 to 0xffff"))),
        }
    }

    fn vlan(&mut self) -> Result<Test, FilterError> {
        // A word that begins with a digit can be nothing else.
        if !self.word().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
            return Ok(Test::Vlan(None));
        }
        let Some(word) = self.next() else { return Err(self.expected("the number of a VLAN")) };
        match word.parse() {
            Ok(number) if number <= 0x0fff => Ok(Test::Vlan(Some(number))),
            _ => Err(self.error_before(format!("`{word}` is no VLAN: give 0 to 4095"))),
        }
    }

    fn port(&mut self, protocol: Option<&str>, side: Side) -> Result<Test, FilterError> {
        let protocol = match protocol {
            None => None,
            Some("tcp") => Some(6),
            Some("udp") => Some(17),
            Some("sctp") => Some(132),
            Some(other) => {
                return Err(self.error_before(format!("{other} has no ports: udp, tcp and sctp have")));
            }
        };
        let Some(word) = self.next() else { return Err(self.expected("the number of a port")) };
        let port =
            word.parse().map_err(|_| self.error_before(format!("`{word}` is no port: give 0 to 65535")))?;
        Ok(Test::Port { port, side, protocol })
    }

    fn host(&mut self, protocol: Option<&str>, side: Side) -> Result<Test, FilterError> {
        let Some(word) = self.next() else { return Err(self.expected("an address")) };
        let net = match word.parse() {
            Ok(IpAddr::V4(address)) => Net::V4 { address: address.to_bits(), mask: u32::MAX },
            Ok(IpAddr::V6(address)) => Net::V6 { address: words_of(address), mask: [u32::MAX; 4] },
            Err(_) => return Err(self.error_before(format!("`{word}` is no address: give it in figures"))),
        };
        self.address(protocol, net, side)
    }

    fn net(&mut self, protocol: Option<&str>, side: Side) -> Result<Test, FilterError> {
        let Some(word) = self.next() else { return Err(self.expected("a net such as 10.7.0.0/16")) };
        let read = || {
            let (prefix, length) = word.split_once('/')?;
            let length: u32 = length.parse().ok()?;
            match prefix.parse().ok()? {
                IpAddr::V4(address) if length <= 32 => {
                    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                    Some((
                        Net::V4 { address: address.to_bits() & mask, mask },
                        address.to_bits() & !mask != 0,
                    ))
                }
                IpAddr::V6(address) if length <= 128 => {
                    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                    let net = Ipv6Addr::from(address.to_bits() & mask);
                    let (address_words, mask_words) = (words_of(net), words_of(Ipv6Addr::from(mask)));
                    let beyond = address.to_bits() & !mask != 0;
                    Some((Net::V6 { address: address_words, mask: mask_words }, beyond))
                }
                _ => None,
            }
        };
        match read() {
            Some((net, false)) => self.address(protocol, net, side),
            Some((_, true)) => Err(self.error_before(format!("`{word}` has bits beyond its prefix"))),
            None => {
                Err(self.error_before(format!("`{word}` is no net: give it as 10.7.0.0/16 or fd07::/64")))
            }
        }
    }

    fn address(&mut self, protocol: Option<&str>, net: Net, side: Side) -> Result<Test, FilterError> {
        let v4 = matches!(net, Net::V4 { .. });
        let family = match protocol {
            None => Family::Any,
            Some("ip") if v4 => Family::Ip,
            Some("arp") if v4 => Family::Arp,
            Some("ip6") if !v4 => Family::Any,
            Some("ip" | "arp") => return Err(self.error_before("an IPv4 address expected".to_owned())),
            Some("ip6") => return Err(self.error_before("an IPv6 address expected".to_owned())),
            Some(other) => {
                let what = format!("no addresses belong to {other}: write `{other} and host ...`");
                return Err(self.error_before(what));
            }
        };
        Ok(Test::Address { net, side, family })
    }
}

/// The condition that a protocol's name stands for when it is used alone.
fn alone(protocol: &str) -> Test {
    match protocol {
        "udp" => Test::Over(17),
        "tcp" => Test::Over(6),
        "sctp" => Test::Over(132),
        "icmp" => Test::Over4(1),
        "icmp6" => Test::Over6(58),
        "arp" => Test::EtherType(0x0806),
        "ip" => Test::EtherType(0x0800),
        _ => Test::EtherType(0x86dd),
    }
}

fn words_of(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}
