//! Tests of ports in other network namespaces that come and go: with the last port of a namespace everything of it is given
//! back.

use std::path::{Path, PathBuf};
use std::time::Instant;

use twinpath_sys::StoppedThread;

use super::ports::{Named, change};
use super::{Site, port, terminate};
use crate::fail_open::thread_of;
use crate::rig::{PATIENCE, Server, forget_neighbours, ip, link_json, until};
use crate::root_or_skip;

/// More often than there are places for namespaces in which the kernel forwards between learned addresses.
const ROUNDS: usize = 70;
/// After so many the process has all that it needs.
const SETTLED: usize = 3;
/// By how much its memory may differ in the end, KiB: what an allocator keeps, and no ring, of 4 MiB each.
const NOISE_KIB: u64 = 3072;

/// What a process has of the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Has {
    /// Sockets, network namespaces, and what belongs to programs. Workers open others of their own in their first turns.
    descriptors: usize,
    threads: usize,
    /// Rings of sockets and arrays of programs that are mapped.
    mapped: usize,
}

fn process(switch: &Server) -> PathBuf {
    Path::new("/proc").join(switch.pid().as_raw_nonzero().to_string())
}

fn has(switch: &Server) -> Has {
    let process = process(switch);
    let entries = |folder| std::fs::read_dir(process.join(folder)).expect("it runs").flatten();
    let kinds = ["socket:", "net:", "anon_inode:bpf"];
    let is_kernels = |file: PathBuf| {
        let to = std::fs::read_link(file).unwrap_or_default();
        kinds.iter().any(|kind| to.to_string_lossy().starts_with(kind))
    };
    let maps = std::fs::read_to_string(process.join("maps")).expect("it runs");
    let is_mapped = |line: &&str| kinds.iter().any(|kind| line.contains(kind));
    Has {
        descriptors: entries("fd").filter(|entry| is_kernels(entry.path())).count(),
        threads: entries("task").count(),
        mapped: maps.lines().filter(is_mapped).count(),
    }
}

/// Waits until the process has as much again.
fn all_is_given_back(switch: &Server, before: &Has) {
    let mut now = has(switch);
    let began = Instant::now();
    while now != *before {
        assert!(began.elapsed() < PATIENCE, "{before:?}, and in the end {now:?}");
        std::thread::yield_now();
        now = has(switch);
    }
}

