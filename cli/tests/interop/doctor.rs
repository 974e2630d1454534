//! Tests of `twinpath doctor`: what it says of an interface is what `serve` does there.

use std::process::Command;

use serde_json::Value;

use crate::rig::Rig;
use crate::root_or_skip;

fn look(rig: &Rig, arguments: &[&str]) -> Value {
    let found = rig.twinpath(&rig.server, &[&["doctor", "--json"], arguments].concat());
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    serde_json::from_str(&found.stdout).unwrap()
}

#[test]
fn the_path_it_names_is_the_one_that_is_taken() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let found = look(&rig, &["vs"]);
    let interface = &found["interfaces"][0];
    let server = rig.serve(&[]);
    assert_eq!(interface["path"], server.path().as_str(), "{found:#}");
    assert_eq!(interface["obstacles"], serde_json::json!([]));
    let reflexes = server.show("interfaces")[0]["reflexes"].clone();
    assert_eq!(server.interrupt(), Some(0));
    // This kernel takes what the server has loaded.
    let can = |name: &str| {
        let abilities = found["host"]["abilities"].as_array().unwrap();
        abilities.iter().find(|ability| ability["name"] == name).unwrap()["can"] == true
    };
    assert_eq!(can("replies by the kernel"), reflexes["off"] == "", "{found:#}");
    assert!(can("replies by the kernel") || !can("kept replies"), "{found:#}");
    // Without a name it looks at all that are up.
    let all = look(&rig, &[]);
    let names: Vec<&str> =
        all["interfaces"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&"vs") && names.contains(&"lo"), "{names:?}");
}

#[test]
fn what_prevents_a_claim_is_told_before_anything_is_served() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let strict = || std::fs::write("/proc/sys/net/ipv4/conf/vs/rp_filter", "1");
    rig.server.run(strict).unwrap().unwrap();
    let said = rig.twinpath(&rig.server, &["doctor", "vs"]).stdout;
    assert!(said.contains("in the way: rp_filter is strict"), "{said}");
    let unknown = rig.twinpath(&rig.server, &["doctor", "vx"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("there is lo, vs"), "{}", unknown.stderr);
}

#[test]
fn without_rights_it_says_which_are_missing() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let doctor = || {
        let program = env!("CARGO_BIN_EXE_twinpath");
        Command::new("setpriv").args(["--bounding-set=-all", "--inh-caps=-all", program, "doctor"]).output()
    };
    let output = rig.server.run(doctor).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains("no  packet path: the packet path needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF"),
        "{said}"
    );
    assert!(said.contains(": kernel: no fast path can be had here"), "{said}");
    // Without the right to mount, /sys cannot be that of this namespace: that is told, and not shown as settings that are all as
    // advised.
    assert!(
        said.contains("could not be looked at:\n  settings of ") && !said.contains("not as advised"),
        "{said}"
    );
}
