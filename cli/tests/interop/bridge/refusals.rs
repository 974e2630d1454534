//! Tests of bridges that are refused, with their messages.

use super::{KERNEL, PORT, bridge, rig, try_bridge};
use crate::rig::{Rig, SERVER};
use crate::root_or_skip;

fn refused(rig: &Rig, arguments: &[&str]) -> String {
    match rig.try_launch(&[&["bridge"], arguments].concat()) {
        Ok(_) => panic!("{arguments:?} was not refused"),
        Err(said) => said,
    }
}

#[test]
fn what_cannot_be_bridged_is_refused_with_the_way_out() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let usual = ["--kernel", KERNEL];
    let said = refused(&rig, &[&["nonesuch"][..], &usual].concat());
    assert!(said.contains("there is no interface nonesuch; there is ") && said.contains(PORT), "{said}");
    let said = refused(&rig, &[&["lo"][..], &usual].concat());
    assert!(said.contains("lo carries no Ethernet frames"), "{said}");
    let said = refused(&rig, &[PORT, "--kernel", "lo"]);
    assert!(said.contains("an interface lo exists already"), "{said}");
    for name in ["", "far-too-long-a-name", "a/b", "a b", "."] {
        let said = refused(&rig, &[PORT, "--kernel", name]);
        assert!(said.contains("cannot be the name of an interface"), "{said}");
    }
    for queues in ["0", "65"] {
        let said = refused(&rig, &[&[PORT, "--queues", queues][..], &usual].concat());
        assert!(said.contains("choose 1 to 64"), "{said}");
    }

    rig.ip_server(&["address", "add", &format!("{SERVER}/24"), "dev", PORT]);
    let said = refused(&rig, &[&[PORT][..], &usual].concat());
    assert!(said.contains(&format!("the kernel holds {SERVER}/24 on {PORT}")), "{said}");
    assert!(said.contains(&format!("ip address delete {SERVER}/24 dev {PORT}")), "{said}");
    assert!(said.contains(&format!("ip address add {SERVER}/24 dev {KERNEL}")), "{said}");
    rig.ip_server(&["address", "flush", "dev", PORT]);

    rig.ip_server(&["link", "add", "link", PORT, "name", "upper", "type", "macvlan"]);
    let said = refused(&rig, &[&[PORT][..], &usual].concat());
    assert!(said.contains("is in use by upper"), "{said}");
    rig.ip_server(&["link", "delete", "upper"]);
    rig.ip_server(&["link", "add", "sw0", "type", "bridge"]);
    rig.ip_server(&["link", "set", PORT, "master", "sw0"]);
    let said = refused(&rig, &[&[PORT][..], &usual].concat());
    assert!(said.contains("is in use by sw0") && said.contains("nomaster"), "{said}");
    rig.ip_server(&["link", "set", PORT, "nomaster"]);

    // The refused starts have left nothing, and the next one succeeds.
    assert!(rig.link_server(KERNEL).is_null());
    let server = bridge(&rig, &[]);
    // A second one on the same device would send every frame twice.
    let said = refused(&rig, &[PORT, "--kernel", "kn2"]);
    assert!(
        said.contains(&format!("{PORT} is held already by twinpath (pid {})", server.child.id())),
        "{said}"
    );
    assert!(rig.link_server("kn2").is_null());
    assert_eq!(server.interrupt(), Some(0));
    assert!(rig.link_server(KERNEL).is_null());
}

#[test]
fn an_interface_left_behind_is_nobodys_to_take() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    // A persistent TAP interface of another program, which does not use it at the moment.
    rig.ip_server(&["tuntap", "add", "dev", KERNEL, "mode", "tap"]);
    let said = try_bridge(&rig, &[]).err().expect("refused");
    assert!(said.contains(&format!("an interface {KERNEL} exists already")), "{said}");
    assert!(!rig.link_server(KERNEL).is_null(), "and it stays");
}

/// The exception port has its frames to itself, whichever process carries them and wherever its command socket is.
#[test]
fn a_device_that_is_carried_cannot_be_served_nor_measured_on() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    for carrier in ["kernel", "workers"] {
        let port = bridge(&rig, &["--carrier", carrier]);
        let carried = format!("{PORT} is carried to {KERNEL} by a twinpath bridge (pid {})", port.child.id());
        for path in ["auto", "packet", "kernel"] {
            let said =
                rig.try_start(&["echo", "--on", PORT, "--udp", "7", "--path", path]).err().expect("refused");
            assert!(said.contains(&carried) && said.contains(&format!("use {KERNEL} instead")), "{said}");
        }
        let frames = ["reflect", "--on", PORT, "--ethertype", "0x88b5"];
        let said = rig.try_start(&frames).err().expect("refused");
        assert!(said.contains(&carried), "{said}");
        let bench = ["bench", "echo", "10.7.0.1:7", "--udp", "--on", PORT, "--count", "1"];
        let measured = rig.twinpath(&rig.server, &bench);
        assert!(measured.code != Some(0) && measured.stderr.contains(&carried), "{}", measured.stderr);

        // For frames redirected within the kernel its sockets are the best path, if possible.
        let best = if carrier == "kernel" { "kernel" } else { "packet" };
        for (path, service) in [
            (best, ["echo", "--on", KERNEL, "--udp", "7"]),
            ("packet", ["reflect", "--on", KERNEL, "--ethertype", "0x88b5"]),
        ] {
            let server = rig.try_start(&service).expect("where its frames come");
            assert_eq!(server.path(), path, "carrier {carrier}: {service:?}");
            assert_eq!(server.interrupt(), Some(0));
        }
        assert_eq!(port.interrupt(), Some(0));
    }
}

/// An exception port would take frames away from a service on the same device, on either path.
#[test]
fn a_device_that_is_served_is_not_carried_away() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    for path in ["packet", "xdp"] {
        let server = rig
            .try_start(&["reflect", "--on", PORT, "--ethertype", "0x88b5", "--path", path])
            .unwrap_or_else(|said| panic!("{path}: {said}"));
        let said = refused(&rig, &[PORT, "--kernel", KERNEL]);
        let holder = format!("{PORT} is held already by twinpath (pid {})", server.child.id());
        assert!(said.contains(&holder), "{path}: {said}");
        assert!(rig.link_server(KERNEL).is_null());
        assert_eq!(server.interrupt(), Some(0));
    }
}