pub(super) fn resident_kib(switch: &Server) -> u64 {
    let status = std::fs::read_to_string(process(switch).join("status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Moves a host's port into a namespace.
pub(super) fn move_to(site: &Site, host: usize, namespace: &Named) {
    let (name, there) = (format!("p{host}"), &namespace.0);
    ip(&site.rig.server, &["link", "set", &name, "netns", there]);
    ip(&site.rig.server, &["-n", there, "link", "set", &name, "up"]);
}

#[test]
fn ports_of_namespaces_come_and_go_and_nothing_of_them_is_left() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    let (pair, single) = (Named::new("pair"), Named::new("single"));
    move_to(&site, 2, &pair);
    move_to(&site, 3, &pair);
    move_to(&site, 4, &single);
    let file = site.rig.directory.path().join("switch.toml");
    let write = |ports: &[&str]| {
        let ports: String =
            ports.iter().map(|port| format!("[[switch.port]]\nname = \"{port}\"\n")).collect();
        std::fs::write(&file, format!("[switch]\nname = \"sw0\"\n{ports}")).expect("written");
    };
    let [one, two] = ["p2", "p3"].map(|port| format!("{port}@{}", pair.0));
    let alone = format!("p4@{}", single.0);
    write(&["p1"]);
    let config = file.display().to_string();
    let switch = site.switch(&["--config", &config, "--workers", "2"]);
    let reload = || {
        let socket = switch.socket.display().to_string();
        let said = site.rig.twinpath(&site.rig.server, &["reload", "--socket", &socket]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    let entries = || switch.answer("ports")["switch"]["kernel_entries"].as_u64();
    let (before, mut settled) = (has(&switch), 0);
    for round in 0..ROUNDS {
        write(&["p1", &one, &two]);
        reload();
        if round < SETTLED || round % 16 == 0 || round == ROUNDS - 1 {
            site.passes(1, 2);
            site.passes(2, 3);
            // Both are in one namespace, where the kernel forwards what they send each other.
            until("the kernel forwards", || {
                site.tries(2, 3);
                entries() > Some(0)
            });
            // Another namespace begins while this one is there, and is there when this one ends.
            write(&["p1", &one, &two, &alone]);
            reload();
            site.passes(4, 2);
            write(&["p1", &alone]);
            reload();
            site.passes(1, 4);
            assert!(!site.tries(2, 3));
        }
        write(&["p1"]);
        reload();
        if round == SETTLED {
            all_is_given_back(&switch, &before);
            settled = resident_kib(&switch);
        }
    }
    all_is_given_back(&switch, &before);
    let resident = resident_kib(&switch);
    assert!(resident <= settled + NOISE_KIB, "{settled} KiB, and {resident} KiB in the end");
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_deleted_namespace_ends_with_its_last_port() {
    if !root_or_skip() {
        return;
    }
    let (site, deleted) = (Site::new(2), Named::new("deleted"));
    let there = |words: &str| {
        let words: Vec<&str> = ["-n", &deleted.0].into_iter().chain(words.split(' ')).collect();
        ip(&site.rig.server, &words);
    };
    let ports = [format!("p2@{}", deleted.0), format!("vxlan:v1@{}", deleted.0)];
    let tunnel = format!("{},vni=7,remotes=192.0.2.2", ports[1]);
    let switch = site.switch(&["sw0", "--port", "p1"]);
    let before = has(&switch);
    for last in 0..2 {
        move_to(&site, 2, &deleted);
        let tunnels = ["link add u0 type veth peer name u1", "link set u1 up", "link set u0 up"];
        tunnels.into_iter().chain(["address add 192.0.2.1/24 dev u0"]).for_each(there);
        for port in [&ports[0], &tunnel] {
            let said = change(&site, &switch, &["add", port]).expect("added");
            assert!(said.contains("is new"), "{said}");
        }
        forget_neighbours(&site.hosts[0], "eth0");
        site.passes(1, 2);
        // Its last name: the ports keep it.
        deleted.delete();
        site.passes(1, 2);
        change(&site, &switch, &["remove", &ports[1 - last]]).expect("removed");
        assert_eq!(site.tries(1, 2), last == 0);
        let is_there = || !link_json(&site.hosts[1], "eth0").is_null();
        assert!(is_there(), "a port is left");
        change(&site, &switch, &["remove", &ports[last]]).expect("removed");
        // With the namespace its end of the cable goes, and so the other one.
        until("the namespace has ended", || !is_there());
        all_is_given_back(&switch, &before);
        // A namespace of that name is another one.
        deleted.make();
        site.plug_in(2);
    }
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_namespace_has_ports_again_while_a_worker_still_has_its_queue() {
    if !root_or_skip() {
        return;
    }
    let (site, named) = (Site::new(3), Named::new("again"));
    move_to(&site, 3, &named);
    let there = format!("p3@{}", named.0);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--workers", "2"]);
    let before = has(&switch);
    let is_known = || {
        let ports = switch.show("interfaces");
        ports.as_array().expect("a list").iter().any(|port| port["name"] == *there)
    };
    for _ in 0..3 {
        change(&site, &switch, &["add", &there]).expect("added");
        site.passes(1, 3);
        // No worker has to be waited for when a port goes whose interface has gone.
        ip(&site.rig.server, &["-n", &named.0, "link", "delete", "p3"]);
        until("no worker has the port any more", || {
            let port = port(&switch, &there);
            port["link"] == "gone" && port["queues"].as_array().is_some_and(Vec::is_empty)
        });
        let stopped = StoppedThread::stop(thread_of(&switch, 1)).expect("stopped");
        change(&site, &switch, &["remove", &there]).expect("removed");
        assert!(has(&switch).mapped > before.mapped, "the worker that is stopped has its ring");
        site.plug_in(3);
        move_to(&site, 3, &named);
        std::thread::scope(|scope| {
            // That is answered when all workers have the port.
            let added = scope.spawn(|| change(&site, &switch, &["add", &there]));
            until("the port is opened", is_known);
            drop(stopped);
            added.join().expect("no panic").expect("added");
        });
        forget_neighbours(&site.hosts[0], "eth0");
        site.passes(1, 3);
        site.passes(1, 2);
        change(&site, &switch, &["remove", &there]).expect("removed");
        all_is_given_back(&switch, &before);
    }
    assert_eq!(terminate(switch), Some(0));
}
