//! Tests of a switch with another project's tool: ovs-ofctl, whose every command of OpenFlow 1.3 it has to answer.

use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use twinpath_test_rig::{skip_without, within};

use super::{Site, terminate};
use crate::rig::{Server, link_json, until};
use crate::root_or_skip;

/// Runs ovs-ofctl with these arguments; the first is the command, and the switch comes behind it. Its output, or what it
/// said on standard error.
fn try_ofctl(site: &Site, arguments: &[&str]) -> Result<String, String> {
    let (command, rest) = arguments.split_first().expect("a command");
    let target = format!("unix:{}", site.rig.directory.path().join("of").display());
    let mut ofctl = Command::new("ovs-ofctl");
    ofctl.args(["-O", "OpenFlow13", "--timeout=20", command, &target]).args(rest);
    let output = ofctl.output().expect("ovs-ofctl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn ofctl(site: &Site, arguments: &[&str]) -> String {
    try_ofctl(site, arguments).unwrap_or_else(|said| panic!("{arguments:?}: {said}"))
}

/// Whether the test can run.
fn is_possible() -> bool {
    if !root_or_skip() {
        return false;
    }
    let is_there = Command::new("ovs-ofctl").arg("--version").output().is_ok();
    if !is_there {
        skip_without("ovs-ofctl (Debian's openvswitch-common)");
    }
    is_there
}

fn start() -> Option<(Site, Server)> {
    if !is_possible() {
        return None;
    }
    let site = Site::new(3);
    let server = start_at(&site);
    Some((site, server))
}

fn start_at(site: &Site) -> Server {
    let listen = format!("unix:{}", site.rig.directory.path().join("of").display());
    site.switch(&[
        "sw0",
        "--port",
        "p1",
        "--port",
        "p2,number=12",
        "--port",
        "p3",
        "--local",
        "host0",
        "--datapath-id",
        "a1",
        "--listen",
        &listen,
    ])
}

#[test]
fn ovs_ofctl_changes_flows_and_sees_what_they_count() {
    let Some((site, server)) = start() else { return };
    let shown = ofctl(&site, &["show"]);
    for part in ["dpid:00000000000000a1", "n_tables:255", " 1(p1):", " 12(p2):", " 2(p3):", " LOCAL(host0):"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(ofctl(&site, &["dump-desc"]).contains("DP Description: sw0"));
    for flow in ["in_port=1,actions=output:12", "in_port=12,actions=output:1", "priority=0,actions=drop"] {
        ofctl(&site, &["add-flow", flow]);
    }
    ofctl(&site, &["dump-flows"]);
    site.passes(1, 2);
    assert!(!site.tries(1, 3));
    let flows = ofctl(&site, &["dump-flows", "in_port=1"]);
    assert!(flows.contains("in_port=1 actions=output:12"), "{flows}");
    assert!(!flows.contains("n_packets=0"), "{flows}");
    let sum: Value = server.show("flows");
    let out_of_1 = sum.as_array().unwrap().iter().find(|flow| flow["matches"] == "in_port=1").unwrap();
    assert!(out_of_1["packets"].as_u64() >= Some(2), "{sum}");
    assert!(ofctl(&site, &["dump-aggregate"]).contains("flow_count=3"));
    assert!(ofctl(&site, &["dump-tables"]).contains("active=3"));
    let ports = ofctl(&site, &["dump-ports", "12"]);
    assert!(ports.contains("1 ports") && !ports.contains("tx pkts=0"), "{ports}");
    assert!(ofctl(&site, &["dump-ports-desc"]).contains("LIVE"));
    ofctl(&site, &["dump-table-features"]);
    ofctl(&site, &["queue-stats"]);
    ofctl(&site, &["ping"]);

    ofctl(&site, &["mod-flows", "in_port=1,actions=output:2"]);
    ofctl(&site, &["add-flow", "in_port=2,actions=output:1"]);
    site.passes(1, 3);
    ofctl(&site, &["del-flows", "in_port=1"]);
    assert!(!site.tries(1, 3));
    ofctl(&site, &["del-flows"]);
    assert!(ofctl(&site, &["dump-aggregate"]).contains("flow_count=0"));
    ofctl(&site, &["add-flow", "actions=normal"]);
    site.passes(1, 2);
    site.passes(2, 3);
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn ovs_ofctl_makes_groups_and_meters_and_sends_frames() {
    let Some((site, server)) = start() else { return };
    ofctl(&site, &["add-group", "group_id=1,type=all,bucket=output:12,bucket=output:2"]);
    ofctl(&site, &["add-flow", "in_port=1,actions=group:1"]);
    ofctl(&site, &["add-flow", "in_port=12,actions=output:1"]);
    site.passes(1, 2);
    let groups = ofctl(&site, &["dump-groups"]);
    assert!(
        groups.contains("group_id=1,type=all,bucket=actions=output:12,bucket=actions=output:2"),
        "{groups}"
    );
    let counted = ofctl(&site, &["dump-group-stats", "group_id=1"]);
    assert!(counted.contains("ref_count=1") && !counted.contains("packet_count=0"), "{counted}");
    let features = ofctl(&site, &["dump-group-features"]);
    assert!(features.contains("Types:  0xf"), "{features}");
    ofctl(&site, &["mod-group", "group_id=1,type=all,bucket=output:2"]);
    assert!(!site.tries(1, 2));
    assert_eq!(server.show("groups")[0]["buckets"][0]["actions"], "output:2");

    ofctl(&site, &["add-meter", "meter=1,pktps,burst,stats,band=type=drop,rate=1,burst_size=1"]);
    ofctl(&site, &["add-flow", "in_port=1,actions=meter:1,output:12"]);
    until("the meter drops", || {
        site.tries(1, 2);
        server.drops("meter_drop") > 0
    });
    assert!(ofctl(&site, &["dump-meters"]).contains("meter=1 pktps burst stats"));
    let counted = ofctl(&site, &["meter-stats"]);
    assert!(counted.contains("flow_count:1") && !counted.contains("packet_in_count:0"), "{counted}");
    ofctl(&site, &["meter-features"]);
    ofctl(&site, &["del-meters"]);
    assert!(server.show("meters").as_array().unwrap().is_empty());
    ofctl(&site, &["del-groups"]);
    assert!(ofctl(&site, &["dump-aggregate"]).contains("flow_count=1"), "only the flow of port 12 is left");

    // The frame comes out whole.
    let seen = site.listen(2);
    let frame = "ffffffffffff02000000000988b5".to_owned() + &"a5".repeat(46);
    ofctl(&site, &["packet-out", &format!("in_port=controller,packet={frame},actions=output:12")]);
    loop {
        let frame = super::next(&seen).expect("a frame comes");
        if frame[12..14] == [0x88, 0xb5] {
            assert_eq!(frame[14..], [0xa5; 46]);
            break;
        }
    }
    ofctl(&site, &["mod-port", "p1", "no-receive"]);
    assert!(ofctl(&site, &["show"]).contains("NO_RECV"));
    ofctl(&site, &["mod-port", "p1", "receive"]);
    let refused = try_ofctl(&site, &["add-flow", "in_port=1,actions=group:9"]).expect_err("no such group");
    assert!(refused.contains("OFPBAC_BAD_OUT_GROUP"), "{refused}");
    assert_eq!(terminate(server), Some(0));
}

/// As with Open vSwitch, PORT_DOWN is how the interface is, if an operator has set it so, too, and the host at the port sees it.
#[test]
fn ovs_ofctl_sets_ports_down_and_up_and_their_hosts_see_it() {
    let Some((site, server)) = start() else { return };
    let has_carrier = |host: usize| link_json(&site.hosts[host - 1], "eth0")["operstate"] == "UP";
    let config = |port: &str| {
        let shown = ofctl(&site, &["show"]);
        let port = shown.split_once(&format!("({port}): ")).expect("it is shown").1;
        port.lines().find(|line| line.contains("config:")).expect("so is this").trim().to_owned()
    };
    ofctl(&site, &["add-flow", "actions=normal"]);
    for _ in 0..2 {
        ofctl(&site, &["mod-port", "p1", "down"]);
        until("no carrier", || !has_carrier(1));
        assert!(config("p1").contains("PORT_DOWN"));
        ofctl(&site, &["mod-port", "p1", "up"]);
        until("a carrier", || has_carrier(1));
    }
    until("it carries frames again", || site.tries(1, 2));
    // An operator does it, and another bit of the port is changed.
    site.rig.ip_server(&["link", "set", "p2", "down"]);
    until("controllers see it", || config("p2").contains("PORT_DOWN"));
    ofctl(&site, &["mod-port", "p2", "no-receive"]);
    assert!(config("p2").contains("PORT_DOWN") && config("p2").contains("NO_RECV") && !has_carrier(2));
    site.rig.ip_server(&["link", "set", "p2", "up"]);
    until("controllers see it", || config("p2") == "config:     NO_RECV");
    // Who comes after one that was killed can set it up; and what was set down is set up at the end, but for what was down before.
    ofctl(&site, &["mod-port", "p1", "down"]);
    until("no carrier", || !has_carrier(1));
    server.kill();
    let server = start_at(&site);
    assert!(config("p1").contains("PORT_DOWN"));
    ofctl(&site, &["mod-port", "p1", "up"]);
    until("a carrier", || has_carrier(1));
    ofctl(&site, &["mod-port", "p1", "down"]);
    site.rig.ip_server(&["link", "set", "p2", "down"]);
    until("controllers see it", || config("p2").contains("PORT_DOWN"));
    assert_eq!(terminate(server), Some(0));
    until("a carrier", || has_carrier(1));
    assert!(!has_carrier(2));
}

/// Writes key and certificate of the switch and of a controller, signed by an authority, and that of the authority.
fn issue(folder: &Path) {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Otherwise it would be called as what it signs, which OpenSSL takes for signed by itself.
    ca.distinguished_name.push(DnType::CommonName, "an authority");
    std::fs::write(folder.join("ca.pem"), ca.self_signed(&ca_key).expect("signed").pem()).expect("written");
    let issuer = Issuer::new(ca, ca_key);
    for name in ["switch", "controller"] {
        let key = KeyPair::generate().expect("a key");
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).expect("a name").signed_by(&key, &issuer);
        std::fs::write(folder.join(format!("{name}.pem")), certificate.expect("signed").pem())
            .expect("written");
        std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).expect("written");
    }
}

#[test]
fn ovs_ofctl_talks_tls_with_the_switch_if_the_authority_knows_it() {
    if !is_possible() {
        return;
    }
    let site = Site::new(2);
    let folder = site.rig.directory.path();
    issue(folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let ports = ["--port", "p1", "--port", "p2", "--listen", "tls:127.0.0.1:6653"];
    let refused = site.try_switch(&[&["sw0"], &ports[..]].concat()).err().expect("no key");
    assert!(refused.contains("switch.tls_key: tls:127.0.0.1:6653 needs it"), "{refused}");
    let (key, certificate, authority) = (file("switch-key.pem"), file("switch.pem"), file("ca.pem"));
    let files = ["--tls-key", &key, "--tls-certificate", &certificate, "--tls-ca", &authority];
    let server = site.switch(&[&["sw0"], &ports[..], &files].concat());
    let ofctl = |who: &str, arguments: &[&str]| {
        let mut ofctl = Command::new("ovs-ofctl");
        ofctl.args(["-O", "OpenFlow13", "--timeout=20", "--ca-cert", &authority]);
        ofctl.args([
            "--private-key",
            &file(&format!("{who}-key.pem")),
            "--certificate",
            &file(&format!("{who}.pem")),
        ]);
        ofctl.args(arguments);
        within(&site.rig.server, &mut ofctl);
        let output = ofctl.output().expect("ovs-ofctl runs");
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    let add = ["add-flow", "ssl:127.0.0.1:6653", "actions=normal"];
    assert_eq!(ofctl("controller", &add), Ok(()));
    site.passes(1, 2);
    assert_eq!(server.drops("broken_tls"), 0);
    // A key that another authority knows.
    std::fs::create_dir(folder.join("other")).expect("made");
    issue(&folder.join("other"));
    assert!(ofctl("other/controller", &add).is_err());
    until("it is counted", || server.drops("broken_tls") == 1);
    assert_eq!(terminate(server), Some(0));
}
