use twinpath_observe::report::{
    Capability, Count, Drop, Instance, Interface, LatencyRequest, Neighbour, Offload, Procedure, Queue,
    Rules, ServiceClaim, Switch, WhyNot,
};

use super::*;

fn instance_draining() -> Instance {
    Instance {
        pid: 12,
        version: "0.1.0".to_owned(),
        kind: InstanceKind::Serve("echo".to_owned()),
        ports: vec!["udp/7".to_owned(), "tcp/7".to_owned()],
        uptime_s: 3725.5,
        pool_mib: 8.0,
        sandbox: Sandbox {
            setting: "on".to_owned(),
            no_new_privs: true,
            capabilities: vec![Capability {
                name: "CAP_NET_RAW".to_owned(),
                needed_for: "packet sockets".to_owned(),
            }],
            files: "by Landlock".to_owned(),
            calls: "by seccomp".to_owned(),
        },
        draining: Some(Draining { connections: 3, left_ms: 1_500, ..Draining::default() }),
        configuration: Some(Configuration {
            file: "/etc/twinpath/eth0.toml".to_owned(),
            read_s: 65.0,
            reloads: 2,
            refused: 1,
            refusal: Some("worker.count: 1 -> 2 cannot be done while it runs".to_owned()),
        }),
        standing_by: Some(StandingBy { pid: 11, serves: true, times: 2 }),
    }
}

fn served() -> ServeCounts {
    ServeCounts {
        fast_requests: 9,
        fast_replies: 7,
        fast_replies_by_kernel: 2,
        kernel_requests: 1,
        kernel_replies: 3,
        ..ServeCounts::default()
    }
}

fn report() -> Report {
    Report {
        instance: instance_draining(),
        services: vec![Service {
            name: "echo".to_owned(),
            claims: vec![ServiceClaim {
                claim: "tcp port 7".to_owned(),
                path: "kernel".to_owned(),
                why: "it is TCP".to_owned(),
                ..ServiceClaim::default()
            }],
            serve: served(),
            ..Service::default()
        }],
        interfaces: vec![Interface {
            name: "veth0".to_owned(),
            kind: "veth".to_owned(),
            path: "packet".to_owned(),
            link: "up".to_owned(),
            mtu: 1500,
            why: "it is faster here".to_owned(),
            why_not: vec![WhyNot { path: "xdp-native".to_owned(), reason: "it is slower here".to_owned() }],
            device: Device {
                driver: "veth".to_owned(),
                carrier: true,
                speed_mbps: Some(10_000),
                offloads: [("rx-checksumming", true), ("rx-vlan-offload", false)]
                    .map(|(name, on)| Offload { name: name.to_owned(), on })
                    .into(),
                ..Device::default()
            },
            queues: vec![Queue {
                mode: "adaptive".to_owned(),
                counts: PortCounts {
                    frames_in: 42,
                    frames_joined: 36,
                    frames_split: 0,
                    super_frames_refused: 1,
                    ..PortCounts::default()
                },
                ..Queue::default()
            }],
            ..Interface::default()
        }],
        rpc: vec![Procedure::default()],
        rules: Rules {
            claims: vec!["udp port 7 to 10.0.0.1".to_owned()],
            verdicts: vec![Count { name: "claimed".to_owned(), count: 42 }],
        },
        workers: vec![Worker {
            latency_request: LatencyRequest {
                setting: "auto".to_owned(),
                wake_us_without: Some(79.04),
                wake_us_with: Some(4.2),
                verdict: "it helps here".to_owned(),
                held: true,
                ..LatencyRequest::default()
            },
            ..Worker::default()
        }],
        neighbours: vec![Neighbour {
            peer: "10.0.0.2".to_owned(),
            egress: "other_interface".to_owned(),
            ..Neighbour::default()
        }],
        drops: vec![Drop { place: "worker 0".to_owned(), reason: "bad_checksum".to_owned(), count: 3 }],
        ..Report::default()
    }
}

