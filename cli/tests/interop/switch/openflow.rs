//! Tests of a switch that controllers rule: what they are told, and what becomes of frames.

use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};
use twinpath_openflow_wire::{
    Action, Bucket, Field, FlowMod, FlowRemovedReason, GroupMod, GroupModCommand, GroupType, Match,
    MatchField, Message, Multipart, MultipartReply, MultipartRequest, PacketInReason, Port, PortMod,
    PortReason, Role, RoleMessage, flow_flags, number, port_config, port_features, port_state,
};
use twinpath_sys::ethtool::{Offload, set_offload};
use twinpath_sys::{PacketSocket, StoppedThread};

use super::controller::{Controller, flow, output};
use super::{Site, next, terminate};
use crate::fail_open::thread_of;
use crate::rig::{Server, ip, until};
use crate::root_or_skip;

/// An EtherType for experiments, which no host answers.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

const DROPS: &[&str] = &["--port", "p1", "--port", "p2", "--port", "p3"];

/// Where the switch of a site listens.
fn path(site: &Site) -> PathBuf {
    site.rig.directory.path().join("of")
}

/// A switch of three hosts that listens for controllers.
fn switch(site: &Site, more: &[&str]) -> Server {
    let listen = format!("unix:{}", path(site).display());
    site.switch(&[&["sw0"], DROPS, &["--listen", &listen], more].concat())
}

/// What is shown of its OpenFlow.
fn openflow(server: &Server) -> Value {
    server.answer("ports")["switch"]["openflow"].clone()
}

/// A frame for every host, with this number in it.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(ETHERTYPE);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The number of the next such frame that a host sees.
fn numbered(seen: &PacketSocket) -> u32 {
    loop {
        let frame = next(seen).expect("a frame comes");
        if frame.get(12..14) == Some(&ETHERTYPE) {
            return u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"));
        }
    }
}

fn from_port(port: u32) -> Match {
    Match::new([MatchField::exact(Field::InPort, port.into())]).expect("a match")
}

/// All frames of that type, which hosts do not send by themselves.
fn of_type() -> Match {
    Match::new([MatchField::exact(Field::EthType, 0x88b5)]).expect("a match")
}

