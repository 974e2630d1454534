//! Tests of several services in one instance, from one file.

use std::io::{Read, Write};
use std::path::PathBuf;

use serde_json::Value;
use twinpath_rpc::client::{Auth, Call, Reply};
use twinpath_rpc::nfs3_types::nfs3;

use crate::connections::{connect, echoes};
use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// The port of the second service.
const RPC: u16 = 62_049;

/// Writes a configuration file of the rig; returns its path.
pub(crate) fn file(rig: &Rig, text: &str) -> PathBuf {
    let file = rig.directory.path().join("services.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// A configuration with an echo service and an RPC service, and additional lines for the instance.
pub(crate) fn two(more: &str) -> String {
    format!(
        "[interface]\nname = \"vs\"\n{more}\n\
         [[service]]\nkind = \"echo\"\nudp = {PORT}\ntcp = {PORT}\nlimits.connections_per_source = 2\n\
         [[service]]\nname = \"nfs\"\nkind = \"rpc\"\nudp = {RPC}\ntcp = {RPC}\n"
    )
}

pub(crate) fn serve(rig: &Rig, text: &str) -> Server {
    rig.start(&["--config", file(rig, text).to_str().unwrap()])
}

fn null_call(xid: u32) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: nfs3::PROGRAM, version: 3, procedure: 0, auth: &Auth::none(), args: &[] }
        .write(&mut message);
    message
}

/// Makes an RPC call by UDP and one by TCP.
pub(crate) fn calls(rig: &Rig) {
    let socket = rig.client_udp(CLIENT, 0);
    let reply = ask(&socket, SERVER, RPC, &null_call(7));
    assert_eq!(Reply::parse(&reply).unwrap().verify_null(), Ok(()));
    let mut stream = rig.client.run(|| std::net::TcpStream::connect((SERVER, RPC))).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let call = null_call(8);
    let mark = call.len() as u32 | 1 << 31;
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(Reply::parse(&reply[4..]).unwrap().verify_null(), Ok(()));
}

/// The service of that name, as it is shown.
pub(crate) fn service(server: &Server, name: &str) -> Value {
    let services = server.show("services");
    let services = services.as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap_or_else(|| panic!("{services:?}")).clone()
}

#[test]
fn one_instance_serves_what_a_file_says_on_each_path_with_counters_and_limits_of_each() {
    if !root_or_skip() {
        return;
    }
    for (path, workers) in [("packet", 1), ("xdp", 2), ("kernel", 2)] {
        let rig = Rig::of_workers();
        let server = serve(&rig, &two(&format!("path = \"{path}\"\n[worker]\ncount = {workers}")));
        let socket = rig.client_udp(CLIENT, 0);
        for round in 0..20u8 {
            assert_eq!(ask(&socket, SERVER, PORT, &[round; 40]), [round; 40], "{path}");
            calls(&rig);
        }
        let (echo, nfs) = (service(&server, "echo"), service(&server, "nfs"));
        let requests = |service: &Value| {
            service["fast_requests"].as_u64().unwrap() + service["kernel_requests"].as_u64().unwrap()
        };
        assert_eq!((requests(&echo), requests(&nfs)), (20, 20), "{path}");
        assert_eq!(nfs["requests"]["answered"], 40, "{path}");
        assert_eq!(echo["fast_requests"].as_u64().unwrap() > 0, path != "kernel", "{path}");
        // Echo accepts only two connections; the other service accepts more.
        let mut kept = [connect(&rig), connect(&rig)];
        kept.iter_mut().for_each(|stream| echoes(stream, b"kept"));
        let mut third = connect(&rig);
        assert!(matches!(third.read(&mut [0; 1]), Ok(0) | Err(_)));
        until("it is counted", || server.drops("source_limit") == 1);
        let drops = server.show("drops");
        let place = drops.as_array().unwrap().iter().find(|drop| drop["reason"] == "source_limit").unwrap();
        assert!(place["place"].as_str().unwrap().ends_with(" echo"), "{place}");
        calls(&rig);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn services_are_taken_over_together_and_nothing_is_lost() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let text = two("path = \"packet\"");
    let former = serve(&rig, &text);
    calls(&rig);
    let file = file(&rig, &text);
    let new =
        rig.start(&["--config", file.to_str().unwrap(), "--take-over", former.socket.to_str().unwrap()]);
    calls(&rig);
    echoes(&mut connect(&rig), b"taken over");
    assert_eq!(service(&new, "nfs")["requests"]["answered"], 2);
    assert_eq!(new.interrupt(), Some(0));
}

#[test]
fn all_ports_that_are_held_are_named_at_once() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let _held = (rig.server_udp(SERVER, PORT), rig.server_udp(SERVER, RPC));
    let file = file(&rig, &two(""));
    let socket = rig.directory.path().join("refused.sock");
    let arguments = ["serve", "--config", file.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let refused = rig.twinpath(&rig.server, &arguments);
    assert_eq!(refused.code, Some(1));
    for port in [PORT, RPC] {
        assert!(refused.stderr.contains(&format!("udp port {port}")), "{}", refused.stderr);
    }
}

#[test]
fn what_a_command_and_a_file_say_must_fit() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let file = file(&rig, &two(""));
    let said = |arguments: &[&str]| {
        let finished = rig.twinpath(&rig.server, &[&["serve"], arguments].concat());
        assert_ne!(finished.code, Some(0), "{arguments:?} started");
        finished.stderr
    };
    let several = said(&["echo", "--config", file.to_str().unwrap()]);
    assert!(several.contains("2 services") && several.contains("twinpath serve --config"), "{several}");
    let nothing = said(&[]);
    assert!(nothing.contains("what is to be served?") && nothing.contains("--config FILE"), "{nothing}");
}
