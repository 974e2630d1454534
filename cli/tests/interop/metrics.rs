//! Tests of metrics as a scraper reads them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

fn connect(rig: &Rig, address: SocketAddr) -> TcpStream {
    let stream = rig.server.run(|| TcpStream::connect(address)).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What Prometheus accepts.
const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

/// Head and body of the answer.
fn get(rig: &Rig, address: SocketAddr, path: &str) -> (String, String) {
    get_as(rig, address, path, ACCEPT)
}

/// The same for a scraper that accepts this.
fn get_as(rig: &Rig, address: SocketAddr, path: &str, accept: &str) -> (String, String) {
    let mut stream = connect(rig, address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: twinpath\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it closes after the answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// One of the metrics that a server offers.
pub(crate) fn scraped(rig: &Rig, server: &Server, wanted: &str) -> f64 {
    metric(&get(rig, offered(server), "/metrics").1, wanted)
}

fn offered(server: &Server) -> SocketAddr {
    server.ready["metrics"].as_str().expect("it says where").parse().expect("an address")
}

/// The value of the one metric with this prefix.
fn metric(text: &str, wanted: &str) -> f64 {
    let mut found = text.lines().filter_map(|line| line.strip_prefix(wanted)?.strip_prefix(' '));
    let value = found.next().unwrap_or_else(|| panic!("{wanted} is not in\n{text}"));
    value.parse().expect("a number")
}

#[test]
fn a_scrape_of_a_real_instance_is_what_the_document_says() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--metrics", "0", "--mode", "interrupt"]);
    let address = offered(&server);
    assert!(address.ip().is_loopback());
    let client = rig.client_udp(CLIENT, 0);
    until("replies leave by the fast path", || {
        ask(&client, SERVER, PORT, b"count me");
        server.worker("frames_out") >= 10
    });
    let (head, text) = get(&rig, address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
    assert!(text.ends_with("# EOF\n"));

    // Names, types and descriptions are exactly those of the document.
    let lines = |prefix: &str| {
        text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(' ')).collect::<Vec<_>>()
    };
    let (kinds, sentences) = (lines("# TYPE "), lines("# HELP "));
    let mut scraped = BTreeSet::new();
    for ((name, kind), (named, help)) in kinds.into_iter().zip(sentences) {
        assert_eq!(name, named);
        assert!(DOCUMENT.contains(&format!("| `{name}` | {kind} | {help} |")), "{name} is documented");
        scraped.insert(name);
    }
    let documented = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `twinpath_")?.split_once('`'));
    assert_eq!(documented.count(), scraped.len());

    let count = |name: &str| metric(&text, name);
    assert!(count("twinpath_queue_frames_sent_total{interface=\"vs\",queue=\"0\",worker=\"0\"}") >= 10.0);
    assert!(count("twinpath_service_requests_total{service=\"echo\",path=\"fast\"}") >= 10.0);
    assert!(count("twinpath_worker_service_time_seconds_count{worker=\"0\"}") >= 10.0);
    assert!(count("twinpath_verdicts_total{verdict=\"claimed\"}") >= 10.0);
    assert_eq!(count("twinpath_interface_path{interface=\"vs\",path=\"packet\"}"), 1.0);
    assert_eq!(count("twinpath_interface_up{interface=\"vs\"}"), 1.0);
    assert_eq!(count("twinpath_claim_fast{service=\"echo\",claim=\"udp port 7007\"}"), 1.0);
    assert_eq!(count("twinpath_claim_fast{service=\"echo\",claim=\"tcp port 7007\"}"), 0.0);
    let (head, text) = get_as(&rig, address, "/metrics", "text/plain;version=0.0.4, */*;q=0.1");
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(
        text.contains("# TYPE twinpath_service_requests_total counter\n") && !text.contains("# EOF"),
        "{text}"
    );
    assert!(metric(&text, "twinpath_verdicts_total{verdict=\"claimed\"}") >= 10.0);
    assert!(get(&rig, address, "/").0.starts_with("HTTP/1.1 404"));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn scrapers_that_never_read_or_are_many_are_bounded_and_cost_the_service_nothing() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--metrics", "127.0.0.1:0"]);
    let address = offered(&server);
    // Some send a request and never read, most do not even send one.
    let mut held: Vec<_> = (0..40).map(|_| connect(&rig, address)).collect();
    for deaf in &mut held[..4] {
        let _ = deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    let client = rig.client_udp(CLIENT, 0);
    for _ in 0..200 {
        assert_eq!(ask(&client, SERVER, PORT, b"meanwhile"), b"meanwhile");
    }
    until("those beyond the limit are let go", || server.drops("metrics_clients") >= 20);
    drop(held);
    until("there is room again", || get_quietly(&rig, address).is_some_and(|answer| answer.ends_with('\n')));
    let mut odd = connect(&rig, address);
    odd.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = odd.read_to_end(&mut said);
    assert!(get(&rig, address, "/metrics").1.ends_with("# EOF\n"));
}

/// As [`get`], from a server that may close at once.
fn get_quietly(rig: &Rig, address: SocketAddr) -> Option<String> {
    let mut stream = connect(rig, address);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_port_in_use_ends_the_start_and_names_its_holder() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let taken = rig.server.run(|| TcpListener::bind("127.0.0.1:9464")).unwrap().unwrap();
    let said = rig.try_serve(&["--metrics", "9464"]).err().expect("refused");
    let pid = format!("pid {}", std::process::id());
    assert!(said.contains("127.0.0.1:9464") && said.contains(&pid) && said.contains("--metrics"), "{said}");
    drop(taken);
    let said = rig.try_serve(&["--metrics", "192.0.2.1:9464"]).err().expect("refused");
    assert!(said.contains("192.0.2.1:9464"), "{said}");
}