/// The ports as the switch describes them.
fn ports(controller: &mut Controller<impl std::io::Read + std::io::Write>) -> Vec<Port> {
    let body = MultipartRequest::PortDesc;
    controller.send(&Message::MultipartRequest(Box::new(Multipart { more: false, body })));
    let reply =
        controller.expect("a description of ports", |message| matches!(message, Message::MultipartReply(_)));
    match reply {
        Message::MultipartReply(part) => match part.body {
            MultipartReply::PortDesc(ports) => ports,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_barrier_is_true_and_frames_go_as_the_controller_says() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    for workers in ["1", "2"] {
        let server = switch(&site, &["--workers", workers]);
        let mut controller = Controller::connect(&path(&site));
        controller.send(&Message::FeaturesRequest);
        let features = controller.expect("features", |message| matches!(message, Message::FeaturesReply(_)));
        let Message::FeaturesReply(features) = features else { panic!("{features:?}") };
        assert_eq!(openflow(&server)["datapath_id"], format!("{:016x}", features.datapath_id));
        let described = ports(&mut controller);
        let numbers: Vec<_> = described.iter().map(|port| (port.port_no, port.name.as_str())).collect();
        assert_eq!(numbers, [(1, "p1"), (2, "p2"), (3, "p3")]);
        for port in &described {
            // What the kernel says of a veth (drivers/net/veth.c, veth_get_link_ksettings).
            assert_eq!(port.curr, port_features::FULL_10_GBIT | port_features::COPPER);
            assert_eq!((port.curr_speed, port.max_speed, port.supported), (10_000_000, 10_000_000, 0));
        }

        let (sender, second, third) = (site.listen(1), site.listen(2), site.listen(3));
        for round in 0..200 {
            controller.add(flow(of_type(), &[output(2 + round % 2)]));
            controller.barrier();
            sender.send(&frame(round)).expect("sent");
            let seen = if round % 2 == 0 { &second } else { &third };
            assert_eq!(numbered(seen), round, "judged by the flow that was there before the barrier");
        }
        // Nothing came to the other one in between.
        controller.add(flow(of_type(), &[output(2), output(3)]));
        controller.barrier();
        sender.send(&frame(1000)).expect("sent");
        assert_eq!((numbered(&second), numbered(&third)), (1000, 1000));
        assert_eq!(terminate(server), Some(0));
    }
}

#[test]
fn a_worker_that_is_stopped_holds_no_barrier_up_and_judges_nothing_by_what_held_before() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    for workers in ["1", "2"] {
        let server = switch(&site, &["--workers", workers]);
        let mut controller = Controller::connect(&path(&site));
        let (sender, second, third) = (site.listen(1), site.listen(2), site.listen(3));
        controller.add(flow(of_type(), &[output(2)]));
        controller.barrier();
        sender.send(&frame(1)).expect("sent");
        assert_eq!(numbered(&second), 1);

        let stopped = StoppedThread::stop(thread_of(&server, 0)).expect("stopped");
        for change in 0..3 {
            controller.add(flow(of_type(), &[output(3), output(3)]));
            controller.add(flow(of_type(), &[output(3)]));
            controller.barrier();
            sender.send(&frame(10 + change)).expect("sent");
        }
        assert_eq!(openflow(&server)["waiting_for"], json!([0]));
        drop(stopped);
        let is_back = || openflow(&server)["waiting_for"].as_array().is_some_and(Vec::is_empty);
        until("the worker takes changes again", is_back);
        controller.add(flow(of_type(), &[output(2), output(3)]));
        controller.barrier();
        sender.send(&frame(1000)).expect("sent");
        assert_eq!(numbered(&second), 1000, "nothing was judged by the former flow");
        let late: Vec<_> =
            std::iter::repeat_with(|| numbered(&third)).take_while(|seen| *seen != 1000).collect();
        assert!(late.is_sorted() && late.iter().all(|seen| (10..13).contains(seen)), "{late:?}");
        assert_eq!(terminate(server), Some(0));
    }
}

#[test]
fn a_controller_gets_frames_and_sends_some_and_hears_what_ends() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &[]);
    let mut controller = Controller::connect(&path(&site));
    let miss = flow(of_type(), &[output(number::port::CONTROLLER)]);
    controller.add(FlowMod { cookie: 77, ..miss });
    controller.barrier();
    let (first, second) = (site.listen(1), site.listen(2));
    first.send(&frame(5)).expect("sent");
    let came = controller.expect("a packet-in", |message| matches!(message, Message::PacketIn(_)));
    let Message::PacketIn(came) = came else { panic!("{came:?}") };
    assert_eq!((&came.data[..], came.cookie, came.reason), (&frame(5)[..], 77, PacketInReason::Action));
    assert_eq!(came.matches.get(Field::InPort).map(|port| port.value), Some(1));

    controller.packet_out(&[output(2)], &frame(6));
    assert_eq!(numbered(&second), 6);
    // Through the tables, by flows that were put in just before.
    controller.add(flow(of_type(), &[output(1), output(2)]));
    controller.packet_out(&[output(number::port::TABLE)], &frame(7));
    assert_eq!((numbered(&first), numbered(&second)), (7, 7));

    let flow = flow(from_port(3), &[output(1)]);
    let timed =
        FlowMod { hard_timeout_s: 1, flags: flow_flags::SEND_FLOW_REM, cookie: 9, priority: 7, ..flow };
    controller.add(timed);
    let gone = controller.expect("a flow-removed", |message| matches!(message, Message::FlowRemoved(_)));
    let Message::FlowRemoved(gone) = gone else { panic!("{gone:?}") };
    assert_eq!((gone.cookie, gone.priority, gone.reason), (9, 7, FlowRemovedReason::HardTimeout));
    assert!(gone.duration_s >= 1);

    let shown = server.show("flows");
    assert_eq!(shown[0]["matches"], "eth_type=0x88b5");
    assert_eq!(shown[0]["instructions"], "output:1,output:2");
    let openflow = openflow(&server);
    assert_eq!((&openflow["packet_ins"], &openflow["packet_outs"]), (&1.into(), &2.into()));
    assert_eq!((&openflow["flows"], &openflow["connected"]), (&1.into(), &1.into()));
    assert_eq!(server.show("controllers")[1]["role"], "equal");
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn ports_that_change_are_told_and_groups_follow_them() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &[]);
    let mut controller = Controller::connect(&path(&site));
    let bucket = |port| Bucket {
        weight: 0,
        watch_port: port,
        watch_group: number::group::ANY,
        actions: [output(port)].into(),
    };
    controller.send(&Message::GroupMod(Box::new(GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::FastFailover,
        group_id: 1,
        buckets: [bucket(2), bucket(3)].into(),
    })));
    controller.add(flow(of_type(), &[Action::Group(1)]));
    controller.barrier();
    let (first, second, third) = (site.listen(1), site.listen(2), site.listen(3));
    first.send(&frame(1)).expect("sent");
    assert_eq!(numbered(&second), 1);

    ip(&site.hosts[1], &["link", "set", "eth0", "down"]);
    let status =
        |message: &Message| matches!(message, Message::PortStatus(status) if status.port.port_no == 2);
    let Message::PortStatus(down) = controller.expect("a port-status", status) else { panic!() };
    assert_eq!((down.reason, down.port.state), (PortReason::Modify, port_state::LINK_DOWN));
    controller.barrier();
    first.send(&frame(2)).expect("sent");
    assert_eq!(numbered(&third), 2);
    ip(&site.hosts[1], &["link", "set", "eth0", "up"]);
    let Message::PortStatus(up) = controller.expect("a port-status", status) else { panic!() };
    assert_eq!(up.port.state, port_state::LIVE);
    // The former socket has an error of the time when the interface was down.
    let second = site.listen(2);

    // A controller closes a port for what comes in.
    let described = ports(&mut controller);
    let hw_addr = described.iter().find(|port| port.port_no == 1).expect("port 1").hw_addr;
    let set = |config| PortMod { port_no: 1, hw_addr, config, mask: port_config::NO_RECV, advertise: 0 };
    controller.send(&Message::PortMod(set(port_config::NO_RECV)));
    controller.barrier();
    let before = server.drops("port_down");
    first.send(&frame(3)).expect("sent");
    until("the frame is dropped", || server.drops("port_down") > before);
    controller.send(&Message::PortMod(set(0)));
    controller.barrier();
    first.send(&frame(4)).expect("sent");
    assert_eq!(numbered(&second), 4);

    let change = |arguments: &[&str]| {
        let socket = server.socket.display().to_string();
        let all = [&["port"], arguments, &["--socket", &socket]].concat();
        let finished = site.rig.twinpath(&site.rig.server, &all);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    };
    change(&["remove", "p3"]);
    let third = |reason| move |message: &Message| matches!(message, Message::PortStatus(status) if status.port.port_no == 3 && status.reason == reason);
    controller.expect("a port-status of the port's end", third(PortReason::Delete));
    change(&["add", "p3,number=3"]);
    controller.expect("a port-status of a new port", third(PortReason::Add));
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn one_of_several_controllers_is_master() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &[]);
    let (mut one, mut other) = (Controller::connect(&path(&site)), Controller::connect(&path(&site)));
    let ask = |role, generation_id| Message::RoleRequest(RoleMessage { role, generation_id });
    for (controller, generation) in [(&mut one, 1), (&mut other, 2)] {
        controller.send(&ask(Role::Master, generation));
        let reply = controller.expect("a role", |message| matches!(message, Message::RoleReply(_)));
        let Message::RoleReply(reply) = reply else { panic!("{reply:?}") };
        assert_eq!(reply.role, Role::Master);
    }
    one.add(flow(of_type(), &[output(2)]));
    let refused = one.expect("an error", |message| matches!(message, Message::Error(_)));
    let Message::Error(refused) = refused else { panic!("{refused:?}") };
    assert_eq!((refused.error_type, refused.code), (1, 10), "OFPBRC_IS_SLAVE");
    other.add(flow(of_type(), &[output(2)]));
    other.barrier();
    let roles: Vec<_> = server
        .show("controllers")
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["role"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(roles, ["slave", "master"]);
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn a_switch_killed_amid_changes_leaves_its_interfaces_dark_and_starts_again() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &[]);
    let mut controller = Controller::connect(&path(&site));
    controller.add(flow(of_type(), &[output(2)]));
    controller.barrier();
    let (first, second) = (site.listen(1), site.listen(2));
    first.send(&frame(1)).expect("sent");
    assert_eq!(numbered(&second), 1);
    // More than its sockets hold: it is at work when it ends.
    let stream = controller.into_stream();
    let storm = std::thread::spawn(move || {
        let (mut stream, mut bytes) = (stream, Vec::new());
        for number in 0..1000_u32 {
            let one = MatchField::exact(Field::Metadata, number.into());
            let change = flow(Match::new([one]).expect("a match"), &[output(3)]);
            Message::FlowMod(Box::new(change)).encode(1, &mut bytes).expect("it fits");
        }
        while std::io::Write::write_all(&mut stream, &bytes).is_ok() {}
    });
    until("changes are made", || openflow(&server)["flows"].as_u64() > Some(500));
    server.kill();
    storm.join().expect("it ends with the connection");

    first.send(&frame(2)).expect("sent");
    let server = switch(&site, &[]);
    assert_eq!(openflow(&server)["flows"], 0);
    let mut controller = Controller::connect(&path(&site));
    controller.add(flow(of_type(), &[output(2)]));
    controller.barrier();
    first.send(&frame(3)).expect("sent");
    assert_eq!(numbered(&second), 3, "nobody has carried the one before");
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn without_a_controller_flows_stay_or_addresses_decide() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let listener = site.rig.server.run(|| TcpListener::bind("127.0.0.1:0")).expect("entered").expect("bound");
    let address = format!("tcp:{}", listener.local_addr().expect("bound"));
    for (mode, rules) in [("secure", "flows"), ("standalone", "addresses")] {
        let server =
            site.switch(&[&["sw0"], DROPS, &["--controller", &address, "--fail-mode", mode]].concat());
        let forwarding = || openflow(&server)["forwarding"].clone();
        let accept = || Controller::over(listener.accept().expect("the switch connects").0);
        let mut controller = accept();
        let states = || server.show("controllers")[0]["state"].clone();
        until("the switch says so", || states() == "connected");
        // Nothing is sent from 1 to 2, nor back, but this.
        controller.add(flow(of_type(), &[output(2)]));
        controller.barrier();
        assert!(!site.tries(1, 2));
        assert_eq!(forwarding(), "flows");
        drop(controller);
        until("the connection is lost", || states() != "connected");
        if mode == "standalone" {
            until("addresses decide", || forwarding() == "addresses");
            site.passes(1, 2);
        } else {
            assert!(!site.tries(1, 2));
        }
        assert_eq!(forwarding(), rules);
        let (first, second) = (site.listen(1), site.listen(2));
        let mut controller = accept();
        controller.barrier();
        until("flows decide", || forwarding() == "flows");
        first.send(&frame(8)).expect("sent");
        assert_eq!(numbered(&second), 8, "the flow has stayed");
        assert!(!site.tries(1, 2));
        server.wait_until_said("is connected");
        assert_eq!(terminate(server), Some(0));
    }
}

