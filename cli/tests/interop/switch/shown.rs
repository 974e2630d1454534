//! Tests of what a switch shows: ports, addresses, metrics, captures.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tempfile::NamedTempFile;
use twinpath_test_rig::{skip, within};

use super::traffic::bulk;
use super::{Site, address, terminate};
use crate::capture::read;
use crate::rig::{Server, kill, until};
use crate::root_or_skip;

fn shown(switch: &Server, topic: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_twinpath"))
        .args(["show", topic, "--socket"])
        .arg(&switch.socket)
        .output()
        .expect("twinpath runs");
    assert!(output.status.success(), "show {topic}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ports_and_addresses_are_shown_and_counted() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let arguments =
        ["sw0", "--port", "p1,mac_limit=7", "--port", "p2", "--port", "tap:vm0", "--metrics", "0"];
    let switch = site.switch(&[&arguments[..], &["--static", "02:00:00:00:00:01,p2"]].concat());
    site.passes(1, 2);
    // The answer may be here before the worker has counted the frame that asked.
    let mut ports = switch.show("ports");
    until("the frames of both ports are counted", || {
        ports = switch.show("ports");
        ports[0]["frames_in"].as_u64().unwrap() > 1 && ports[1]["bytes_out"].as_u64().unwrap() > 60
    });
    let names: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| (&port["name"], &port["state"])).collect();
    assert_eq!(
        names,
        [(&"p1".into(), &"up".into()), (&"p2".into(), &"up".into()), (&"tap:vm0".into(), &"gone".into())]
    );
    assert_eq!(ports[0]["addresses"], 1);
    let text = shown(&switch, "ports");
    assert!(
        text.contains("switch sw0 without VLANs") && text.contains("tap:vm0: the interface is not there"),
        "{text}"
    );

    let macs = switch.show("macs");
    let macs = macs.as_array().unwrap();
    let found = |port: &str, is_static: bool| {
        macs.iter().filter(|mac| mac["port"] == port && mac["age_s"].is_null() == is_static).count()
    };
    assert_eq!((found("p1", false), found("p2", false), found("p2", true)), (1, 1, 1), "{macs:?}");
    assert!(shown(&switch, "macs").contains("static"));
    assert!(shown(&switch, "config").contains("mac_limit"));

    let address = switch.ready["metrics"].as_str().expect("an address").to_owned();
    let scrape = || {
        let mut stream = site.rig.server.run(|| TcpStream::connect(&address)).unwrap().unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = scrape();
    for line in [
        "twinpath_switch_port_up{port=\"p1\"} 1",
        "twinpath_switch_port_up{port=\"tap:vm0\"} 0",
        "twinpath_switch_port_addresses{port=\"p1\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_capture_has_the_frames_of_one_port() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    let capture = |port: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(["capture", "--on", port, "-w", "-", "--socket"]).arg(&switch.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let refused = capture("p9").output().expect("it runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no port p9; there is p1, p2, p3"));
    let mut running = capture("p2").args(["-c", "2", "udp"]).spawn();
    let running = running.as_mut().expect("it runs");
    until("the capture has two frames of its port", || {
        site.tries(1, 3);
        site.passes(1, 2);
        running.try_wait().expect("waits").is_some()
    });
    let mut file = Vec::new();
    running.stdout.take().expect("piped").read_to_end(&mut file).expect("read");
    // The address of host 3 is in no frame of port 2.
    let address = [10, 8, 0, 3];
    assert!(
        file.windows(4).any(|window| window == [10, 8, 0, 2])
            && !file.windows(4).any(|window| window == address)
    );
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_capture_keeps_all_of_super_frames() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
    site.passes(1, 2);
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    command.args(["capture", "--on", "p1", "-w", "-", "--socket"]).arg(&switch.socket);
    let running = command.args(["-c", "200", "tcp"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut running = running.expect("it runs");
    let stdout = running.stdout.take().expect("piped");
    let reading = std::thread::spawn(move || read(stdout));
    until("200 frames of TCP are captured", || {
        bulk(&site, 1, 2, &address(2));
        running.try_wait().expect("waits").is_some()
    });
    let (frames, _) = reading.join().expect("read");
    assert!(frames.iter().any(|frame| frame.original_len > 16_000), "there were super-frames");
    for frame in frames {
        assert_eq!(frame.bytes.len(), frame.original_len as usize);
    }
    assert_eq!(terminate(switch), Some(0));
}

/// A program that writes a capture of port `p1` to a file, in the switch's namespace.
struct Captures {
    child: Child,
    file: NamedTempFile,
}

impl Captures {
    fn start(site: &Site, command: &mut Command) -> Self {
        let file = NamedTempFile::new().expect("a file");
        command.stdin(Stdio::null()).stdout(file.reopen().expect("open")).stderr(Stdio::null());
        within(&site.rig.server, command);
        Self { child: command.spawn().expect("it runs"), file }
    }

    fn has(&self, words: &str) -> bool {
        let bytes = std::fs::read(self.file.path()).expect("read");
        bytes.windows(words.len()).any(|window| window == words.as_bytes())
    }
}

#[test]
fn a_capture_wants_the_tagged_frames_that_tcpdump_wants() {
    if !root_or_skip() {
        return;
    }
    // UDP to port 7, of which nobody looks at the checksums.
    const DATAGRAM: [u8; 30] =
        [8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 7, 0, 8, 0, 0];
    const FILTERS: [&str; 4] =
        ["udp", "vlan 5 and udp", "vlan and vlan 6 and port 7", "ether proto 0x8100 or ether proto 0x88a8"];
    let tags: [&[u8]; 6] = [
        &[],
        &[0x81, 0, 0, 5],
        &[0x88, 0xa8, 0, 5],
        &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
        &[0x91, 0, 0, 5],
        &[0x81, 0, 0, 5, 0x81, 0, 0, 6],
    ];
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return skip("tcpdump is not installed: what a capture wants could not be compared with it");
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
    let host = site.listen(1);
    let send = |parts: &[&[u8]]| {
        let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        host.send(&[&addresses[..], &parts.concat(), &[0; 40]].concat()).expect("sent");
    };
    let mut captures = Vec::new();
    for filter in FILTERS {
        let mut ours = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        ours.args(["capture", "--on", "p1", "-w", "-", filter, "--socket"]).arg(&switch.socket);
        let mut theirs = Command::new("tcpdump");
        theirs.args(["-i", "p1", "-Q", "in", "--immediate-mode", "-U", "-w", "-", filter]);
        captures.push([&mut ours, &mut theirs].map(|command| Captures::start(&site, command)));
    }
    for word in ["begun", "ended"] {
        until(&format!("all of them have '{word}'"), || {
            // Each filter wants one of them.
            tags.iter().for_each(|tag| send(&[tag, &DATAGRAM, word.as_bytes()]));
            captures.as_flattened().iter().all(|capture| capture.has(word))
        });
        for (number, tag) in tags.iter().enumerate().filter(|_| word == "begun") {
            send(&[tag, &DATAGRAM, format!("frame {number}").as_bytes()]);
        }
    }
    let mut wanted = 0;
    for (filter, [ours, theirs]) in FILTERS.iter().zip(&captures) {
        for (number, tag) in tags.iter().enumerate() {
            let word = format!("frame {number}");
            assert_eq!(ours.has(&word), theirs.has(&word), "`{filter}`: tags {tag:02x?}");
            wanted += usize::from(theirs.has(&word));
        }
    }
    assert!(wanted >= 6, "{wanted} were wanted");
    captures.into_iter().flatten().for_each(|capture| kill(capture.child));
    assert_eq!(terminate(switch), Some(0));
}
