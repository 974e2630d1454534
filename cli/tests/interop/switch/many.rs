//! Tests of a switch with many ports.

use super::ports::change;
use super::{Site, terminate};
use crate::rig::ip;
use crate::root_or_skip;

/// More than have programs attached by links.
const PORTS: usize = 100;

#[test]
fn many_ports_start_soon_and_a_killed_switch_leaves_nothing_in_the_way() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let idle: Vec<String> = (0..PORTS).map(|number| format!("idle{number}")).collect();
    for name in &idle {
        let peer = format!("far-{name}");
        ip(&site.rig.server, &["link", "add", name, "type", "veth", "peer", "name", &peer]);
    }
    let mut arguments = vec!["sw0"];
    idle.iter().map(String::as_str).chain(["p1", "p2"]).for_each(|port| arguments.extend(["--port", port]));
    let switch = site.switch(&arguments);
    site.passes(1, 2);
    assert_eq!(switch.show("ports").as_array().unwrap().len(), PORTS + 2);
    assert_eq!(change(&site, &switch, &["add", "p3"]).as_deref(), Ok("port p3 is new\n"));
    site.passes(3, 1);
    assert_eq!(change(&site, &switch, &["remove", "idle7"]).as_deref(), Ok("port idle7 goes\n"));
    switch.kill();
    let switch = site.switch(&arguments);
    site.passes(1, 2);
    assert!(!site.tries(1, 3), "it is no port of this one");
    assert_eq!(terminate(switch), Some(0));
    for name in ["p1", "p2", "idle7", "idle50"] {
        let left = site.rig.tc_server(&["qdisc", "show", "dev", name]);
        assert!(!left.contains("clsact"), "{name}: {left}");
    }
}
