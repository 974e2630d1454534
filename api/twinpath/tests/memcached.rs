//! Tests the memcached example: its parser, its store, and the service in simulation, also against Debian's
//! memcached.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../examples/memcached/calendar.rs"]
mod calendar;
mod peers;
#[path = "../examples/memcached/protocol.rs"]
mod protocol;
#[path = "../examples/memcached/reply.rs"]
mod reply;
#[path = "../examples/memcached/service.rs"]
mod service;
#[path = "../examples/memcached/store.rs"]
mod store;
#[path = "../examples/memcached/table.rs"]
mod table;
#[path = "../examples/memcached/udp.rs"]
mod udp;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use calendar::Calendar;
use protocol::{Parsed, parse};
use service::{CONNECTION_BYTES, Memcached};
use store::{Outcome, Store, VALUE_MAX, When};
use twinpath::test::{Network, Simulation};
use twinpath::{Duration, Instant, KeptReplies, Reason, TcpLimits};
use twinpath_test_rig::skip;

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn simulation(network: Network) -> Simulation<Memcached> {
    let limits = TcpLimits { connection_bytes: CONNECTION_BYTES, ..TcpLimits::default() };
    Simulation::on(network, Memcached::new(8 * MIB)).limits(&limits)
}

/// The output of a new service for these bytes on a connection, cut into segments of at most this many
/// bytes.
fn said_to(input: &[u8], segment_bytes: usize) -> Vec<u8> {
    let mut simulation = simulation(Network { segment_bytes, ..Network::default() });
    let peer = simulation.new_peer();
    let client = simulation.connect(peer).unwrap();
    simulation.write(client, input);
    simulation.settle();
    simulation.read(client)
}

