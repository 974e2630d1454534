//! Tests of `twinpath reload` and SIGHUP: the present file is applied completely or not at all, without effect on
//! requests being served.

use std::io::{ErrorKind, Read};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::connections::{ask_until_ended, connect, echoes};
use crate::rig::{CLIENT, Finished, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;
use crate::several::{calls, file, serve, service, two};

/// A port that is added later.
const LATER: u16 = 7009;

pub(crate) fn reload(rig: &Rig, server: &Server) -> Finished {
    rig.twinpath(&rig.server, &["reload", "--socket", server.socket.to_str().unwrap()])
}

/// Writes a new file and reloads it; returns the output.
pub(crate) fn reloaded(rig: &Rig, server: &Server, text: &str) -> String {
    file(rig, text);
    let Finished { code, stdout, stderr } = reload(rig, server);
    assert_eq!(code, Some(0), "{stderr}");
    stdout
}

/// The same if it is refused.
fn refused(rig: &Rig, server: &Server, text: &str) -> String {
    file(rig, text);
    let Finished { code, stdout, stderr } = reload(rig, server);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    stderr
}

/// The report of its configuration.
fn configuration(rig: &Rig, server: &Server) -> Value {
    let shown = rig.twinpath(&rig.server, &["show", "--json", "--socket", server.socket.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&shown.stdout).unwrap();
    report["instance"]["configuration"].clone()
}

fn connect_to(rig: &Rig, port: u16) -> TcpStream {
    let stream = rig.client.run(|| TcpStream::connect((SERVER, port))).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn asks(rig: &Rig, port: u16) {
    let socket = rig.client_udp(CLIENT, 0);
    assert_eq!(ask(&socket, SERVER, port, b"asked"), b"asked");
}

/// Waits until the kernel refuses datagrams to a port.
pub(crate) fn until_nobody_has(rig: &Rig, port: u16) {
    let socket = rig.client_udp(CLIENT, 0);
    socket.connect((SERVER, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    until("nobody has the port any more", || {
        let refused = socket.send(b"?").and_then(|_| socket.recv(&mut [0; 16]));
        refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    assert!(rig.client.run(|| TcpStream::connect((SERVER, port))).unwrap().is_err());
}

/// Sends requests as long as the load runs; each must be answered exactly once.
fn ask_each_once(socket: &UdpSocket, server: &Server, answered: &AtomicU64, over: &AtomicBool) {
    for number in 0u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        socket.send_to(&number.to_be_bytes(), (SERVER, PORT)).unwrap();
        let mut answer = [0; 16];
        let Ok((len, _)) = socket.recv_from(&mut answer) else {
            panic!(
                "no answer to {number}: {} {} {}",
                server.show("drops"),
                server.show("services"),
                server.show("rules")
            )
        };
        // A repeated answer would be taken for the next one.
        assert_eq!(answer[..len], number.to_be_bytes());
        answered.fetch_add(1, Ordering::Relaxed);
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv_from(&mut [0; 16]).is_err(), "answered twice");
}

#[test]
fn services_come_and_go_under_load_and_kept_ones_lose_nothing() {
    if !root_or_skip() {
        return;
    }
    for (path, workers) in [("packet", 1), ("packet", 2), ("xdp", 2), ("kernel", 2)] {
        let rig = Rig::new();
        rig.unlimited_icmp();
        let head = format!(
            "path = \"{path}\"\n[worker]\ncount = {workers}\n[limits]\ndrain_ms = 20000\nreply_rate = 0"
        );
        let one = two(&head).split("[[service]]\nname = \"nfs\"").next().unwrap().to_owned();
        let one = one.replace("limits.connections_per_source = 2\n", "");
        let both = format!("{one}[[service]]\nname = \"nfs\"\nkind = \"rpc\"\nudp = 62049\ntcp = 62049\n");
        let more =
            format!("{both}[[service]]\nname = \"more\"\nkind = \"echo\"\nudp = {LATER}\ntcp = {LATER}\n");
        let server = serve(&rig, &one);
        let (counted, broken, over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let datagrams = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (stream, socket) = (connect(&rig), rig.client_udp(CLIENT, 0));
                let (counted, broken, over, datagrams, server) =
                    (&counted, &broken, &over, &datagrams, &server);
                scope.spawn(move || {
                    ask_until_ended(stream, counted, broken, over);
                    broken.fetch_or(!over.load(Ordering::Relaxed), Ordering::Relaxed);
                });
                scope.spawn(move || ask_each_once(&socket, server, datagrams, over));
            }
            let ends = Ends(&over);
            let busy = || {
                let of = || (counted.load(Ordering::Relaxed), datagrams.load(Ordering::Relaxed));
                let before = of();
                until("the load goes on", || of().0 > before.0 + 50 && of().1 > before.1 + 50);
            };
            busy();
            for round in 0..2 {
                let said = reloaded(&rig, &server, &both);
                assert!(said.contains("service `nfs` is new"), "{path} {round}: {said}");
                calls(&rig);
                busy();
                assert!(reloaded(&rig, &server, &more).contains("service `more` is new"));
                asks(&rig, LATER);
                let mut stays = connect_to(&rig, LATER);
                echoes(&mut stays, b"just come");
                let said = reloaded(&rig, &server, &one);
                assert!(said.contains("`nfs` goes") && said.contains("`more` goes"), "{said}");
                // It had been answered, so it is closed.
                assert!(matches!(stays.read(&mut [0; 1]), Ok(0) | Err(_)));
                busy();
                drop(stays);
                until_nobody_has(&rig, LATER);
            }
            drop(ends);
        });
        assert!(!broken.load(Ordering::Relaxed), "{path}: a connection of a kept service was cut off");
        assert_eq!(server.path(), path_name(path), "{path}");
        assert_eq!(service(&server, "echo")["accepted"], 2);
        if path == "packet" {
            assert!(service(&server, "echo")["fast_requests"].as_u64().unwrap() > 0);
            assert_eq!(server.show("rules")["claims"].as_array().unwrap().len(), 1);
        }
        let configuration = configuration(&rig, &server);
        assert_eq!((&configuration["reloads"], &configuration["refused"]), (&6.into(), &0.into()));
        assert_eq!(server.interrupt(), Some(0));
    }
}

fn path_name(asked: &str) -> String {
    match asked {
        "xdp" => "xdp-native",
        path => path,
    }
    .to_owned()
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_service_made_anew_has_its_sockets_still_and_its_peers_come_again() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &two("path = \"packet\""));
    let mut kept = connect_to(&rig, 62_049);
    calls(&rig);
    let allowed = two("path = \"packet\"") + "sources = [\"10.7.0.0/24\"]\nrpc.fragments = 5\n";
    let said = reloaded(&rig, &server, &allowed);
    assert!(
        said.contains("service `nfs` is made anew (sources: [] -> [\"10.7.0.0/24\"], rpc.fragments"),
        "{said}"
    );
    assert!(matches!(kept.read(&mut [0; 1]), Ok(0) | Err(_)), "it has ended");
    calls(&rig);
    let nobody = two("path = \"packet\"") + "sources = [\"192.0.2.0/24\"]\n";
    reloaded(&rig, &server, &nobody);
    let mut refused = connect_to(&rig, 62_049);
    assert!(matches!(refused.read(&mut [0; 1]), Ok(0) | Err(_)), "its source is not served any more");
    assert_eq!(server.drops("source_not_allowed"), 1);
    asks(&rig, PORT);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn limits_and_settings_change_while_connections_go_on() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let base = |worker: &str, limits: &str, more: &str| {
        format!(
            "[interface]\nname = \"vs\"\n[worker]\ncount = 2\n{worker}\n[limits]\n{limits}\n[control]\n{more}\n\
             [service]\nkind = \"echo\"\nudp = {PORT}\ntcp = {PORT}\n"
        )
    };
    let server = serve(&rig, &base("", "", ""));
    let mut kept: Vec<_> = (0..4).map(|_| connect(&rig)).collect();
    kept.iter_mut().for_each(|stream| echoes(stream, b"before"));
    let said = reloaded(
        &rig,
        &server,
        &base("mode = \"interrupt\"", "connections_per_source = 4\ndrain_ms = 1234", "metrics = \"0\""),
    );
    for line in [
        "worker.mode: \"adaptive\" -> \"interrupt\"",
        "limits.drain_ms: 5000 -> 1234",
        "control.metrics: none -> \"127.0.0.1:0\"",
        "service `echo`: limits.connections_per_source: 256 -> 4",
    ] {
        assert!(said.contains(line), "{said}");
    }
    until("both workers are in it", || {
        let workers = server.show("workers");
        workers.as_array().unwrap().iter().all(|worker| worker["mode"] == "interrupt")
    });
    kept.iter_mut().for_each(|stream| echoes(stream, b"after"));
    // Existing ones count.
    let mut fifth = connect(&rig);
    assert!(matches!(fifth.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(kept.pop());
    until("one has gone", || service(&server, "echo")["connections"] == 3);
    echoes(&mut connect(&rig), b"one more is allowed");
    // Times apply to existing connections as well.
    let said =
        reloaded(&rig, &server, &base("mode = \"interrupt\"", "idle_timeout_s = 1", "metrics = \"0\""));
    assert!(said.contains("limits.idle_timeout_s: 600 -> 1"), "{said}");
    for stream in &mut kept {
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
    assert!(server.drops("idle_timeout") >= 3);
    let again = reload(&rig, &server);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "reloaded: nothing differs\n"));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn what_cannot_be_done_is_refused_as_a_whole_and_nothing_changes() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let text = two("path = \"packet\"");
    let server = serve(&rig, &text);
    let mut kept = connect(&rig);
    echoes(&mut kept, b"before");
    let still = |kept: &mut TcpStream| {
        echoes(kept, b"still");
        asks(&rig, PORT);
        calls(&rig);
    };
    // All errors in the file at once, and no part of it is applied.
    let said = refused(
        &rig,
        &server,
        "[interface]\nname = \"vs\"\npath = \"teleport\"\n[worker]\ncount = 99\n[service]\nkind = \"echo\"\nudp = 0\n",
    );
    for part in
        ["nothing was changed", "interface.path", "worker.count: 99", "service.udp", "services.toml:3:"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    still(&mut kept);
    // All changes that need a restart, at once.
    let restart =
        text.replace("packet", "kernel") + "[worker]\ncount = 2\nmode = \"poll\"\n[limits]\npeers = 7\n";
    let said = refused(&rig, &server, &restart);
    for key in ["interface.path: \"packet\" -> \"kernel\"", "worker.count: 1 -> 2", "limits.peers", "restart"]
    {
        assert!(said.contains(key), "{key}: {said}");
    }
    assert_eq!(server.show("workers")[0]["mode"], "adaptive");
    // Another program has one of two ports: the other port is free again.
    let held = rig.server_udp(SERVER, LATER + 1);
    let more =
        |port: u16| format!("[[service]]\nname = \"s{port}\"\nkind = \"echo\"\nudp = {port}\ntcp = {port}\n");
    let several = format!("{text}{}{}", more(LATER), more(LATER + 1));
    let said = refused(&rig, &server, &several);
    assert!(said.contains(&format!("udp port {}", LATER + 1)) && said.contains("stop it"), "{said}");
    drop(rig.server_udp(SERVER, LATER));
    still(&mut kept);
    let shown = rig.twinpath(&rig.server, &["show", "--socket", server.socket.to_str().unwrap()]);
    assert!(
        shown.stdout.contains("services.toml, read") && shown.stdout.contains("last reload was refused"),
        "{}",
        shown.stdout
    );
    drop(held);
    assert!(reloaded(&rig, &server, &several).contains(&format!("service `s{LATER}` is new")));
    asks(&rig, LATER + 1);
    std::fs::remove_file(rig.directory.path().join("services.toml")).unwrap();
    let gone = reload(&rig, &server);
    assert!(gone.stderr.contains("cannot read the configuration"), "{}", gone.stderr);
    still(&mut kept);
    let configuration = configuration(&rig, &server);
    assert_eq!((&configuration["reloads"], &configuration["refused"]), (&1.into(), &4.into()));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn without_a_file_there_is_nothing_to_read_again() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&[]);
    let said = reload(&rig, &server);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("there is no file to read again"), "{}", said.stderr);
    kill_process(server.pid(), Signal::HUP).unwrap();
    server.wait_until_said("not reloaded, and nothing was changed: there is no file");
    asks(&rig, PORT);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn the_service_manager_is_told_of_a_reload_by_signal() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let at = rig.directory.path().join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 256];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).trim().to_owned()
    };
    let text = two("path = \"kernel\"");
    let server = rig.start_with_env(
        &["--config", file(&rig, &text).to_str().unwrap()],
        &[("NOTIFY_SOCKET", at.to_str().unwrap())],
    );
    assert_eq!(heard(), "READY=1");
    let later = format!("{text}[[service]]\nname = \"more\"\nkind = \"echo\"\nudp = {LATER}\n");
    for text in [&later, "nonsense", &text] {
        file(&rig, text);
        kill_process(server.pid(), Signal::HUP).unwrap();
        let reloading = heard();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("with its time");
        assert!(time.parse::<u64>().is_ok_and(|us| us > 0), "{reloading}");
        assert_eq!(heard(), "READY=1");
    }
    server.wait_until_said("service `more` goes");
    assert_eq!(server.interrupt(), Some(0));
}
