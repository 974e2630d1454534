//! Tests of classic filters at tc, which outlive a killed process.

use std::process::Command;

use crate::rig::{CLIENT, CLSACT, PACKET, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// The filters at tc ingress of the server's interface.
pub(crate) fn filters(rig: &Rig) -> String {
    rig.tc_server(&["filter", "show", "dev", "vs", "ingress"])
}

fn has_discipline(rig: &Rig) -> bool {
    rig.tc_server(&["qdisc", "show", "dev", "vs"]).contains("clsact")
}

fn second(rig: &Rig) -> Server {
    let port = (PORT + 1).to_string();
    rig.start(&[&["echo", "--on", "vs", "--udp", &port], CLSACT].concat())
}

/// The kernel's own server on a port answers everything.
fn the_kernel_answers(rig: &Rig, port: u16) {
    let plain = rig.server_udp(SERVER, port);
    let client = rig.client_udp(CLIENT, 0);
    for round in 0..50u8 {
        client.send_to(&[round; 100], (SERVER, port)).unwrap();
        let (len, peer) = plain.recv_from(&mut [0; 200]).expect("nothing is dropped");
        plain.send_to(&[round; 100][..len], peer).unwrap();
        assert_eq!(client.recv(&mut [0; 200]).unwrap(), 100);
    }
}

#[test]
fn a_filter_of_a_killed_instance_drops_nothing_and_tidy_removes_it_and_no_other() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let (killed, living) = (rig.serve(CLSACT), second(&rig));
    let client = rig.client_udp(CLIENT, 0);
    assert_eq!(ask(&client, SERVER, PORT, b"before"), b"before");
    assert_eq!(killed.show("interfaces")[0]["attach"], "clsact");
    assert_eq!(killed.show("interfaces")[0]["left_behind"].as_array(), None);
    let pid = killed.child.id();
    killed.kill();
    assert!(filters(&rig).contains(&format!(":{pid}")), "{}", filters(&rig));
    the_kernel_answers(&rig, PORT);
    let left = living.show("interfaces")[0]["left_behind"].clone();
    assert_eq!(
        (left.as_array().unwrap().len(), left[0]["pid"].as_u64()),
        (1, Some(u64::from(pid))),
        "{left}"
    );
    let only_said = rig.twinpath(&rig.server, &["tidy", "--dry-run"]).stdout;
    assert!(only_said.contains(&format!("process {pid}")), "{only_said}");
    // In a separate PID namespace, where the live process's id has no meaning.
    let tidy = || {
        let program = env!("CARGO_BIN_EXE_twinpath");
        Command::new("unshare").args(["--pid", "--fork", "--mount-proc", program, "tidy"]).output()
    };
    let tidied = rig.server.run(tidy).unwrap().unwrap();
    // Switches of other tests may be in the same place.
    let of_ours = |said: &str| -> Vec<String> {
        said.lines().filter(|line| !line.starts_with("switch ")).map(str::to_owned).collect()
    };
    let said = of_ours(&String::from_utf8_lossy(&tidied.stdout));
    assert!(said.len() == 1 && said[0].contains("vs: removed twinpath_ingress"), "{said:?}");
    assert!(filters(&rig).contains(&format!(":{}", living.child.id())), "{}", filters(&rig));
    let said = of_ours(&rig.twinpath(&rig.server, &["tidy"]).stdout);
    assert!(said.iter().all(|line| line.contains("nothing was left behind")), "{said:?}");
    let before = living.worker("frames_in");
    assert_eq!(ask(&client, SERVER, PORT + 1, b"after"), b"after");
    assert_eq!(living.worker("frames_in"), before + 1);
    assert_eq!(living.interrupt(), Some(0));
    assert!(!has_discipline(&rig), "the last one removes it, whichever instance made it");
}

#[test]
fn the_next_start_removes_what_was_left_on_its_interface_whatever_path_it_takes() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    for next in [CLSACT, PACKET, &["--path", "kernel"]] {
        rig.serve(CLSACT).kill();
        assert!(filters(&rig).contains("twinpath_ingress"));
        let server = rig.serve(next);
        server.wait_until_said("had left when it was killed");
        assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"again"), b"again");
        // Without tcx, every packet path has a filter.
        let has_one = server.show("interfaces")[0]["attach"] == "clsact";
        assert!(has_one || next != CLSACT);
        assert_eq!(filters(&rig).matches("direct-action").count(), usize::from(has_one), "{next:?}");
        assert_eq!(server.interrupt(), Some(0));
        assert!(!has_discipline(&rig), "{next:?}");
    }
}

#[test]
fn a_filter_that_somebody_removes_is_put_back() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(CLSACT);
    rig.tc_server(&["qdisc", "del", "dev", "vs", "clsact"]);
    server.wait_until_said("it is back");
    until("it withholds again", || filters(&rig).contains("twinpath_ingress"));
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"still"), b"still");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn tidy_says_which_right_it_lacks() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    rig.serve(CLSACT).kill();
    let tidy = || {
        let program = env!("CARGO_BIN_EXE_twinpath");
        Command::new("setpriv").args(["--bounding-set=-all", "--inh-caps=-all", program, "tidy"]).output()
    };
    let output = rig.server.run(tidy).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("CAP_NET_ADMIN"), "{said}");
    assert!(rig.twinpath(&rig.server, &["tidy"]).stdout.contains("removed"));
}
