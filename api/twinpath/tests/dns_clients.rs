//! Tests the program of the DNS server example over loopback, with real clients, and against a widely used
//! server.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod peers;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use domain::base::iana::{Class, Rtype};
use domain::base::name::ToName;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use twinpath_sys::Namespace;
use twinpath_test_rig::{PATIENCE, loopback, root_or_skip, skip, within};

const PORT: u16 = 5353;
/// The port of the reference server.
const OTHER_PORT: u16 = 5354;

/// A zone with all kinds of names.
fn zone(serial: u32) -> String {
    let head = format!(
        "$ORIGIN example.org.\n$TTL 3600\n@ IN SOA ns hostmaster {serial} 3600 600 86400 60\n@ NS ns\n@ NS ns.example.net.\n\
         @ MX 10 mail\n@ CAA 0 issue \"ca.example.net\"\nns A 192.0.2.1\nmail AAAA 2001:db8::25\n\
         Www A 192.0.2.{serial}\nwww A 192.0.2.200\nwww AAAA 2001:db8::2\nalias CNAME www\nlost CNAME nowhere\n\
         away CNAME www.example.com.\nchain CNAME alias\ninto CNAME x.sub\n_sip._udp SRV 1 2 5060 www\n\
         deep.down.there TXT \"below nothing\" again\n*.w A 192.0.2.7\n*.w TXT any\nb.w A 192.0.2.8\n\
         x.y.w A 192.0.2.9\n*.to CNAME www\n4 PTR www\nnew TYPE65280 \\# 4 0A000001\n\
         sub NS ns.sub\nsub NS ns.example.net.\nns.sub A 192.0.2.53\nns.sub AAAA 2001:db8::53\n"
    );
    (0..60).fold(head, |text, number| text + &format!("many TXT \"{number:0>40}\"\n"))
}

/// The program, on loopback of a separate namespace.
struct Server {
    namespace: Namespace,
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let namespace = loopback();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zone"), zone(1)).unwrap();
        let tests = std::env::current_exe().unwrap();
        let mut program = Command::new(tests.ancestors().nth(2).unwrap().join("examples/dns"));
        program.args(["lo".as_ref(), folder.path().join("zone").as_os_str(), PORT.to_string().as_ref()]);
        program.stdout(Stdio::piped());
        within(&namespace, &mut program);
        let server = Self { child: program.spawn().unwrap(), namespace, folder };
        server.tcp();
        server
    }

    /// Connects once the program listens.
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

    /// Makes it reload another zone, and waits until that is done.
    fn reload(&mut self, zone: &str) {
        std::fs::write(self.folder.path().join("zone"), zone).unwrap();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let mut said = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert!(said.starts_with("reloaded"), "{said}");
    }

    /// The output of a program that runs beside it.
    fn run(&self, mut command: Command, arguments: &str) -> String {
        within(&self.namespace, command.args(arguments.split(' ')));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A query, with EDNS if a size is given.
fn query(name: &str, rtype: Rtype, class: Class, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec().question();
    builder.header_mut().set_id(0x1234);
    builder.push((Name::<Vec<u8>>::vec_from_str(name).unwrap(), rtype, class)).unwrap();
    let mut builder = builder.additional();
    if let Some(size) = edns {
        builder
            .opt(|opt| {
                opt.set_udp_payload_size(size);
                Ok(())
            })
            .unwrap();
    }
    builder.finish()
}

/// The contents of a reply: the flags and status of its header, and each section as a set.
fn said(reply: &[u8]) -> (u16, Vec<BTreeSet<String>>) {
    let message = Message::from_slice(reply).unwrap();
    let flags = u16::from_be_bytes([reply[2], reply[3]]);
    let mut sections = Vec::new();
    let mut section = message.answer().unwrap();
    loop {
        let records = section.by_ref().map(Result::unwrap).filter(|record| record.rtype() != Rtype::OPT);
        let lines = records.map(|record| {
            let record = record.into_record::<AllRecordData<_, _>>().unwrap().unwrap();
            let owner = record.owner().to_vec().to_string().to_lowercase();
            format!("{owner} {} {} {}", record.ttl().as_secs(), record.rtype(), record.data())
        });
        sections.push(lines.collect());
        match section.next_section().unwrap() {
            Some(next) => section = next,
            None => return (flags, sections),
        }
    }
}

/// Asks over UDP, and repeats the query if no answer arrives: a server that has just started may not listen
/// yet.
fn ask(namespace: &Namespace, port: u16, query: &[u8]) -> (u16, Vec<BTreeSet<String>>) {
    let socket = namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let begun = std::time::Instant::now();
    let mut reply = [0; 4096];
    while begun.elapsed() < PATIENCE {
        let asked = socket.send(query).and_then(|_| socket.recv(&mut reply));
        if let Ok(len) = asked {
            return said(&reply[..len]);
        }
    }
    panic!("port {port} does not answer");
}

#[test]
fn queries_come_one_after_the_other_and_the_zone_is_read_anew() {
    if !root_or_skip() {
        return;
    }
    let mut server = Server::start();
    let www = query("www.example.org", Rtype::A, Class::IN, Some(1232));
    for serial in [1, 77, 78] {
        if serial > 1 {
            server.reload(&zone(serial));
        }
        // The later ones are kept replies, if programs may send them.
        for _ in 0..3 {
            let (_, sections) = ask(&server.namespace, PORT, &www);
            assert!(
                sections[0].contains(&format!("www.example.org 3600 A 192.0.2.{serial}")),
                "{sections:?}"
            );
        }
    }
    let mut stream = server.tcp();
    let names = ["many.example.org", "www.example.org", "nowhere.example.org"].repeat(20);
    let framed = names.iter().map(|name| {
        let query = query(name, Rtype::TXT, Class::IN, None);
        [&(query.len() as u16).to_be_bytes()[..], &query].concat()
    });
    let framed = framed.collect::<Vec<_>>().concat();
    // All of it, except for the last byte.
    let (last, most) = framed.split_last().unwrap();
    stream.write_all(most).unwrap();
    for (number, name) in (1..).zip(&names) {
        if number == names.len() {
            stream.write_all(&[*last]).unwrap();
        }
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut reply).unwrap();
        let (flags, sections) = said(&reply);
        assert_eq!((flags & 0x200, sections[0].len()), (0, if name.starts_with('m') { 60 } else { 0 }));
    }
}

