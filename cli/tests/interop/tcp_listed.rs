//! Tests of `twinpath show connections`.

use serde_json::Value;

use crate::rig::{CLIENT, Rig, SERVER, SERVER_V6, Server, until};
use crate::root_or_skip;
use crate::tcp::{FAST, connect, echoes, permit_claims, service};

/// What `show connections` prints with these options, as JSON.
fn list(rig: &Rig, server: &Server, options: &str) -> Value {
    let socket = server.socket.to_str().unwrap();
    let options = options.split_whitespace().collect::<Vec<_>>();
    let base = ["show", "connections", "--json", "--socket", socket];
    let finished = rig.twinpath(&rig.server, &[&base[..], &options].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

fn listed(rig: &Rig, server: &Server, options: &str) -> Vec<Value> {
    let answer = list(rig, server, options);
    assert_eq!((&answer["has_more"], &answer["silent_workers"]), (&false.into(), &serde_json::json!([])));
    answer["connections"].as_array().unwrap().clone()
}

#[test]
fn connections_are_listed_with_their_path_why_and_figures() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[&FAST[..], &["--workers", "2"]].concat());
    permit_claims(&rig, true);
    let mut streams = [SERVER, SERVER_V6, SERVER].map(|address| connect(&rig, address));
    streams.iter_mut().for_each(|stream| echoes(stream, &[7; 3000]));
    let all = listed(&rig, &server, "");
    assert_eq!(all.len(), 3, "{all:?}");
    for (stream, family) in streams.iter().zip(["v4", "v6", "v4"]) {
        let (peer, local) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        // A connection of the other family may have the same port.
        let of_family =
            format!("--port {} --peer {}/{}", peer.port(), peer.ip(), if peer.is_ipv4() { 32 } else { 128 });
        let of_port = listed(&rig, &server, &of_family);
        let [found] = &of_port[..] else { panic!("{family}: {of_port:?}") };
        assert_eq!(
            (found["peer"].as_str(), found["local"].as_str()),
            (Some(&*peer.to_string()), Some(&*local.to_string()))
        );
        let texts = ["service", "path", "state", "why"].map(|key| found[key].as_str().unwrap());
        assert_eq!(texts, ["echo", "fast", "established", "its SYN came by the fast path"]);
        assert_eq!(found["bytes_received"], 3000);
        assert!(found["rtt_us"].as_u64() > Some(0) && found["snd_cwnd"].as_u64() > Some(0), "{found}");
    }
    assert_eq!(listed(&rig, &server, &format!("--peer {CLIENT}/32 --path fast")).len(), 2);
    assert_eq!(listed(&rig, &server, "--path kernel").len(), 0);
    let some = list(&rig, &server, "--limit 2");
    assert_eq!((some["connections"].as_array().map(Vec::len), &some["has_more"]), (Some(2), &true.into()));

    permit_claims(&rig, false);
    until("they have moved", || service(&server, "fast_in_kernel") == 3);
    let mut late = connect(&rig, SERVER);
    echoes(&mut late, b"by the kernel");
    let port = late.local_addr().unwrap().port();
    for found in listed(&rig, &server, "--path kernel") {
        let is_late = found["peer"].as_str().unwrap().ends_with(&format!(":{port}"));
        let why = found["why"].as_str().unwrap();
        assert!(
            is_late && why.contains("rp_filter") || why == "it was on the fast path, which ended",
            "{found}"
        );
        assert_eq!(found["state"], "established");
    }
    assert_eq!(listed(&rig, &server, "").len(), 4);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn options_for_connections_are_refused_elsewhere() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    let socket = server.socket.to_str().unwrap();
    let refused = |arguments: &[&str]| {
        let finished = rig.twinpath(&rig.server, &[&["show", "--socket", socket], arguments].concat());
        assert_eq!(finished.code, Some(1), "{}", finished.stdout);
        finished.stderr
    };
    assert!(refused(&["workers", "--limit", "3"]).contains("ask for that"));
    assert!(refused(&["connections", "--limit", "0"]).contains("a list has 1 to 10000 connections"));
    // None, on a service whose TCP is the kernel's.
    let finished = rig.twinpath(&rig.server, &["show", "connections", "--socket", socket]);
    assert_eq!(finished.stdout, "no connections\n");
    assert_eq!(server.interrupt(), Some(0));
}
