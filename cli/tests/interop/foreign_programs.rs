//! Tests of foreign programs on our interface, before and after ours: xdp-filter and xdpdump of xdp-tools, iproute2's
//! loader, and programs at tc ingress.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use twinpath_test_rig::within;

use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, answered, ask, until};
use crate::root_or_skip;

/// Programs that are attached as other tools do it.
pub(crate) const FOREIGN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../stack/bpf/object/foreign.o");

/// The server's side of a rig with its own BPF file system and run directory, where xdp-tools keeps pins and locks.
pub(crate) struct Tools<'a> {
    rig: &'a Rig,
    holder: Child,
}

impl<'a> Tools<'a> {
    pub(crate) fn new(rig: &'a Rig) -> Self {
        let mut command = Command::new("unshare");
        let hold = "mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs tmpfs /run && echo ready && exec cat";
        command.args(["--mount", "sh", "-c", hold]).stdin(Stdio::piped()).stdout(Stdio::piped());
        within(&rig.server, &mut command);
        let mut holder = command.spawn().expect("util-linux is installed");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "a BPF file system can be mounted");
        Self { rig, holder }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command.arg(program).args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        within(&self.rig.server, &mut command);
        command
    }

    /// Runs a tool to its end; returns whether it succeeded, and its output.
    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.command(program, arguments).output().expect("nsenter is installed");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub(crate) fn must(&self, program: &str, arguments: &[&str]) {
        let (success, said) = self.run(program, arguments);
        assert!(success, "{program} {arguments:?}: {said}");
    }

    pub(crate) fn load_filter(&self, mode: &str) {
        self.must("xdp-filter", &["load", "--mode", mode, "vs"]);
    }
}

impl Drop for Tools<'_> {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The foreign program that `show` names, if any.
pub(crate) fn named(server: &Server) -> Option<String> {
    server.show("interfaces")[0]["device"]["foreign_xdp"].as_str().map(str::to_owned)
}

fn why(server: &Server) -> String {
    server.show("interfaces")[0]["why"].as_str().unwrap().to_owned()
}

/// xdp-filter's program by its own name, or libxdp's dispatcher if the kernel permits it.
fn is_xdp_filter(name: &str) -> bool {
    name.contains("xdpfilt_") && name.contains("of xdp-filter") || name.contains("xdp_dispatcher of libxdp")
}

/// Checks that answers come on the fast path, exactly one to each request.
fn serves(rig: &Rig, server: &Server) {
    let client = rig.client_udp(CLIENT, 0);
    // The first one may meet a device that is being changed, or a peer not known yet.
    until("an answer comes", || answered(&client, SERVER, b"warm"));
    let before = server.worker("frames_in");
    for number in 0..20u8 {
        assert_eq!(ask(&client, SERVER, PORT, &[number]), [number]);
    }
    assert!(server.worker("frames_in") >= before + 20, "requests come by the fast path");
    assert!(!answered_twice(&client), "an answer came twice");
}

fn answered_twice(client: &std::net::UdpSocket) -> bool {
    client.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    let more = client.recv(&mut [0; 64]).is_ok();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    more
}

