//! Tests the answers of the DNS server example, as a function of query and zone.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../examples/dns/answer.rs"]
mod answer;
#[path = "../examples/dns/find.rs"]
mod find;
#[path = "../examples/dns/zone.rs"]
mod zone;

use answer::{Answered, Transport, answer};
use domain::base::iana::{Opcode, Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use zone::Zone;

const HEAD: &str = "\
$ORIGIN example.org.
$TTL 3600
@ IN SOA ns hostmaster 1 3600 600 86400 60
@ IN NS ns
ns IN A 192.0.2.1
Www IN A 192.0.2.2
www IN A 192.0.2.3
www IN AAAA 2001:db8::2
alias IN CNAME www
first IN CNAME second
second IN CNAME first
lost IN CNAME nowhere
away IN CNAME www.example.com.
deep.down.there IN TXT \"below nothing\"
sub IN NS ns.sub
sub IN NS ns.example.net.
sub IN DS 1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
ns.sub IN A 192.0.2.53
";

/// A zone of these records, and of one name with many records.
fn text() -> String {
    (0..60).fold(HEAD.to_owned(), |text, number| text + &format!("many IN TXT \"{number:0>40}\"\n"))
}

fn zone(text: &str) -> Result<Zone, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    std::fs::write(&file, text).unwrap();
    Zone::load(&file)
}

/// A query; with EDNS, if a size is given.
fn query(name: &str, rtype: Rtype, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec().question();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    builder.push((Name::<Vec<u8>>::vec_from_str(name).unwrap(), rtype)).unwrap();
    let mut builder = builder.additional();
    if let Some(size) = edns {
        builder
            .opt(|opt| {
                opt.set_udp_payload_size(size);
                opt.set_dnssec_ok(true);
                Ok(())
            })
            .unwrap();
    }
    builder.finish()
}

/// The contents of a reply: status, whether it is authoritative, and its sections, a line per record.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    rcode: Rcode,
    authoritative: bool,
    truncated: bool,
    sections: [Vec<String>; 3],
}

fn read(reply: &[u8]) -> Said {
    let message = Message::from_slice(reply).unwrap();
    let header = message.header();
    assert!(header.qr() && header.id() == 0x1234);
    let mut sections = [const { Vec::new() }; 3];
    let mut section = message.answer().unwrap();
    for lines in &mut sections {
        for record in section.by_ref() {
            let record = record.unwrap();
            if record.rtype() != Rtype::OPT {
                let record = record.into_record::<AllRecordData<_, _>>().unwrap().unwrap();
                let owner = record.owner().to_string().to_lowercase();
                lines.push(format!("{owner} {} {}", record.rtype(), record.data()));
            }
        }
        match section.next_section().unwrap() {
            Some(next) => section = next,
            None => break,
        }
    }
    Said { rcode: header.rcode(), authoritative: header.aa(), truncated: header.tc(), sections }
}

fn ask(zone: &Zone, query: &[u8]) -> Said {
    let mut reply = Vec::new();
    assert_ne!(answer(zone, query, Transport::Udp, &mut reply), Answered::Not);
    read(&reply)
}

fn found(rcode: Rcode, answers: &[&str], authority: &[&str]) -> Said {
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    let sections = [lines(answers), lines(authority), Vec::new()];
    Said { rcode, authoritative: true, truncated: false, sections }
}

const SOA: &str = "example.org SOA ns.example.org. hostmaster.example.org. 1 3600 600 86400 60";