#[test]
fn dig_understands_it() {
    if !root_or_skip() {
        return;
    }
    if peers::find("dig").is_none() {
        skip("dig is not installed (apt-get install bind9-dnsutils)");
        return;
    }
    let server = Server::start();
    let dig = |line: &str| {
        server.run(
            peers::find("dig").unwrap().command(),
            &format!("@127.0.0.1 -p {PORT} +tries=3 +time=5 {line}"),
        )
    };
    assert_eq!(dig("+short www.example.org AAAA"), "2001:db8::2\n");
    assert_eq!(dig("+short +tcp alias.example.org AAAA"), "www.example.org.\n2001:db8::2\n");
    assert_eq!(dig("+short many.example.org TXT").lines().count(), 60, "by TCP, as it does not fit");
    let none = dig("nowhere.example.org A");
    assert!(none.contains("status: NXDOMAIN") && none.contains("flags: qr aa rd;"), "{none}");
    let answer = dig("+noall +answer wWw.example.org AAAA");
    let first: Vec<_> = answer.split_whitespace().collect();
    assert_eq!(first, ["wWw.example.org.", "3600", "IN", "AAAA", "2001:db8::2"]);
    assert!(dig("+edns=1 +noednsneg www.example.org").contains("status: BADVERS"));
    assert!(dig("-c CH -t TXT version.bind").contains("status: REFUSED"));
    assert!(dig("+opcode=NOTIFY example.org SOA").contains("status: NOTIMP"));
}

#[test]
fn dnsperf_has_an_answer_to_each_query_over_both_transports() {
    if !root_or_skip() {
        return;
    }
    let Some(dnsperf) = peers::find("dnsperf") else {
        skip("dnsperf is not installed (apt-get install dnsperf)");
        return;
    };
    let server = Server::start();
    let queries = server.folder.path().join("queries");
    let names = ["www", "alias", "a.w", "nowhere", "sub", "many"];
    let lines = names.iter().map(|name| format!("{name}.example.org A\n"));
    std::fs::write(&queries, lines.collect::<String>()).unwrap();
    for mode in ["udp", "tcp"] {
        let line = format!("-s 127.0.0.1 -p {PORT} -m {mode} -c 2 -n 500 -t 15 -d {}", queries.display());
        let said = server.run(dnsperf.command(), &line);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Queries sent: 3000 Queries completed: 3000 (100.00%)"), "{mode}: {said}");
        assert!(words.contains("NOERROR 2500 (83.33%), NXDOMAIN 500 (16.67%)"), "{mode}: {said}");
    }
}

