//! The kernel thread for the frames of a veth interface: tests its settings, and that they are restored.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use twinpath_attach::{ReceiveThread, ReceiveThreadError};
use twinpath_netlink::generic::{Family, command};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_rig::ip_here;

// linux/netdev.h
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_PID: u16 = 4;

/// The NAPI instances of an interface: whether each has a thread.
fn threads(ifindex: u32) -> Vec<bool> {
    let netdev = Family::find("netdev").unwrap();
    let of = command(NETDEV_CMD_NAPI_GET).u32(NETDEV_A_NAPI_IFINDEX, ifindex);
    let instances = netdev.list("list NAPI instances", &of).unwrap();
    instances.iter().map(|instance| instance.unsigned(NETDEV_A_NAPI_PID).is_some()).collect()
}

#[test]
fn a_veth_interface_has_a_thread_until_it_ends_also_after_it_was_down() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    namespace
        .run(|| {
            ip_here("link add p1 type veth peer name eth0");
            ip_here("link set p1 up");
            ip_here("link set eth0 up");
            ip_here("link add d1 type bridge");
            let ifindex = interface_index("p1").unwrap();
            assert!(threads(ifindex).is_empty(), "it has no instance of NAPI");
            let started = match ReceiveThread::start("p1", ifindex) {
                Err(error @ ReceiveThreadError::Napi(_)) => {
                    assert!(threads(ifindex).is_empty(), "nothing is left");
                    return twinpath_test_rig::skip_without(error);
                }
                other => other.unwrap(),
            };
            let has_threads =
                || !threads(ifindex).is_empty() && threads(ifindex).iter().all(|has_one| *has_one);
            assert!(has_threads());
            ip_here("link set p1 down");
            ip_here("link set p1 up");
            started.renew().unwrap();
            assert!(has_threads());
            // If everything is already set, nothing is changed.
            ReceiveThread::start("p1", ifindex).unwrap().end().unwrap();
            assert!(!threads(ifindex).is_empty());
            started.end().unwrap();
            assert!(threads(ifindex).is_empty());
            // Interfaces that cannot have it.
            let refused = ReceiveThread::start("d1", interface_index("d1").unwrap()).unwrap_err();
            assert_eq!(refused.to_string(), "only a veth interface can have it, and this is bridge");
            let thread = ReceiveThread::start("p1", ifindex).unwrap();
            ip_here("link delete p1");
            assert!(thread.end().is_err(), "it is gone");
        })
        .unwrap();
}