#[test]
fn names_are_found_with_their_aliases_and_what_there_is_not_is_said_so() {
    let zone = zone(&text()).unwrap();
    let www = ["www.example.org A 192.0.2.2", "www.example.org A 192.0.2.3"];
    let alias = "alias.example.org CNAME www.example.org.";
    for (name, rtype, expected) in [
        ("www.example.org", Rtype::A, found(Rcode::NOERROR, &www, &[])),
        ("WWW.eXample.ORG", Rtype::A, found(Rcode::NOERROR, &www, &[])),
        ("www.example.org", Rtype::AAAA, found(Rcode::NOERROR, &["www.example.org AAAA 2001:db8::2"], &[])),
        ("www.example.org", Rtype::MX, found(Rcode::NOERROR, &[], &[SOA])),
        ("example.org", Rtype::SOA, found(Rcode::NOERROR, &[SOA], &[])),
        ("alias.example.org", Rtype::A, found(Rcode::NOERROR, &[alias, www[0], www[1]], &[])),
        ("alias.example.org", Rtype::CNAME, found(Rcode::NOERROR, &[alias], &[])),
        ("alias.example.org", Rtype::MX, found(Rcode::NOERROR, &[alias], &[SOA])),
        ("nowhere.example.org", Rtype::A, found(Rcode::NXDOMAIN, &[], &[SOA])),
        ("down.there.example.org", Rtype::A, found(Rcode::NOERROR, &[], &[SOA])),
        (
            "lost.example.org",
            Rtype::A,
            found(Rcode::NXDOMAIN, &["lost.example.org CNAME nowhere.example.org."], &[SOA]),
        ),
        (
            "away.example.org",
            Rtype::A,
            found(Rcode::NOERROR, &["away.example.org CNAME www.example.com."], &[]),
        ),
    ] {
        assert_eq!(ask(&zone, &query(name, rtype, None)), expected, "{name} {rtype}");
        assert_eq!(ask(&zone, &query(name, rtype, Some(4096))), expected, "{name} {rtype} with EDNS");
    }
    let looped = ask(&zone, &query("first.example.org", Rtype::A, None));
    assert_eq!((looped.rcode, looped.sections[0].len()), (Rcode::NOERROR, 9), "and not for ever");
    assert_eq!(ask(&zone, &query("www.example.org", Rtype::ANY, None)).sections[0].len(), 2, "one set");
}

#[test]
fn a_wildcard_stands_for_what_there_is_not_below_the_closest_name_that_there_is() {
    let zone = zone(&format!(
        "{HEAD}*.w IN A 192.0.2.7\n*.w IN TXT any\nb.w IN A 192.0.2.8\nx.y.w IN A 192.0.2.9\n*.to IN CNAME a.w\n"
    ))
    .unwrap();
    let any = |name: &str| found(Rcode::NOERROR, &[&format!("{name} A 192.0.2.7")], &[]);
    let none = |rcode| found(rcode, &[], &[SOA]);
    for (name, rtype, expected) in [
        ("a.w.example.org", Rtype::A, any("a.w.example.org")),
        ("deep.below.a.w.example.org", Rtype::A, any("deep.below.a.w.example.org")),
        ("*.w.example.org", Rtype::A, any("*.w.example.org")),
        ("a.w.example.org", Rtype::MX, none(Rcode::NOERROR)),
        ("b.w.example.org", Rtype::A, found(Rcode::NOERROR, &["b.w.example.org A 192.0.2.8"], &[])),
        ("b.w.example.org", Rtype::TXT, none(Rcode::NOERROR)),
        ("a.b.w.example.org", Rtype::A, none(Rcode::NXDOMAIN)),
        // A name without records is a name too (RFC 4592, 2.2.2).
        ("y.w.example.org", Rtype::A, none(Rcode::NOERROR)),
        ("z.y.w.example.org", Rtype::A, none(Rcode::NXDOMAIN)),
        ("w.example.org", Rtype::A, none(Rcode::NOERROR)),
        (
            "q.to.example.org",
            Rtype::A,
            found(
                Rcode::NOERROR,
                &["q.to.example.org CNAME a.w.example.org.", "a.w.example.org A 192.0.2.7"],
                &[],
            ),
        ),
    ] {
        assert_eq!(ask(&zone, &query(name, rtype, None)), expected, "{name} {rtype}");
    }
    let mut reply = Vec::new();
    let query = query("fOo.w.ExAmPle.oRg", Rtype::A, None);
    assert_eq!(answer(&zone, &query, Transport::Udp, &mut reply), Answered::ByZone);
    assert_eq!(reply[12..query.len()], query[12..]);
    assert_eq!(reply.len(), query.len() + 16, "the name is a pointer to the question, whose case it has");
}