#[test]
fn xdp_filter_before_us_stays_filters_and_may_go() {
    if !root_or_skip() {
        return;
    }
    for mode in ["native", "skb"] {
        let rig = Rig::of_workers();
        let tools = Tools::new(&rig);
        tools.load_filter(mode);
        let refusal = rig.try_serve(&["--path", "xdp"]).err().expect("xdp is refused");
        assert!(is_xdp_filter(&refusal) && refusal.contains("we replace no program"), "{refusal}");
        let server = rig.serve(&[]);
        assert_eq!(server.path(), "packet");
        let name = named(&server).expect("it is named");
        assert!(is_xdp_filter(&name), "{name}");
        assert!(name.contains(if mode == "skb" { "generic" } else { "native" }), "{name}");
        assert!(why(&server).contains(&name) && why(&server).contains("every packet passes it first"));
        serves(&rig, &server);
        // Frames that it filters never reach us.
        let port = PORT.to_string();
        tools.must("xdp-filter", &["port", "--proto", "udp", "--mode", "dst", &port]);
        let before = server.worker("frames_in");
        assert!(!answered(&rig.client_udp(CLIENT, 0), SERVER, b"filtered"), "it filters");
        assert_eq!(server.worker("frames_in"), before);
        tools.must("xdp-filter", &["port", "--remove", "--proto", "udp", "--mode", "dst", &port]);
        serves(&rig, &server);
        tools.must("xdp-filter", &["unload", "vs"]);
        assert_eq!((named(&server), server.path()), (None, "packet".to_owned()));
        assert!(!why(&server).contains("xdpfilt_"), "{}", why(&server));
        serves(&rig, &server);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn xdp_filter_after_us_on_the_packet_path_is_noticed_and_takes_nothing() {
    if !root_or_skip() {
        return;
    }
    for mode in ["native", "skb"] {
        let rig = Rig::of_workers();
        let tools = Tools::new(&rig);
        let server = rig.serve(&["--path", "packet"]);
        serves(&rig, &server);
        assert_eq!(named(&server), None);
        tools.load_filter(mode);
        let name = named(&server).expect("it is named at once");
        assert!(is_xdp_filter(&name), "{name}");
        serves(&rig, &server);
        assert_eq!(server.path(), "packet");
        tools.must("xdp-filter", &["unload", "vs"]);
        assert_eq!(named(&server), None);
        serves(&rig, &server);
        // Our program is detached, and no foreign one remains.
        tools.load_filter(mode);
        assert_eq!(server.interrupt(), Some(0));
        let (_, status) = tools.run("xdp-filter", &["status"]);
        assert!(status.contains("vs"), "theirs stays when we go: {status}");
    }
}

#[test]
fn nobody_gets_in_beside_us_on_the_xdp_path_and_we_go_on() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let tools = Tools::new(&rig);
    let server = rig.serve(&["--path", "xdp"]);
    serves(&rig, &server);
    for mode in ["native", "skb"] {
        let (success, said) = tools.run("xdp-filter", &["load", "--mode", mode, "vs"]);
        assert!(!success, "{mode}: {said}");
    }
    for (arguments, why) in [
        (vec!["link", "set", "dev", "vs", "xdp", "obj", FOREIGN, "sec", "xdp"], "not replaced"),
        (vec!["-force", "link", "set", "dev", "vs", "xdp", "obj", FOREIGN, "sec", "xdp"], "not by force"),
        (vec!["link", "set", "dev", "vs", "xdp", "off"], "not taken off"),
    ] {
        let (success, said) = tools.run("ip", &arguments);
        assert!(!success, "{why}: {said}");
    }
    assert_eq!((named(&server), server.path()), (None, "xdp-native".to_owned()));
    serves(&rig, &server);
    assert_eq!(server.interrupt(), Some(0));
    tools.load_filter("native");
}

#[test]
fn a_program_that_iproute2_attached_is_named_and_stays() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let tools = Tools::new(&rig);
    tools.must("ip", &["link", "set", "dev", "vs", "xdp", "obj", FOREIGN, "sec", "xdp"]);
    let server = rig.serve(&[]);
    assert_eq!(server.path(), "packet");
    let name = named(&server).unwrap();
    assert!(name.starts_with("the XDP program foreign_xdp (id ") && name.ends_with(", native)"), "{name}");
    serves(&rig, &server);
    assert_eq!(server.interrupt(), Some(0));
    let (_, links) = tools.run("ip", &["-d", "link", "show", "vs"]);
    assert!(links.contains("foreign_xdp"), "it stays when we go: {links}");
}

