//! What becomes of the frames when a switch ends.

use std::process::Command;

use twinpath_test_rig::within;

use super::{Site, terminate};
use crate::rig::ip;
use crate::root_or_skip;

/// Puts the ports of hosts into a kernel bridge.
pub(super) fn bridge(site: &Site, ports: &[&str]) {
    ip(&site.rig.server, &["link", "add", "br0", "type", "bridge"]);
    for port in ports {
        ip(&site.rig.server, &["link", "set", port, "master", "br0"]);
    }
    ip(&site.rig.server, &["link", "set", "br0", "up"]);
}

/// Whether the bridge has learnt an address from a frame.
fn bridge_has_learnt(site: &Site) -> bool {
    let mut command = Command::new("bridge");
    command.args(["fdb", "show", "br", "br0", "dynamic"]);
    within(&site.rig.server, &mut command);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    !output.stdout.is_empty()
}

fn forget(site: &Site) {
    ip(&site.rig.server, &["link", "set", "br0", "type", "bridge", "fdb_flush"]);
}

#[test]
fn a_kernel_bridge_carries_on_when_a_switch_ends_or_is_killed() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let dark = ["sw0", "--port", "p1", "--port", "p2"];
    let with_bridge = [&dark[..], &["--on-exit", "bridge"]].concat();
    let refused = site.try_switch(&with_bridge).err().expect("no bridge");
    assert!(refused.contains("p1 belongs to no kernel bridge"), "{refused}");
    bridge(&site, &["p1", "p2"]);
    let refused = site.try_switch(&dark).err().expect("in a bridge");
    assert!(refused.contains("p1 is in use by br0"), "{refused}");
    site.passes(1, 2);

    for is_killed in [true, false] {
        let switch = site.switch(&with_bridge);
        forget(&site);
        site.passes(1, 2);
        assert!(!bridge_has_learnt(&site), "the switch carries, and the bridge sees nothing");
        if is_killed {
            switch.kill();
        } else {
            assert_eq!(terminate(switch), Some(0));
        }
        site.passes(1, 2);
        assert!(bridge_has_learnt(&site));
    }
}
