//! Tests of what a switch shows: ports, addresses, metrics, captures.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::{Site, terminate};
use crate::rig::{Server, until};
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
    let ports = switch.show("ports");
    let names: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| (&port["name"], &port["state"])).collect();
    assert_eq!(
        names,
        [(&"p1".into(), &"up".into()), (&"p2".into(), &"up".into()), (&"tap:vm0".into(), &"gone".into())]
    );
    assert_eq!(ports[0]["addresses"], 1);
    assert!(
        ports[0]["frames_in"].as_u64().unwrap() > 1 && ports[1]["bytes_out"].as_u64().unwrap() > 60,
        "{ports}"
    );
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