#[test]
fn a_zone_file_may_have_all_that_master_files_have() {
    let zone = zone(
        "; a comment\n$ORIGIN example.org.\n$TTL 3600\n@ SOA ns hostmaster (\n 1 ; serial\n 3600 600\n 86400 60 )\n\
         \tNS ns\nns 300 IN A 192.0.2.1\n IN 600 AAAA 2001:db8::1\n\
         text TXT \"two words\" \"a \\\"quote\\\" and \\065\" plain\nmail MX 10 ns\n_sip._udp SRV 1 2 5060 ns\n\
         @ CAA 0 issue \"ca.example.net\"\n1 PTR www\ndot\\.ted A 192.0.2.4\n\
         new TYPE65280 \\# 4 0A000001\n$ORIGIN sub.example.org.\nwww A 192.0.2.5\n",
    )
    .unwrap();
    for (name, rtype, answers) in [
        ("example.org", Rtype::NS, "example.org NS ns.example.org."),
        ("ns.example.org", Rtype::AAAA, "ns.example.org AAAA 2001:db8::1"),
        (
            "text.example.org",
            Rtype::TXT,
            "text.example.org TXT \"two words\" \"a \\\"quote\\\" and A\" \"plain\"",
        ),
        ("mail.example.org", Rtype::MX, "mail.example.org MX 10 ns.example.org."),
        ("_sip._udp.example.org", Rtype::SRV, "_sip._udp.example.org SRV 1 2 5060 ns.example.org"),
        ("example.org", Rtype::CAA, "example.org CAA 0 issue \"ca.example.net\""),
        ("1.example.org", Rtype::PTR, "1.example.org PTR www.example.org."),
        ("dot\\.ted.example.org", Rtype::A, "dot\\.ted.example.org A 192.0.2.4"),
        ("new.example.org", Rtype::from_int(65280), "new.example.org TYPE65280 \\# 4 0a 00 00 01"),
        ("www.sub.example.org", Rtype::A, "www.sub.example.org A 192.0.2.5"),
    ] {
        assert_eq!(ask(&zone, &query(name, rtype, None)), found(Rcode::NOERROR, &[answers], &[]), "{name}");
    }
}

#[test]
fn the_case_of_a_query_is_repeated_and_its_name_is_there_once() {
    let zone = zone(&text()).unwrap();
    let query = query("wWw.ExAmPle.oRg", Rtype::A, None);
    let mut reply = Vec::new();
    assert_eq!(answer(&zone, &query, Transport::Udp, &mut reply), Answered::ByZone);
    assert_eq!(reply[12..query.len()], query[12..], "the question");
    // Two records, each with a pointer to the question, and an address.
    assert_eq!(reply.len(), query.len() + 2 * 16);
}

#[test]
fn what_was_delegated_is_left_to_others() {
    let zone = zone(&text()).unwrap();
    let servers = ["sub.example.org NS ns.sub.example.org.", "sub.example.org NS ns.example.net."];
    for name in ["sub.example.org", "a.b.sub.example.org", "ns.sub.example.org"] {
        let said = ask(&zone, &query(name, Rtype::A, None));
        assert_eq!((said.rcode, said.authoritative, said.sections[0].len()), (Rcode::NOERROR, false, 0));
        assert_eq!(said.sections[1], servers);
        assert_eq!(said.sections[2], ["ns.sub.example.org A 192.0.2.53"]);
    }
    let said = ask(&zone, &query("sub.example.org", Rtype::DS, None));
    assert!(said.authoritative && said.sections[0].len() == 1);
}

