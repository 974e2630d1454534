//! Tests of changes that others make to either side while frames are carried.

use serde_json::Value;
use twinpath_sys::Namespace;

use super::{KERNEL, PORT, add_addresses, bridge, has_flag, is_up, passes, rig};
use crate::rig::{CLIENT, Rig, SERVER, Server, forget_neighbours, move_link, until};
use crate::root_or_skip;

fn mtu(link: &Value) -> u64 {
    link["mtu"].as_u64().unwrap_or(0)
}

#[test]
fn mtu_and_address_go_from_each_side_to_the_other() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    rig.ip_server(&["link", "set", PORT, "mtu", "1400"]);
    let server = bridge(&rig, &[]);
    assert_eq!(mtu(&rig.link_server(KERNEL)), 1400, "as the device was");
    assert_eq!(rig.link_server(KERNEL)["address"], rig.link_server(PORT)["address"]);
    for (changed, other, value) in [(KERNEL, PORT, 1300), (PORT, KERNEL, 1450), (KERNEL, PORT, 1500)] {
        rig.ip_server(&["link", "set", changed, "mtu", &value.to_string()]);
        until("the MTU follows", || mtu(&rig.link_server(other)) == value);
    }
    for (changed, other, mac) in [(KERNEL, PORT, "02:00:00:00:07:01"), (PORT, KERNEL, "02:00:00:00:07:02")] {
        rig.ip_server(&["link", "set", changed, "address", mac]);
        until("the address follows", || rig.link_server(other)["address"] == mac);
        // As for any NIC whose address changes: the peer still has the old one.
        forget_neighbours(&rig.client, "vc");
        passes(&rig);
    }
    // More than the device supports, so the kernel's interface is set back.
    rig.ip_server(&["link", "set", KERNEL, "mtu", "65521"]);
    until("both agree", || mtu(&rig.link_server(KERNEL)) == mtu(&rig.link_server(PORT)));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn the_kernels_interface_down_takes_the_device_down_and_back() {
    if !root_or_skip() {
        return;
    }
    for carrier in ["kernel", "workers"] {
        let rig = rig();
        let server = bridge(&rig, &["--carrier", carrier]);
        passes(&rig);
        rig.ip_server(&["link", "set", KERNEL, "down"]);
        until("the peer sees a NIC going dark", || !has_flag(&rig.link_client("vc"), "LOWER_UP"));
        rig.ip_server(&["link", "set", KERNEL, "up"]);
        until("the peer sees it back", || has_flag(&rig.link_client("vc"), "LOWER_UP"));
        until("carrier is back", || is_up(&rig.link_server(KERNEL)));
        passes(&rig);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn the_devices_carrier_is_the_kernels() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &[]);
    for (namespace, name) in [(&rig.client, "vc"), (&rig.server, PORT)] {
        let set = |state: &str| {
            if std::ptr::eq(namespace, &rig.client) {
                rig.ip_client(&["link", "set", name, state]);
            } else {
                rig.ip_server(&["link", "set", name, state]);
            }
        };
        set("down");
        until("no carrier", || !has_flag(&rig.link_server(KERNEL), "LOWER_UP"));
        assert!(has_flag(&rig.link_server(KERNEL), "UP"), "addresses and routes stay");
        set("up");
        until("carrier", || is_up(&rig.link_server(KERNEL)));
        passes(&rig);
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn the_kernels_interface_removed_is_made_again() {
    if !root_or_skip() {
        return;
    }
    for carrier in ["kernel", "workers"] {
        let rig = rig();
        let server = bridge(&rig, &["--carrier", carrier, "--queues", "2"]);
        passes(&rig);
        for _ in 0..3 {
            let former = rig.link_server(KERNEL)["ifindex"].clone();
            rig.ip_server(&["link", "delete", KERNEL]);
            until("another one", || {
                let link = rig.link_server(KERNEL);
                is_up(&link) && link["ifindex"] != former
            });
            assert_eq!(rig.link_server(KERNEL)["address"], rig.link_server(PORT)["address"]);
            add_addresses(&rig);
            passes(&rig);
        }
        server.wait_until_said("was removed by somebody else");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn the_device_may_be_renamed_go_and_come_back() {
    if !root_or_skip() {
        return;
    }
    for carrier in ["kernel", "workers"] {
        let rig = rig();
        let server = bridge(&rig, &["--carrier", carrier]);
        passes(&rig);
        rig.ip_server(&["link", "set", PORT, "name", "other"]);
        until("the name follows", || server.show("interfaces")[0]["name"] == "other");
        passes(&rig);
        rig.ip_server(&["link", "delete", "other"]);
        until("no carrier", || !has_flag(&rig.link_server(KERNEL), "LOWER_UP"));
        server.wait_until_said("other is gone");
        rig.join("other", &[(CLIENT, 24)], &[]);
        until("carrier", || is_up(&rig.link_server(KERNEL)));
        assert_eq!(rig.link_server(KERNEL)["address"], rig.link_server("other")["address"]);
        passes(&rig);
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// Checks that the kernel has the device again.
fn is_the_kernels_own(rig: &Rig) {
    assert!(rig.link_server(KERNEL).is_null());
    assert_eq!(rig.link_server(PORT)["promiscuity"].as_u64().unwrap_or(0), 0);
    rig.ip_server(&["address", "add", &format!("{SERVER}/24"), "dev", PORT]);
    passes(rig);
    rig.ip_server(&["address", "flush", "dev", PORT]);
}

#[test]
fn whatever_ends_it_the_device_is_as_it_was() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let before = rig.link_server(PORT);
    let server = bridge(&rig, &[]);
    passes(&rig);
    server.kill();
    assert_eq!(rig.link_server(PORT), before);
    is_the_kernels_own(&rig);
    let server = bridge(&rig, &[]);
    passes(&rig);
    let socket = server.socket.clone();
    assert_eq!(server.interrupt(), Some(0));
    assert!(!socket.exists());
    assert_eq!(rig.link_server(PORT), before);
    is_the_kernels_own(&rig);
}

/// The reported carrier of frames.
fn by(server: &Server) -> String {
    server.show("interfaces")[0]["why"].as_str().expect("a sentence").to_owned()
}

#[test]
fn the_kernels_interface_may_live_in_another_namespace() {
    if !root_or_skip() {
        return;
    }
    let mut rig = rig();
    let server = bridge(&rig, &["--mode", "interrupt"]);
    passes(&rig);
    assert!(by(&server).ends_with("frames cross within the kernel"), "{}", by(&server));
    let container = Namespace::new().unwrap();
    move_link(&rig.server, KERNEL, &container);
    server.wait_until_said("was moved to another network namespace");
    let home = std::mem::replace(&mut rig.server, container);
    // A link that moves is set down and loses its addresses.
    rig.ip_server(&["link", "set", KERNEL, "up"]);
    add_addresses(&rig);
    passes(&rig);
    // Programs cannot redirect into another namespace.
    assert!(by(&server).contains("workers carry frames; nobody does while one is stuck"), "{}", by(&server));
    // The device's carrier is still its carrier.
    rig.ip_client(&["link", "set", "vc", "down"]);
    until("no carrier", || !has_flag(&rig.link_server(KERNEL), "LOWER_UP"));
    rig.ip_client(&["link", "set", "vc", "up"]);
    until("carrier", || is_up(&rig.link_server(KERNEL)));
    passes(&rig);
    // The interface disappears with its namespace; another one is created at home.
    drop(std::mem::replace(&mut rig.server, home));
    until("another one at home", || is_up(&rig.link_server(KERNEL)));
    add_addresses(&rig);
    passes(&rig);
    assert!(by(&server).ends_with("frames cross within the kernel"), "{}", by(&server));
    assert_eq!(server.interrupt(), Some(0));
}