#[test]
fn controllers_and_the_fail_mode_change_while_the_switch_runs() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let folder = site.rig.directory.path();
    let (file, first, second) = (folder.join("switch.toml"), folder.join("one"), folder.join("two"));
    let write = |keys: &str| {
        let ports = "[[switch.port]]\nname = \"p1\"\nnumber = 7\n[[switch.port]]\nname = \"p2\"\n";
        std::fs::write(&file, format!("[switch]\nname = \"sw0\"\n{keys}\n{ports}")).expect("written");
    };
    let listen = |path: &PathBuf| format!("listen = [\"unix:{}\"]", path.display());
    write(&listen(&first));
    let server = site.switch(&["--config", &file.display().to_string()]);
    let reload = || {
        let socket = server.socket.display().to_string();
        let said = site.rig.twinpath(&site.rig.server, &["reload", "--socket", &socket]);
        if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr) }
    };
    let mut controller = Controller::connect(&first);
    controller.add(flow(of_type(), &[output(7)]));
    controller.barrier();
    let numbers: Vec<_> = ports(&mut controller).iter().map(|port| port.port_no).collect();
    assert_eq!(numbers, [1, 7]);

    write("");
    let said = reload().expect_err("refused");
    assert!(said.contains("restart it to give it its first controller or listener"), "{said}");
    write(&format!("{}\nflows_max = 5", listen(&first)));
    assert!(reload().expect_err("refused").contains("switch.flows_max"));
    write(&listen(&first).replace("one", "none/one"));
    let said = reload().expect_err("refused");
    assert!(said.contains("cannot wait for OpenFlow controllers at unix:"), "{said}");
    controller.barrier();
    // In a folder that was none of a listener when the switch started.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let other = elsewhere.path().join("of");
    write(&format!("listen = [\"unix:{}\", \"unix:{}\"]", first.display(), other.display()));
    match reload() {
        Ok(_) => Controller::connect(&other).barrier(),
        Err(said) => {
            let folder = folder.display();
            let advice = format!("only in the folders where it had a listener when it started ({folder})");
            assert!(said.contains(&advice) && said.contains("restart the switch"), "{said}");
            assert!(!other.exists());
        }
    }
    controller.barrier();

    write(&format!("{}\nfail_mode = \"standalone\"", listen(&second)));
    let said = reload().expect("done");
    assert!(said.contains("switch.fail_mode: \"secure\" -> \"standalone\""), "{said}");
    assert!(!first.exists(), "nobody can come there any more");
    until("addresses decide", || openflow(&server)["forwarding"] == "addresses");
    site.passes(1, 2);
    let mut controller = Controller::connect(&second);
    controller.barrier();
    until("flows decide", || openflow(&server)["forwarding"] == "flows");
    assert_eq!(openflow(&server)["flows"], 1, "the flow has stayed");
    drop(controller);
    until("addresses decide", || openflow(&server)["forwarding"] == "addresses");
    write(&listen(&second));
    reload().expect("done");
    assert_eq!(openflow(&server)["forwarding"], "flows");
    assert_eq!(terminate(server), Some(0));
}