/// Names of the zone, and others.
const NAMES: [&str; 32] = [
    "@",
    "ns",
    "mail",
    "www",
    "WwW",
    "alias",
    "lost",
    "away",
    "chain",
    "into",
    "_sip._udp",
    "deep.down.there",
    "down.there",
    "there",
    "w",
    "a.w",
    "*.w",
    "A.b.c.w",
    "b.w",
    "a.b.w",
    "y.w",
    "z.y.w",
    "q.to",
    "to",
    "4",
    "new",
    "sub",
    "x.sub",
    "ns.sub",
    "nowhere",
    "a.nowhere",
    "many",
];

const TYPES: [Rtype; 12] = [
    Rtype::A,
    Rtype::AAAA,
    Rtype::NS,
    Rtype::SOA,
    Rtype::CNAME,
    Rtype::MX,
    Rtype::TXT,
    Rtype::PTR,
    Rtype::SRV,
    Rtype::CAA,
    Rtype::DS,
    Rtype::from_int(65280),
];

/// nsd, with the zone of that server.
fn start_nsd(server: &Server, nsd: &peers::Program) -> Other {
    let place_of = server.folder.path().to_str().unwrap();
    let config = format!(
        "server:\n ip-address: 127.0.0.1\n port: {OTHER_PORT}\n username: \"\"\n chroot: \"\"\n database: \"\"\n \
         pidfile: \"{place_of}/pid\"\n zonesdir: \"{place_of}\"\n zonelistfile: \"{place_of}/zones\"\n \
         xfrdfile: \"{place_of}/xfrd\"\n xfrdir: \"{place_of}\"\n rrl-ratelimit: 0\n minimal-responses: yes\n\
         remote-control:\n control-enable: no\nzone:\n name: \"example.org\"\n zonefile: \"zone\"\n"
    );
    let file = server.folder.path().join("nsd.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = nsd.command();
    command.args(["-d", "-c"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    within(&server.namespace, &mut command);
    Other(command.spawn().unwrap())
}

#[test]
fn nsd_answers_the_same_from_the_same_zone() {
    if !root_or_skip() {
        return;
    }
    let Some(nsd) = peers::find("nsd") else {
        skip("nsd is not installed (apt-get install nsd, or make test, which unpacks it)");
        return;
    };
    let server = Server::start();
    let _other = start_nsd(&server, &nsd);
    let mut asked = 0;
    for name in NAMES {
        let name = if name == "@" { "example.org".to_owned() } else { format!("{name}.example.org") };
        for (rtype, edns) in TYPES.iter().flat_map(|rtype| [(*rtype, None), (*rtype, Some(1232))]) {
            let query = query(&name, rtype, Class::IN, edns);
            let [(flags, mut ours), (others_flags, mut others)] =
                [PORT, OTHER_PORT].map(|port| ask(&server.namespace, port, &query));
            assert_eq!(flags, others_flags, "{name} {rtype}: head");
            // Answers that do not fit are requested over TCP, whatever part of them was sent.
            if flags & 0x200 != 0 {
                continue;
            }
            // A server may choose which additional addresses it sends, except for those of a delegation.
            if !ours[0].is_empty() {
                [&mut ours, &mut others].into_iter().for_each(|sections| sections.truncate(2));
            }
            assert_eq!(ours, others, "{name} {rtype}");
            asked += 1;
        }
    }
    for (name, class) in [("www.example.com", Class::IN), ("org", Class::IN), (".", Class::IN)] {
        let query = query(name, Rtype::A, class, None);
        let [ours, others] = [PORT, OTHER_PORT].map(|port| ask(&server.namespace, port, &query));
        assert_eq!(ours.0 & 15, others.0 & 15, "{name}");
    }
    assert!(asked > 700, "{asked}");
}

/// A server that ends with the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // Its child processes end with it when it is asked to end.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}