#[test]
fn a_topic_shows_itself_and_all_shows_every_topic_but_config() {
    // Topics of a switch, of Reliable Datagram Sockets, or of the owner of an interface, are not requested here.
    let left_out = [
        Topic::Config,
        Topic::Programs,
        Topic::Rds,
        Topic::Ports,
        Topic::Macs,
        Topic::Flows,
        Topic::Groups,
        Topic::Meters,
        Topic::Controllers,
    ];
    let all = render(Topic::All, &report());
    for topic in Topic::ALL[1..].iter().filter(|topic| !left_out.contains(topic)) {
        let one = render(*topic, &report());
        assert!(all.contains(&one) && one.len() < all.len(), "{topic}");
    }
}

#[test]
fn all_of_a_switch_shows_its_ports_and_nothing_of_services() {
    let instance = Instance { kind: InstanceKind::Switch, ..instance_draining() };
    let report = Report { instance, switch: Some(Switch::default()), ..report() };
    let all = render(Topic::All, &report);
    assert!(all.contains(&render(Topic::Ports, &report)));
    assert!(!all.contains(&render(Topic::Services, &report)));
}

#[test]
fn an_interface_says_its_path_why_and_why_not() {
    let text = render(Topic::Interfaces, &report());
    assert!(text.starts_with(
        "veth0 (veth, up, mtu 1500): packet\n  why: it is faster here\n  why not xdp-native: it is slower here\n  \
         device: driver veth, carrier, 10000 Mbit/s, 0 receive and 0 transmit queues\n  \
         offloads on: rx-checksumming\n  offloads off: rx-vlan-offload\n"
    ));
    assert!(["adaptive", "42", "36 (refused)"].iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn sentences_hold_what_tables_would_hide() {
    let line = |topic| render(topic, &report());
    assert_eq!(
        line(Topic::Instance),
        "echo on udp/7 and tcp/7, pid 12, up 1 h 2 min, twinpath 0.1.0, 8.0 MiB of frame memory\n  \
         draining: 3 connections left, 1.5 s until they are closed\n\
         configuration /etc/twinpath/eth0.toml, read 1 min 5 s ago; the last reload was refused:\n    \
         worker.count: 1 -> 2 cannot be done while it runs\n\
         standing by for PID 11: serving in its place, as it is stuck, 2 times in its place so far\n\
         sandbox on\n  files: by Landlock\n  calls: by seccomp\n  capabilities (none can be gained):\n    \
         CAP_NET_RAW: packet sockets"
    );
    assert!(line(Topic::Workers).ends_with(
        "worker 0: CPU latency request auto, held; a wake-up takes 79.0 us without it, 4.2 us with it; it helps here"
    ));
    assert!(line(Topic::Neighbours).contains("kernel: other interface"));
    assert!(line(Topic::Drops).contains("bad checksum"));
    let services = line(Topic::Services);
    assert!(services.starts_with("echo:\n  tcp port 7: kernel path; it is TCP\n"), "{services}");
    assert!(services.contains("7 and 2 through the kernel"), "{services}");
}

#[test]
fn nothing_is_said_in_a_sentence() {
    let empty = Report::default();
    for (topic, text) in [
        (Topic::Interfaces, "interfaces: none is served"),
        (Topic::Rules, "claims: none, so all traffic is the kernel's"),
        (Topic::Workers, "workers: none"),
        (Topic::Neighbours, "neighbours: no peer was answered lately"),
        (Topic::Drops, "drops: none"),
    ] {
        assert_eq!(render(topic, &empty), text);
    }
}

#[test]
fn lengths_of_time_are_said_in_two_units() {
    for (seconds, text) in [(0.0, "0 s"), (59.9, "59 s"), (61.0, "1 min 1 s"), (90_061.0, "1 d 1 h")] {
        assert_eq!(span(seconds), text);
    }
}