/// Sends frames to the host that gets them until the kernel forwards them; returns the number of the next one.
fn until_in_kernel(server: &Server, sender: &PacketSocket, seen: &PacketSocket, from: u32) -> u32 {
    let mut sent = from;
    until("the kernel forwards the flow", || {
        for _ in 0..8 {
            sender.send(&frame(sent)).expect("sent");
            assert_eq!(numbered(seen), sent);
            sent += 1;
        }
        server.show("flows")[0]["place"] == "kernel"
    });
    sent
}

#[test]
fn the_kernel_forwards_flows_that_take_frames_and_a_barrier_stays_true() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &["--workers", "2"]);
    let mut controller = Controller::connect(&path(&site));
    controller.add(flow(of_type(), &[output(2)]));
    controller.barrier();
    let (sender, second, third) = (site.listen(1), site.listen(2), site.listen(3));
    let mut sent = until_in_kernel(&server, &sender, &second, 0);
    for round in 0..100 {
        let seen = if round % 2 == 0 { &third } else { &second };
        controller.add(flow(of_type(), &[output(3 - round % 2)]));
        controller.barrier();
        sender.send(&frame(sent)).expect("sent");
        assert_eq!(numbered(seen), sent, "no longer by what the kernel knew");
        sent += 1;
        if round % 20 == 0 {
            sent = until_in_kernel(&server, &sender, seen, sent);
        }
    }
    let shown = &server.show("flows")[0];
    assert_eq!(
        (&shown["packets"], &shown["bytes"]),
        (&sent.into(), &(60 * sent).into()),
        "every frame counts once"
    );
    let table = &openflow(&server)["tables"][0];
    assert!(table["matched"].as_u64() >= Some(sent.into()), "{table}");
    let port = &server.show("ports")[0];
    assert!(port["frames_in"].as_u64() >= Some(sent.into()), "{port}");

    // What the kernel cannot do is said.
    controller.add(flow(of_type(), &[output(2), output(3)]));
    controller.barrier();
    until("a worker has shown a frame", || {
        sender.send(&frame(sent)).expect("sent");
        assert_eq!((numbered(&second), numbered(&third)), (sent, sent));
        sent += 1;
        server.show("flows")[0]["why_not"] == "several_outputs"
    });
    assert_eq!(server.show("flows")[0]["place"], "worker");
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn a_driver_forwards_flows_where_it_is_asked_to_and_the_other_port_takes_them() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let gro = |host: usize, on: bool| {
        let set = || set_offload("eth0", Offload::Receive, on);
        site.hosts[host - 1].run(set).expect("entered").expect("set");
    };
    gro(2, true);
    gro(3, true);
    let listen = format!("unix:{}", path(&site).display());
    let ports = ["--port", "p1,offload=xdp", "--port", "p2", "--port", "p3"];
    let server = site.switch(&[&["sw0"], &ports[..], &["--listen", &listen]].concat());
    let why = |port: usize| server.show("ports")[port - 1]["why"].as_str().unwrap_or_default().to_owned();
    assert!(why(1).contains("its driver forwards flows (xdp)"), "{}", why(1));
    assert!(why(2).contains("at tc, not in its driver: behind a veth"), "{}", why(2));

    let mut controller = Controller::connect(&path(&site));
    controller.add(flow(of_type(), &[output(2)]));
    controller.barrier();
    let (sender, second, third) = (site.listen(1), site.listen(2), site.listen(3));
    let mut sent = until_in_kernel(&server, &sender, &second, 0);
    let hook = || server.show("flows")[0]["hook"].as_str().unwrap_or_default().to_owned();
    assert_eq!(hook(), "xdp");
    for round in 0..100 {
        let seen = if round % 2 == 0 { &third } else { &second };
        controller.add(flow(of_type(), &[output(3 - round % 2)]));
        controller.barrier();
        sender.send(&frame(sent)).expect("sent");
        assert_eq!(numbered(seen), sent, "no longer by what the driver knew");
        sent += 1;
        if round % 20 == 0 {
            sent = until_in_kernel(&server, &sender, seen, sent);
        }
    }
    let shown = &server.show("flows")[0];
    let counted = (&shown["packets"], &shown["bytes"]);
    assert_eq!(counted, (&sent.into(), &(60 * sent).into()), "every frame counts once");

    // What a port does not take from drivers is forwarded at tc.
    gro(2, false);
    until("frames are forwarded at tc", || {
        sender.send(&frame(sent)).expect("sent");
        sent += 1;
        hook() == "tc"
    });
    let passed = sent;
    sender.send(&frame(passed)).expect("sent");
    until("a frame comes that was sent after that", || numbered(&second) == passed);
    let socket = server.socket.display().to_string();
    let port_set = ["port", "set", "p1", "offload=tc", "--socket", &socket];
    let said = site.rig.twinpath(&site.rig.server, &port_set);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(why(1).ends_with("not in its driver: offload=tc"), "{}", why(1));
    assert_eq!(terminate(server), Some(0));

    // A veth with an XDP program cannot have an MTU beyond a page.
    ip(&site.rig.server, &["link", "set", "p1", "mtu", "9000"]);
    ip(&site.hosts[0], &["link", "set", "eth0", "mtu", "9000"]);
    let refused = site.try_switch(&[&["sw0"], &ports[..], &["--listen", &listen]].concat());
    let refused = refused.err().expect("refused");
    assert!(refused.contains("offload=xdp: attaching XDP (native)"), "{refused}");
    let ports = ["--port", "p1", "--port", "p2", "--port", "p3"];
    drop(site.switch(&[&["sw0"], &ports[..], &["--listen", &listen]].concat()));
}

#[test]
fn a_flow_that_the_kernel_forwards_ends_in_time_and_is_counted_to_its_last_frame() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let server = switch(&site, &[]);
    let mut controller = Controller::connect(&path(&site));
    let (sender, second) = (site.listen(1), site.listen(2));
    let timed = flow(of_type(), &[output(2)]);
    controller.add(FlowMod { hard_timeout_s: 2, flags: flow_flags::SEND_FLOW_REM, ..timed });
    controller.barrier();
    let sent = until_in_kernel(&server, &sender, &second, 0);
    let gone = controller.expect("a flow-removed", |message| matches!(message, Message::FlowRemoved(_)));
    let Message::FlowRemoved(gone) = gone else { panic!("{gone:?}") };
    assert_eq!((gone.packets, gone.bytes), (sent.into(), u64::from(60 * sent)));
    assert_eq!(gone.reason, FlowRemovedReason::HardTimeout);
    assert_eq!(terminate(server), Some(0));
}