#[test]
fn what_does_not_fit_is_marked_and_asked_for_over_tcp() {
    let zone = zone(&text()).unwrap();
    for (size, most) in [(None, 512), (Some(100), 512), (Some(700), 700), (Some(4096), 1232)] {
        let query = query("many.example.org", Rtype::TXT, size);
        let mut reply = Vec::new();
        assert_eq!(answer(&zone, &query, Transport::Udp, &mut reply), Answered::ByZone);
        assert!(reply.len() <= most && read(&reply).truncated);
        let message = Message::from_slice(&reply).unwrap();
        assert_eq!(
            message.opt().map(|opt| (opt.udp_payload_size(), opt.dnssec_ok())),
            size.map(|_| (1232, true))
        );
        assert_eq!(answer(&zone, &query, Transport::Tcp, &mut reply), Answered::ByZone);
        assert_eq!((read(&reply).truncated, read(&reply).sections[0].len()), (false, 60));
    }
}

#[test]
fn what_is_not_served_is_refused_by_its_name() {
    let zone = zone(&text()).unwrap();
    let ours = query("www.example.org", Rtype::A, Some(1232));
    let changed = |at: usize, byte: u8| {
        let mut query = ours.clone();
        query[at] = byte;
        query
    };
    let refused = |query: &[u8]| {
        let mut reply = Vec::new();
        let answered = answer(&zone, query, Transport::Udp, &mut reply);
        (answered, reply.get(3).map(|byte| byte & 15))
    };
    assert_eq!(refused(&query("www.example.com", Rtype::A, None)), (Answered::Refused, Some(5)));
    assert_eq!(refused(&query("org", Rtype::A, None)), (Answered::Refused, Some(5)));
    assert_eq!(refused(&query("example.org", Rtype::AXFR, None)), (Answered::Refused, Some(5)));
    assert_eq!(refused(&changed(2, u8::from(Opcode::UPDATE) << 3)), (Answered::Refused, Some(4)));
    assert_eq!(refused(&changed(5, 0)), (Answered::Refused, Some(1)), "no question");
    assert_eq!(refused(&changed(5, 2)), (Answered::Refused, Some(1)), "two");
    // The version of EDNS; its answer's status has a part in the OPT record.
    assert_eq!(refused(&changed(ours.len() - 5, 1)), (Answered::Refused, Some(0)));
    assert_eq!(refused(&changed(2, 0x80)), (Answered::Not, None), "a reply");
    (0..12).for_each(|len| assert_eq!(refused(&ours[..len]).0, Answered::Not));
}

#[test]
fn no_bytes_make_it_fail() {
    let zone = zone(&text()).unwrap();
    let names = ["www.example.org", "many.example.org", "a.sub.example.org", "first.example.org", "x.y"];
    let mut random = fastrand::Rng::with_seed(18);
    let mut reply = Vec::new();
    for _ in 0..20_000 {
        let mut query =
            query(random.choice(names).unwrap(), Rtype::from_int(random.u16(1..60)), Some(random.u16(..)));
        for _ in 0..random.usize(..4) {
            let at = random.usize(..query.len());
            query[at] = random.u8(..);
        }
        query.truncate(random.usize(query.len() / 2..=query.len()));
        if answer(&zone, &query, Transport::Udp, &mut reply) != Answered::Not {
            assert!(reply.len() <= 1232 && reply[..2] == query[..2] && reply[2] & 0x80 != 0);
        }
    }
}

#[test]
fn a_zone_with_mistakes_is_refused_with_what_is_wrong() {
    let wrong = |line: &str| zone(&format!("{HEAD}{line}\n")).err().unwrap();
    assert!(wrong("*.w IN NS ns").contains("a wildcard delegates nothing"));
    assert!(wrong("x IN DNAME www").contains("no DNAME"));
    assert!(wrong("www.example.com. IN A 192.0.2.9").contains("is not in the zone"));
    assert!(wrong("alias IN A 192.0.2.9").contains("CNAME"));
    assert!(wrong("x IN SOA ns hostmaster 1 3600 600 86400 60").contains("exactly one SOA"));
    assert!(wrong("$INCLUDE other").contains("$INCLUDE"));
    assert!(wrong("x IN A 192.0.2.300").contains("20:"), "{}", wrong("x IN A 192.0.2.300"));
    assert!(Zone::load("/nowhere".as_ref()).err().unwrap().contains("/nowhere"));
}
