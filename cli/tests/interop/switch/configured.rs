//! Tests of a switch's configuration: what is refused, files, and reading them again.

use super::{Site, port, terminate};
use crate::rig::{Server, ip, until};
use crate::root_or_skip;

fn refused(site: &Site, arguments: &[&str]) -> String {
    match site.try_switch(arguments) {
        Ok(_) => panic!("{arguments:?} was not refused"),
        Err(said) => said,
    }
}

#[test]
fn all_mistakes_are_said_at_once_with_what_to_do() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let said = refused(
        &site,
        &[
            "sw 0",
            "--port",
            "p1,vlan=0",
            "--port",
            "p2,vlan=4095",
            "--port",
            "p1",
            "--port",
            "p9,vlans=3",
            "--ageing-s",
            "5",
        ],
    );
    for part in [
        "switch.name: `sw 0` is no name of a switch",
        "switch.port[0].vlan: 0: give 1 to 4094 (port p1)",
        "switch.port[1].vlan: 4095: give 1 to 4094 (port p2)",
        "switch.port[2].name: p1 twice",
        "switch.port[3].vlans: only a trunk has it",
        "switch.ageing_s: 5: give 10 to 1000000",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(&site, &["sw0", "--port", "nonesuch", "--port", "lo", "--port", "p1@nowhere"]);
    assert!(said.contains("port nonesuch: there is no interface nonesuch; there is lo, p1, p2"), "{said}");
    assert!(said.contains("port lo: lo carries no Ethernet frames"), "{said}");
    assert!(said.contains("port p1@nowhere: there is no network namespace /run/netns/nowhere"), "{said}");
    assert!(refused(&site, &["--port", "p1"]).contains("which name?"));

    ip(&site.rig.server, &["address", "add", "10.9.0.1/24", "dev", "p1"]);
    ip(&site.rig.server, &["link", "add", "br0", "type", "bridge"]);
    ip(&site.rig.server, &["link", "set", "p2", "master", "br0"]);
    let said = refused(&site, &["sw0", "--port", "p1", "--port", "p2"]);
    assert!(said.contains("the kernel holds 10.9.0.1/24 on p1"), "{said}");
    assert!(said.contains("p2 is in use by br0: take it out first (ip link set p2 nomaster)"), "{said}");
    ip(&site.rig.server, &["address", "flush", "dev", "p1"]);
    ip(&site.rig.server, &["link", "delete", "br0"]);

    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
    let said = refused(&site, &["sw1", "--port", "p1", "--local", "host1"]);
    assert!(said.contains(&format!("p1 is held already by twinpath (pid {})", switch.child.id())), "{said}");
    assert!(site.rig.link_server("host1").is_null(), "nothing is left of it");
    // A service does not take an interface away from a switch.
    let said = site.rig.try_start(&["echo", "--on", "p1", "--udp", "7"]).err().expect("refused");
    assert!(said.contains("twinpath") && said.contains(&switch.child.id().to_string()), "{said}");
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
}

fn setting(switch: &Server, key: &str) -> serde_json::Value {
    let settings = switch.show("config");
    let found = settings.as_array().unwrap().iter().find(|setting| setting["key"] == key).cloned();
    found.unwrap_or_else(|| panic!("no key {key}: {settings}"))
}

#[test]
fn a_file_is_read_again_all_of_it_or_nothing() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let file = site.rig.directory.path().join("switch.toml");
    let path = file.display().to_string();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write(
        "[switch]\nname = \"sw0\"\n[[switch.port]]\nname = \"p1\"\n[[switch.port]]\nname = \"p2\"\nvlan = 0\n[service]\nudp = 7\n",
    );
    let said = refused(&site, &["--config", &path]);
    assert!(said.contains("switch.toml:7: switch.port[1].vlan: 0: give 1 to 4094 (port p2)"), "{said}");
    assert!(said.contains("a switch has no services"), "{said}");

    let ports = |of: &[&str]| {
        let tables: Vec<_> = of.iter().map(|port| format!("[[switch.port]]\n{port}\n")).collect();
        format!("[switch]\nname = \"sw0\"\nageing_s = 60\n{}", tables.concat())
    };
    write(&ports(&["name = \"p1\"", "name = \"p2\"\nmac_limit = 5"]));
    let switch = site.switch(&["--config", &path]);
    site.passes(1, 2);
    assert_eq!(
        (
            setting(&switch, "switch.ageing_s")["source"].as_str(),
            setting(&switch, "switch.port[1].mac_limit")["value"].as_u64()
        ),
        (Some("file"), Some(5))
    );
    let reload = || {
        let socket = switch.socket.display().to_string();
        let said = site.rig.twinpath(&site.rig.server, &["reload", "--socket", &socket]);
        if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr) }
    };
    assert_eq!(reload().as_deref(), Ok("reloaded: nothing differs\n"));
    write(&ports(&["name = \"p1\"", "name = \"p3\"", "name = \"nonesuch\""]));
    let said = reload().expect_err("refused");
    assert!(said.contains("port nonesuch: there is no interface nonesuch"), "{said}");
    site.passes(1, 2);
    write(&ports(&["name = \"p1\"\nvlan = 10", "name = \"p3\"\nvlan = 10"]).replace("60", "90"));
    let said = reload().expect("done");
    for line in ["switch.ageing_s: 60 -> 90", "port p1: vlan 1 -> 10", "port p2 goes", "port p3 is new"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    site.passes(1, 3);
    assert!(!site.tries(1, 2));
    // What cannot change while it runs.
    write(&ports(&["name = \"p1\""]).replace("sw0", "other"));
    assert!(reload().expect_err("refused").contains("switch.name"));
    // By a signal.
    write(&ports(&["name = \"p1\"", "name = \"p2\""]));
    rustix::process::kill_process(switch.pid(), rustix::process::Signal::HUP).unwrap();
    until("p2 is a port again", || {
        let ports = switch.show("interfaces");
        ports.as_array().unwrap().iter().any(|port| port["name"] == "p2")
    });
    site.passes(1, 2);
    assert_eq!(port(&switch, "p2")["link"], "up");
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_static_entry_is_where_it_is_said_to_be() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let output = site.hosts[1]
        .run(|| std::process::Command::new("ip").args(["-json", "link", "show", "dev", "eth0"]).output())
        .unwrap()
        .unwrap();
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mac = links[0]["address"].as_str().unwrap();
    // Host 2's address at the port of host 3: nothing reaches host 2.
    let entry = format!("{mac},p3");
    let arguments = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3"];
    let switch = site.switch(&[&arguments[..], &["--static", &entry]].concat());
    site.passes(1, 3);
    let is_entered = |mac: &serde_json::Value| mac["age_s"].is_null();
    until("the entry is in force", || switch.show("macs").as_array().unwrap().iter().any(is_entered));
    assert!(!site.tries(1, 2) && !site.tries(1, 2));
    assert_eq!(terminate(switch), Some(0));
    let entry = format!("{mac},p2");
    let switch = site.switch(&[&arguments[..], &["--static", &entry]].concat());
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
    let said = refused(&site, &[&arguments[..], &["--static", &format!("{mac},p9")]].concat());
    assert!(said.contains("there is no port p9"), "{said}");
    assert!(
        refused(&site, &[&arguments[..], &["--static", "ff:ff:ff:ff:ff:ff,p1"]].concat())
            .contains("one host")
    );
}