/// Runs xdpdump while requests are answered; returns its output.
fn dump(rig: &Rig, tools: &Tools<'_>, server: &Server, arguments: &[&str]) -> String {
    // By lines, although it writes to a pipe.
    let line_by_line = ["-oL", "xdpdump", "-i", "vs"];
    let mut child = tools.command("stdbuf", &[&line_by_line, arguments].concat()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    // It prints that it listens, or why not.
    while !said.contains("listening on") && stderr.read_line(&mut said).unwrap() > 0 {}
    serves(rig, server);
    // It prints frames when a block of them is full or a second old; nothing, if it has ended.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    stderr.read_to_string(&mut said).unwrap();
    stdout.read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn xdpdump_looks_at_us_on_every_path_and_leaves_all_as_it_was() {
    if !root_or_skip() {
        return;
    }
    for path in ["xdp", "packet"] {
        let rig = Rig::of_workers();
        let tools = Tools::new(&rig);
        let server = rig.serve(&["--path", path]);
        let said = dump(&rig, &tools, &server, &[]);
        if said.contains("Operation not permitted") {
            // It traces a program by fentry, which a kernel may refuse to all: then the attempt is visible.
            assert_eq!(path, "xdp", "{said}");
        } else {
            let frames = said.matches("packet size").count();
            assert!(frames > 0, "{path}: no request was seen: {said}");
        }
        assert!(!said.contains("BTF"), "our program has the type information it needs: {said}");
        serves(&rig, &server);
        assert_eq!(named(&server), None);
        // A program of its own if there is none.
        if path == "packet" {
            dump(&rig, &tools, &server, &["--load-xdp-program"]);
            serves(&rig, &server);
            assert_eq!(named(&server), None, "it takes its program along");
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn xdpdumps_own_program_before_us_is_named() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let tools = Tools::new(&rig);
    let mut child = tools.command("xdpdump", &["-i", "vs", "--load-xdp-program"]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening on") && stderr.read_line(&mut said).unwrap() > 0 {}
    let server = rig.serve(&[]);
    let name: Option<String> = named(&server);
    // If the kernel refuses tracing, it has ended and its program is gone.
    if child.try_wait().unwrap().is_none() {
        assert!(name.is_some_and(|name| name.contains("of xdpdump")), "{said}");
    }
    serves(&rig, &server);
    let _ = child.kill();
    let _ = child.wait();
    serves(&rig, &server);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn filters_at_clsact_stand_behind_us_and_see_only_what_is_the_kernels() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let tools = Tools::new(&rig);
    let filter = ["filter", "add", "dev", "vs", "ingress", "bpf", "da", "obj", FOREIGN, "sec"];
    tools.must("tc", &["qdisc", "add", "dev", "vs", "clsact"]);
    for program in ["classifier/pass", "classifier/drop"] {
        // Before us.
        tools.must("tc", &[&filter[..], &[program]].concat());
        let server = rig.serve(&["--path", "packet"]);
        let client = rig.client_udp(CLIENT, 0);
        let drops = program.ends_with("drop");
        // A foreign program that drops every frame drops the kernel's traffic, including ARP, but claimed frames are
        // served.
        if drops {
            let (client_mac, _) = rig.macs();
            let mac = client_mac.map(|byte| format!("{byte:02x}")).join(":");
            rig.ip_server(&["neigh", "replace", CLIENT, "lladdr", &mac, "dev", "vs"]);
            let (_, server_mac) = rig.macs();
            let mac = server_mac.map(|byte| format!("{byte:02x}")).join(":");
            rig.ip_client(&["neigh", "replace", SERVER, "lladdr", &mac, "dev", "vc"]);
        }
        serves(&rig, &server);
        let unclaimed = rig.server_udp(SERVER, PORT + 1);
        unclaimed.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        client.send_to(b"the kernel's", (SERVER, PORT + 1)).unwrap();
        assert_eq!(
            unclaimed.recv(&mut [0; 64]).is_err(),
            drops,
            "{program} decides on the kernel's own traffic"
        );
        // After us: removed, and attached again.
        tools.must("tc", &["filter", "del", "dev", "vs", "ingress"]);
        serves(&rig, &server);
        tools.must("tc", &[&filter[..], &[program]].concat());
        serves(&rig, &server);
        assert_eq!(server.interrupt(), Some(0));
        tools.must("tc", &["filter", "del", "dev", "vs", "ingress"]);
    }
}

#[test]
fn what_attaching_costs_is_measured_before_it_is_done_and_shown() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    // Larger than any noise, so that the path does not depend on the machine.
    let server = rig.serve(&["--measure-fallback", "--fallback-loss-max", "100"]);
    assert_eq!(server.path(), "packet");
    let fallback = server.show("interfaces")[0]["fallback"].clone();
    assert_eq!((fallback.as_array().map(Vec::len), fallback[0]["path"].as_str()), (Some(1), Some("packet")));
    let measures = fallback[0]["measures"].as_array().unwrap();
    let names: Vec<_> = measures.iter().map(|measure| measure["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["kernel-rtt", "kernel-bulk", "kernel-rate"]);
    for measure in measures {
        assert!(
            measure["before"].as_f64().unwrap() > 0.0 && measure["after"].as_f64().unwrap() > 0.0,
            "{measure}"
        );
        assert!(measure["ratio"].as_f64().unwrap() > 0.0, "{measure}");
    }
    assert!(fallback[0]["programs"].as_array().is_some_and(|programs| programs.len() == 12), "{fallback}");
    serves(&rig, &server);
    assert_eq!(server.interrupt(), Some(0));
}
