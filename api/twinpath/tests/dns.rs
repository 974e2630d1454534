//! The example of a DNS server: what it answers, and its program over loopback, with dig where that is installed.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../examples/dns/answer.rs"]
mod answer;
#[path = "../examples/dns/zone.rs"]
mod zone;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use answer::{Answered, Transport, answer};
use domain::base::iana::{Opcode, Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};
use twinpath_test_skip::{root_or_skip, skip};
use zone::Zone;

const PORT: u16 = 5353;
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A zone of these records and of one name with many.
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

/// What a reply says: status, whether it is authoritative, and its sections, a line per record.
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
    assert!(wrong("*.w IN A 192.0.2.9").contains("no wildcards"));
    assert!(wrong("www.example.com. IN A 192.0.2.9").contains("is not in the zone"));
    assert!(wrong("alias IN A 192.0.2.9").contains("CNAME"));
    assert!(wrong("x IN SOA ns hostmaster 1 3600 600 86400 60").contains("exactly one SOA"));
    assert!(wrong("$INCLUDE other").contains("$INCLUDE"));
    assert!(wrong("x IN A 192.0.2.300").contains("20:"), "{}", wrong("x IN A 192.0.2.300"));
    assert!(Zone::load("/nowhere".as_ref()).err().unwrap().contains("/nowhere"));
}

/// The program, on loopback of its own namespace.
struct Server {
    namespace: Namespace,
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let namespace = Namespace::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zone"), text()).unwrap();
        let mut up = Command::new("ip");
        place(up.args(["link", "set", "lo", "up"]), within(&namespace)).unwrap();
        assert!(up.status().unwrap().success());
        let tests = std::env::current_exe().unwrap();
        let mut program = Command::new(tests.ancestors().nth(2).unwrap().join("examples/dns"));
        program.args(["lo".as_ref(), folder.path().join("zone").as_os_str(), PORT.to_string().as_ref()]);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        place(&mut program, within(&namespace)).unwrap();
        let server = Self { child: program.spawn().unwrap(), namespace, folder };
        server.tcp();
        server
    }

    /// Connects, once it listens.
    fn tcp(&self) -> TcpStream {
        let begun = std::time::Instant::now();
        loop {
            match self.namespace.run(|| TcpStream::connect(("127.0.0.1", PORT))).unwrap() {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    fn ask(&self, query: &[u8]) -> Said {
        let socket = self.namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(query, ("127.0.0.1", PORT)).unwrap();
        let mut reply = [0; 1500];
        let (len, _) = socket.recv_from(&mut reply).unwrap();
        read(&reply[..len])
    }

    /// Says what is to be done, and waits until it has been.
    fn request(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut said = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn within(namespace: &Namespace) -> Placement<'_> {
    Placement { namespace: Some(namespace), ..Placement::default() }
}

#[test]
fn the_program_answers_over_both_transports_and_reads_its_zone_anew() {
    if !root_or_skip() {
        return;
    }
    let mut server = Server::start();
    let www = query("www.example.org", Rtype::A, Some(1232));
    let before = ["www.example.org A 192.0.2.2", "www.example.org A 192.0.2.3"];
    (0..3).for_each(|_| assert_eq!(server.ask(&www), found(Rcode::NOERROR, &before, &[])));
    let mut stream = server.tcp();
    for name in ["many.example.org", "www.example.org"] {
        let query = query(name, Rtype::TXT, None);
        let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
        // In two parts.
        stream.write_all(&framed[..5]).unwrap();
        stream.write_all(&framed[5..]).unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(read(&reply).sections[0].len(), if name.starts_with('m') { 60 } else { 0 });
    }
    let changed = text().replace("192.0.2.2\n", "198.51.100.7\n");
    std::fs::write(server.folder.path().join("zone"), changed).unwrap();
    assert!(server.request("reload").starts_with("reloaded"));
    let after = ["www.example.org A 198.51.100.7", "www.example.org A 192.0.2.3"];
    (0..3).for_each(|_| assert_eq!(server.ask(&www), found(Rcode::NOERROR, &after, &[])));
}

#[test]
fn dig_understands_it() {
    if !root_or_skip() {
        return;
    }
    let known = Command::new("dig").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        skip("dig is not installed (apt-get install bind9-dnsutils)");
        return;
    }
    let server = Server::start();
    let dig = |line: &str| {
        let mut dig = Command::new("dig");
        dig.args(["@127.0.0.1", "-p", &PORT.to_string(), "+tries=3", "+time=5"]).args(line.split(' '));
        place(&mut dig, within(&server.namespace)).unwrap();
        String::from_utf8(dig.output().unwrap().stdout).unwrap()
    };
    assert_eq!(dig("+short www.example.org AAAA"), "2001:db8::2\n");
    assert_eq!(dig("+short +tcp alias.example.org AAAA"), "www.example.org.\n2001:db8::2\n");
    assert_eq!(dig("+short many.example.org TXT").lines().count(), 60, "by TCP, as it does not fit");
    let none = dig("nowhere.example.org A");
    assert!(none.contains("status: NXDOMAIN") && none.contains("flags: qr aa rd;"), "{none}");
    let answer = dig("+noall +answer wWw.example.org A");
    let first: Vec<_> = answer.split_whitespace().take(5).collect();
    assert_eq!(first, ["wWw.example.org.", "3600", "IN", "A", "192.0.2.2"]);
}