/// Requests, and the replies of memcached 1.6.18.
#[allow(clippy::too_many_lines, reason = "a table of requests and replies")]
fn script() -> Vec<(String, String)> {
    let (most, long, large) = ("k".repeat(250), "k".repeat(251), "x".repeat(VALUE_MAX + 1));
    let pairs = [
        ("get\r\n", "ERROR\r\n"),
        ("\r\n", "ERROR\r\n"),
        ("foo\r\nGET a\r\nget\ta\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
        ("get a\r\ngets a b\r\nget a\nget a\r\r\n", "END\r\nEND\r\nEND\r\nEND\r\n"),
        ("set a 7 0 3\r\nabc\r\nget a\r\n", "STORED\r\nVALUE a 7 3\r\nabc\r\nEND\r\n"),
        (" get  a  b \r\n", "VALUE a 7 3\r\nabc\r\nEND\r\n"),
        ("get a a\r\n", "VALUE a 7 3\r\nabc\r\nVALUE a 7 3\r\nabc\r\nEND\r\n"),
        ("set b 0 0 4\r\n\r\n\n\0\r\nget b\r\n", "STORED\r\nVALUE b 0 4\r\n\r\n\n\0\r\nEND\r\n"),
        ("set b 4294967295 0 0\r\n\r\nget b\r\n", "STORED\r\nVALUE b 4294967295 0\r\n\r\nEND\r\n"),
        ("set b 0 0 1 noreply\r\nx\r\nget b\r\n", "VALUE b 0 1\r\nx\r\nEND\r\n"),
        ("set b 0 0 1 norepl\r\ny\r\n", "STORED\r\n"),
        ("set k 0 0\r\n", "ERROR\r\n"),
        ("set k 0 0 3 4 5\r\nabc\r\n", "ERROR\r\nERROR\r\n"),
        ("set k x 0 3\r\nabc\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("set k 0 x 3\r\nabc\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("set k 0 0 -1\r\nabc\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("set k 0 0 2147483647\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("set k 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("set k 0 0 3 noreply\r\nabcd\r\n", "ERROR\r\n"),
        ("set k 0 0 3\r\nab\r\n\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("add a 1 0 1\r\nx\r\nadd c 1 0 1\r\ny\r\n", "NOT_STORED\r\nSTORED\r\n"),
        ("replace c 2 0 1\r\nz\r\nreplace d 2 0 1\r\nz\r\n", "STORED\r\nNOT_STORED\r\n"),
        ("get c d\r\n", "VALUE c 2 1\r\nz\r\nEND\r\n"),
        ("cas c 0 0 1 99999\r\nq\r\ncas d 0 0 1 1\r\nq\r\n", "EXISTS\r\nNOT_FOUND\r\n"),
        ("cas c 0 0 1\r\nq\r\n", "ERROR\r\nERROR\r\n"),
        ("cas c 0 0 1 x\r\nq\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("set n 5 0 2\r\n10\r\nincr n 1\r\ndecr n 5\r\n", "STORED\r\n11\r\n6\r\n"),
        (
            "get n\r\nincr n 100\r\nget n\r\n",
            "VALUE n 5 2\r\n6 \r\nEND\r\n106\r\nVALUE n 5 3\r\n106\r\nEND\r\n",
        ),
        ("decr n 1000\r\nget n\r\n", "0\r\nVALUE n 5 3\r\n0  \r\nEND\r\n"),
        ("incr n\r\nincr n 1 2\r\n", "ERROR\r\n1\r\n"),
        ("incr n 18446744073709551615\r\nincr n 1\r\n", "0\r\n1\r\n"),
        ("incr n 5 noreply\r\nget n\r\n", "VALUE n 5 3\r\n6  \r\nEND\r\n"),
        ("incr none 1\r\n", "NOT_FOUND\r\n"),
        (
            "incr n -1\r\nincr n x\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("set s 0 0 2\r\n 1\r\nincr s 1\r\n", "STORED\r\n2\r\n"),
        (
            "set s 0 0 0\r\n\r\nincr s 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        ("touch k\r\ntouch k 1\r\ntouch c 10\r\n", "ERROR\r\nNOT_FOUND\r\nTOUCHED\r\n"),
        ("touch c x\r\ntouch c 0 0 0\r\n", "CLIENT_ERROR invalid exptime argument\r\nERROR\r\n"),
        ("touch c -1\r\nget c\r\n", "TOUCHED\r\nEND\r\n"),
        ("set c 0 -1 1\r\nx\r\nget c\r\ndelete c\r\n", "STORED\r\nEND\r\nNOT_FOUND\r\n"),
        ("set c 0 2592001 1\r\nx\r\nget c\r\n", "STORED\r\nEND\r\n"),
        ("set c 0 2592000 1\r\nx\r\nget c\r\n", "STORED\r\nVALUE c 0 1\r\nx\r\nEND\r\n"),
        ("delete c\r\ndelete c\r\ndelete c 0\r\n", "DELETED\r\nNOT_FOUND\r\nNOT_FOUND\r\n"),
        ("delete c 1\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
        ("delete a 0 noreply\r\ndelete a b c d\r\nget a\r\ndelete\r\n", "ERROR\r\nEND\r\nERROR\r\n"),
        ("verbosity 1\r\nverbosity\r\nverbosity 1 noreply\r\n", "OK\r\nERROR\r\n"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("flush_all noreply\r\nget b n s\r\nflush_all\r\n", "END\r\nOK\r\n"),
    ];
    let mut script: Vec<_> = pairs.map(|(asked, said)| (asked.to_owned(), said.to_owned())).to_vec();
    for (asked, said) in [
        (
            format!("set {most} 0 0 1\r\nx\r\nget {most}\r\n"),
            format!("STORED\r\nVALUE {most} 0 1\r\nx\r\nEND\r\n"),
        ),
        (
            format!("get {most} {long}\r\ndelete {long}\r\n"),
            "CLIENT_ERROR bad command line format\r\n".repeat(2),
        ),
        (
            format!("set {long} 0 0 3\r\nabc\r\n"),
            "CLIENT_ERROR bad command line format\r\nERROR\r\n".to_owned(),
        ),
        (
            format!("set o 0 0 1\r\nx\r\nset o 0 0 {}\r\n{large}\r\nget o\r\n", VALUE_MAX + 1),
            "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n".to_owned(),
        ),
        (format!("set o 0 0 {} noreply\r\n{large}\r\nget o\r\n", VALUE_MAX + 1), "END\r\n".to_owned()),
    ] {
        script.push((asked, said));
    }
    script
}

#[test]
fn requests_are_answered_as_memcached_answers_them() {
    let mut simulation = simulation(Network::default());
    let peer = simulation.new_peer();
    let client = simulation.connect(peer).unwrap();
    for (asked, said) in script() {
        simulation.write(client, asked.as_bytes());
        simulation.settle();
        let shown: String = asked.chars().take(100).collect();
        assert_eq!(String::from_utf8_lossy(&simulation.read(client)), said, "{shown:?}");
    }
    simulation.write(client, b"version\r\nquit\r\nget a\r\n");
    simulation.settle();
    assert_eq!(simulation.read(client), b"VERSION twinpath\r\n");
    assert!(simulation.is_finished(client));
}

#[test]
fn the_reply_does_not_depend_on_where_requests_are_cut() {
    // Input as long as a value is cut in the next test.
    let script: Vec<_> = script().into_iter().filter(|(asked, _)| asked.len() < 4096).collect();
    let asked: String = script.iter().map(|(asked, _)| asked.as_str()).collect();
    let said: String = script.iter().map(|(_, said)| said.as_str()).collect();
    for segment_bytes in [1, 2, 3, 7, 64, 1000, usize::MAX] {
        assert_eq!(
            String::from_utf8_lossy(&said_to(asked.as_bytes(), segment_bytes)),
            said,
            "{segment_bytes}"
        );
    }
    for cut in 0..asked.len() {
        let mut simulation = simulation(Network::default());
        let peer = simulation.new_peer();
        let client = simulation.connect(peer).unwrap();
        for part in [&asked[..cut], &asked[cut..]] {
            simulation.write(client, part.as_bytes());
            simulation.settle();
        }
        assert_eq!(String::from_utf8_lossy(&simulation.read(client)), said, "cut at {cut}");
    }
}

#[test]
fn large_values_are_stored_and_read_by_clients_that_take_little_at_a_time() {
    let mut simulation = simulation(Network { segment_bytes: 50_000, ..Network::default() });
    let peer = simulation.new_peer();
    let client = simulation.connect(peer).unwrap();
    let value: Vec<u8> = (0..VALUE_MAX).map(|at| (at % 253) as u8).collect();
    let line = format!(" 3 0 {VALUE_MAX}\r\n");
    let mut expected = Vec::new();
    for key in ["a", "b", "c"] {
        simulation.write(client, &[b"set ", key.as_bytes(), line.as_bytes(), &value, b"\r\n"].concat());
        expected.extend([format!("VALUE {key} 3 {VALUE_MAX}\r\n").as_bytes(), &value, b"\r\n"].concat());
    }
    simulation.settle();
    assert_eq!(simulation.read(client), b"STORED\r\n".repeat(3));
    // Three values are longer than any output, so the requests after them wait.
    simulation.set_window(client, 0);
    simulation.write(client, b"get a none b c\r\nversion\r\nget none\r\n");
    let mut read = Vec::new();
    for _ in 0..400 {
        simulation.set_window(client, 10_000);
        simulation.settle();
        read.extend(simulation.read(client));
    }
    expected.extend(b"END\r\nVERSION twinpath\r\nEND\r\n");
    assert_eq!(read.len(), expected.len());
    assert!(read == expected);
}

#[test]
fn a_line_without_an_end_closes_the_connection_and_many_keys_do_not() {
    for (input, closed) in
        [(b"x".repeat(5000), true), (b"get ".repeat(20_000), true), (b"get ".repeat(15_000), false)]
    {
        let mut simulation = simulation(Network::default());
        let peer = simulation.new_peer();
        let client = simulation.connect(peer).unwrap();
        simulation.write(client, &input);
        simulation.write(client, b"\r\n");
        simulation.settle();
        assert_eq!(simulation.is_finished(client), closed, "{} bytes", input.len());
        simulation.finish(client);
        simulation.settle();
        assert_eq!(simulation.dropped(Reason::ProtocolError), u64::from(closed));
        assert_eq!(simulation.read(client), if closed { &b""[..] } else { b"END\r\n" });
    }
}

#[test]
fn no_bytes_make_it_fail_and_a_part_is_no_other_command() {
    let whole = b"set key 1 0 5\r\nvalue\r\nget key other\r\ncas key 0 0 1 7 noreply\r\nx\r\nincr key 4\r\ndelete key noreply\r\n\
        touch key 3\r\nflush_all\r\nversion\r\n";
    let mut random = fastrand::Rng::with_seed(18);
    for _ in 0..20_000 {
        let mut input = whole.to_vec();
        for _ in 0..random.usize(..4) {
            let at = random.usize(..input.len());
            input[at] = random.u8(..);
        }
        let mut rest = input.as_slice();
        while let Parsed::Whole { len, .. } | Parsed::Wrong { len, .. } = parse(rest) {
            let cut = random.usize(..len);
            assert!(len <= rest.len() && matches!(parse(&rest[..cut]), Parsed::Partial), "{rest:?} at {cut}");
            rest = &rest[len..];
        }
    }
}

fn store(bytes_max: usize) -> Store {
    Store::new(bytes_max, KeptReplies::new(&[service::BY_ID]))
}

#[test]
fn memory_is_bounded_and_what_was_read_lately_stays() {
    let (store, now) = (store(4 * MIB), Instant::ZERO + SECOND);
    let value = vec![0; 10_000];
    let key = |number: u32| number.to_be_bytes();
    for number in 0..5000 {
        assert_eq!(store.store(now, When::Always, &key(number), 0, Instant::NEVER, &value), Outcome::Stored);
        // The first one is read throughout.
        assert!(store.get(now, &key(0)).is_some(), "{number}");
    }
    // Without a mark of their own, as `get` would set.
    let there = (0..5000).filter(|number| store.get(now, &key(*number)).is_some()).count();
    assert!((350..=4 * MIB / 10_000).contains(&there), "{there}");
    assert!(store.get(now, &key(4999)).is_some() && store.get(now, &key(1)).is_none());
    // An item of the maximum size has room, too.
    store.store(now, When::Always, b"large", 0, Instant::NEVER, &vec![1; VALUE_MAX]);
    assert_eq!(store.get(now, b"large").unwrap().value.len(), VALUE_MAX);
    store.clear();
    assert!(store.get(now, b"large").is_none());
}

#[test]
fn what_is_over_makes_room_first() {
    let (store, now) = (store(4 * MIB), Instant::ZERO + SECOND);
    let value = vec![0; 100_000];
    for number in 0..36_u8 {
        let until = if number % 2 == 0 { now + SECOND } else { Instant::NEVER };
        store.store(now, When::Always, &[number], 0, until, &value);
        store.get(now, &[number]);
    }
    let later = now + SECOND;
    for number in 100..110 {
        store.store(later, When::Always, &[number], 0, Instant::NEVER, &value);
    }
    assert!((0..36).all(|number: u8| store.get(later, &[number]).is_some() == (number % 2 == 1)));
}

#[test]
fn values_end_with_their_time() {
    let mut simulation = simulation(Network::default());
    let peer = simulation.new_peer();
    let client = simulation.connect(peer).unwrap();
    simulation.write(client, b"set a 0 3 1\r\nx\r\nset b 0 3 1\r\nx\r\ntouch b 10\r\n");
    simulation.advance(Duration::from_secs(2));
    simulation.write(client, b"get a b\r\n");
    simulation.advance(SECOND);
    simulation.write(client, b"get a b\r\n");
    simulation.advance(Duration::from_secs(8));
    simulation.write(client, b"get a b\r\n");
    simulation.settle();
    let said = "STORED\r\nSTORED\r\nTOUCHED\r\nVALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\nVALUE b 0 1\r\nx\r\nEND\r\nEND\r\n";
    assert_eq!(String::from_utf8_lossy(&simulation.read(client)), said);
}

#[test]
fn dates_are_times_of_the_clock() {
    let at = Instant::ZERO + Duration::from_secs(100);
    let (calendar, now) = (Calendar::new(at, 1_700_000_000), at + SECOND);
    assert_eq!(calendar.until(now, 0), Instant::NEVER);
    assert_eq!(calendar.until(now, 60), now + Duration::from_secs(60));
    assert_eq!(calendar.until(now, 1_700_000_060), at + Duration::from_secs(60));
    assert!(calendar.until(now, 1_699_999_999) <= now && calendar.until(now, -1) <= now);
    assert!(calendar.until(now, i64::MAX) > now);
}

/// The answer to a request in a datagram: the headers, and everything after them.
fn ask(simulation: &mut Simulation<Memcached>, header: [u8; 8], request: &[u8]) -> (Vec<[u8; 8]>, Vec<u8>) {
    let peer = simulation.new_peer();
    let (mut headers, mut said) = (Vec::new(), Vec::new());
    for datagram in simulation.ask(peer, &[&header, request].concat()) {
        assert!(datagram.len() <= 1400, "{}", datagram.len());
        headers.push(datagram[..8].try_into().unwrap());
        said.extend_from_slice(&datagram[8..]);
    }
    (headers, said)
}

#[test]
fn replies_have_as_many_datagrams_as_they_take() {
    let mut simulation = simulation(Network::default());
    let header = [9, 7, 0, 0, 0, 1, 0, 0];
    for len in [0, 1, 1300, 1392, 5000, 60_000] {
        let value = vec![b'y'; len];
        let set = [format!("set a 0 0 {len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert_eq!(ask(&mut simulation, header, &set), (vec![header], b"STORED\r\n".to_vec()));
        let expected = [format!("VALUE a 0 {len}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
        let of = expected.len().div_ceil(1392) as u8;
        let headers: Vec<_> = (0..of).map(|number| [9, 7, 0, number, 0, of, 0, 0]).collect();
        assert_eq!(ask(&mut simulation, header, b"get a\r\n"), (headers, expected));
    }
    let (headers, said) = ask(&mut simulation, header, b"get a a\r\n");
    assert_eq!(
        (headers, said),
        (vec![header], b"SERVER_ERROR too much for datagrams: ask over TCP\r\n".to_vec())
    );
}

#[test]
fn commands_in_datagrams_are_answered_and_all_else_is_not() {
    let (mut simulation, mut by_stream) = (simulation(Network::default()), simulation(Network::default()));
    let header = [1, 2, 0, 0, 0, 1, 0, 0];
    let peer = by_stream.new_peer();
    let client = by_stream.connect(peer).unwrap();
    let mut random = fastrand::Rng::with_seed(20);
    let random = (0..20).map(|_| requests(&mut random)).collect::<String>();
    let mut rest = random.as_bytes();
    while let Parsed::Whole { len, .. } | Parsed::Wrong { len, .. } = parse(rest) {
        let (asked, behind) = rest.split_at(len);
        rest = behind;
        let said = ask(&mut simulation, header, asked);
        if said != (Vec::new(), Vec::new()) {
            by_stream.write(client, asked);
            by_stream.settle();
            assert_eq!(said, (vec![header], by_stream.read(client)), "{:?}", String::from_utf8_lossy(asked));
        } else if !asked.starts_with(b"foo") {
            by_stream.write(client, asked);
            by_stream.settle();
            let said = by_stream.read(client);
            assert!(said.is_empty() || said == b"ERROR\r\n", "{:?}", String::from_utf8_lossy(asked));
        }
    }
    let before = simulation.dropped(Reason::ProtocolError);
    assert!(before > 0 && ask(&mut simulation, header, b"flush_all\r\n").1 == b"OK\r\n");
    let nothing = (Vec::new(), Vec::new());
    // No command; no command but two words; no end; more than one datagram; replies of another server.
    for asked in
        ["foo\r\n", "version\r\nversion\r\n", "get a", "ERROR\r\n", "END\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"]
    {
        assert_eq!(ask(&mut simulation, header, asked.as_bytes()), nothing, "{asked:?}");
    }
    assert_eq!(ask(&mut simulation, [1, 2, 0, 0, 0, 2, 0, 0], b"get a\r\n"), nothing);
    assert_eq!(ask(&mut simulation, [1, 2, 0, 1, 0, 1, 0, 0], b"get a\r\n"), nothing);
    assert_eq!(simulation.dropped(Reason::ProtocolError) - before, 8);
    let peer = simulation.new_peer();
    assert!(simulation.ask(peer, &[0; 7]).is_empty());
    assert_eq!(ask(&mut simulation, header, b"set a 0 0 1 noreply\r\nx\r\n"), nothing);
    assert_eq!(
        ask(&mut simulation, header, b"get a\r\n"),
        (vec![header], b"VALUE a 0 1\r\nx\r\nEND\r\n".to_vec())
    );
}

/// Random requests with few keys, so that they collide.
fn requests(random: &mut fastrand::Rng) -> String {
    let number = |random: &mut fastrand::Rng| {
        random.choice(["0", "1", "7", "99", "18446744073709551615", "x", ""]).unwrap()
    };
    let mut text = String::new();
    for _ in 0..40 {
        let key = random.choice(["a", "b", "c", "d"]).unwrap();
        let quiet = random.choice(["", "", " noreply"]).unwrap();
        let name = random
            .choice(["set", "add", "replace", "cas", "get", "incr", "decr", "touch", "delete", "foo"])
            .unwrap();
        text += &match name {
            "set" | "add" | "replace" | "cas" => {
                let value =
                    random.choice(["", "5", "12345", "abc", "18446744073709551610", "a\r\nb"]).unwrap();
                // Sometimes too short or too long.
                let bytes = if random.u8(..) < 16 { random.usize(..9) } else { value.len() };
                let cas = if name == "cas" { " 999999" } else { "" };
                let exptime = random.choice(["0", "-1", "100", "y"]).unwrap();
                format!("{name} {key} {} {exptime} {bytes}{cas}{quiet}\r\n{value}\r\n", random.u16(..))
            }
            "get" => format!("get {key} b {key}\r\n"),
            "incr" | "decr" => format!("{name} {key} {}{quiet}\r\n", number(random)),
            "touch" => format!("touch {key} {}{quiet}\r\n", random.choice(["0", "-1", "100", "z"]).unwrap()),
            "delete" => format!("delete {key}{quiet}\r\n"),
            other => format!("{other} {key}\r\n"),
        };
    }
    // Whatever was cut short by a wrong length ends here.
    text + "\r\n\r\nflush_all\r\nverbosity 0\r\n"
}

#[test]
fn random_requests_are_answered_as_debians_memcached_answers_them() {
    let Some(program) = peers::find("memcached") else {
        skip("memcached is not installed (apt-get install memcached)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut child = program
        .command()
        .args(["-u", "root", "-s"])
        .arg(&socket)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed().as_secs() < 20, "memcached did not start");
        std::thread::yield_now();
    }
    let mut random = fastrand::Rng::with_seed(19);
    let mut replies = Vec::new();
    for _ in 0..200 {
        let asked = requests(&mut random);
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(asked.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        replies.push((asked, said));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (asked, said) in replies {
        let ours = said_to(asked.as_bytes(), random.usize(1..60));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&said), "{asked}");
    }
}
