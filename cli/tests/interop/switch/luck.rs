//! Tests of a switch under bad luck: what others do to its interfaces while they carry traffic, and addresses without end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::poll;
use rustix::time::Timespec;
use twinpath_socket_load::Stop;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_plain::{Frame, Sending, bare_frame, send_frames};
use twinpath_test_rig::few_or_all;
use twinpath_wire::Mac;

use super::namespaces::{move_to, resident_kib};
use super::ports::{Named, StopAtEnd, beside, change, echo_until, state, undisturbed};
use super::{BY_WORKERS, Site, figure, ip_of, terminate};
use crate::rig::{ip, link_json, name_of, until};
use crate::root_or_skip;

/// How many come in a second of different source addresses by one port.
const RATE: f64 = 250_000.0;
/// Frames that are made at a time.
const PART: u32 = 50_000;
/// By how much the switch's memory may differ then, KiB: of a table of so many, each address has a few bytes.
const GROWTH_MAX_KIB: u64 = 4096;

#[test]
fn a_switch_that_wants_an_interface_of_another_is_refused_and_the_other_loses_nothing() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    let first = site.switch(&["one", "--port", "p1", "--port", "p2"]);
    let second = site.switch(&["two", "--port", "p4"]);
    let whose = format!("p1 is held already by twinpath (pid {})", first.child.id());
    site.passes(1, 2);
    undisturbed(&site, 1, 2, || {
        for _ in 0..5 {
            let refused = site.try_switch(&["three", "--port", "p3", "--port", "p1"]).err().expect("refused");
            assert!(refused.contains(&whose) && refused.trim().lines().count() == 1, "{refused}");
            // One that has confined itself may not look into other processes.
            let refused = change(&site, &second, &["add", "p1"]).expect_err("refused");
            assert!(refused.contains("nothing was changed:\nport p1: p1 is held already by"), "{refused}");
            // The interface that was free is the kernel's, as before.
            let third = site.switch(&["three", "--port", "p3"]);
            assert_eq!(terminate(third), Some(0));
        }
    });
    assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
}

#[test]
fn an_mtu_that_changes_under_traffic_stops_longer_frames_alone() {
    if !root_or_skip() {
        return;
    }
    for more in [&[][..], &BY_WORKERS] {
        let site = Site::new(2);
        let switch = site.switch(&[&["sw0", "--port", "p1", "--port", "p2"], more].concat());
        let mtu = |of: &str, bytes: &str| ip(&site.rig.server, &["link", "set", of, "mtu", bytes]);
        let (from, to) = (site.udp(1, 0), site.udp(2, 9200));
        to.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        let send = |len: usize| from.send_to(&[1; 8_000][..len], (ip_of(2), 9200)).expect("sent");
        let arrives = |len: usize| {
            send(len);
            to.recv_from(&mut [0; 8_000]).is_ok_and(|(came, _)| came == len)
        };
        // All frames that are longer than p2 takes are counted, from when on the switch knows.
        let is_stopped = |len: usize| {
            let before = switch.drops("frame_too_large");
            until("a frame that is too long is counted", || {
                send(len);
                switch.drops("frame_too_large") > before
            });
            let before = switch.drops("frame_too_large");
            (0..20).for_each(|_| _ = send(len));
            until("each is counted", || switch.drops("frame_too_large") >= before + 20);
            while to.recv_from(&mut [0; 8_000]).is_ok() {}
            assert!(!arrives(len), "{len} bytes");
        };
        site.passes(1, 2);
        // By the port that changes.
        undisturbed(&site, 1, 2, || {
            assert!(arrives(1_400));
            for _ in 0..3 {
                mtu("p2", "1000");
                is_stopped(1_400);
                mtu("p2", "1500");
                until("longer frames pass again", || arrives(1_400));
            }
            for host in &site.hosts {
                ip(host, &["link", "set", "eth0", "mtu", "9000"]);
            }
            mtu("p1", "9000");
            is_stopped(5_000);
            mtu("p2", "9000");
            until("frames as long as both ports take pass", || arrives(5_000));
            mtu("p2", "1500");
            is_stopped(5_000);
            until("shorter ones pass", || arrives(1_400));
        });
        assert_eq!(terminate(switch), Some(0));
    }
}

#[test]
fn an_interface_that_moves_under_traffic_takes_its_port_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let (site, deleted) = (Site::new(3), Named::new("moves"));
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    site.passes(1, 3);
    let from = site.udp(1, 0);
    // Less than would keep out what else comes by the port of this host.
    let pause = Timespec { tv_sec: 0, tv_nsec: 100_000 };
    let send = || {
        // Refused while nobody knows the address.
        let _ = from.send_to(&[1; 1_000], (ip_of(3), 9001));
        let _ = poll(&mut [], Some(&pause));
    };
    beside(send, || {
        undisturbed(&site, 1, 2, || {
            for _ in 0..3 {
                move_to(&site, 3, &deleted);
                until("the port is gone", || state(&switch, "p3") == "gone");
                let home = name_of(&site.rig.server);
                ip(&site.rig.server, &["-n", &deleted.0, "link", "set", "p3", "netns", &home]);
                ip(&site.rig.server, &["link", "set", "p3", "up"]);
                until("the port is back", || state(&switch, "p3") == "up");
                site.passes(1, 3);
            }
            // A namespace is deleted that has a port of the switch, not only the other end of one.
            change(&site, &switch, &["remove", "p3"]).expect("removed");
            move_to(&site, 3, &deleted);
            let there = format!("p3@{}", deleted.0);
            change(&site, &switch, &["add", &there]).expect("added");
            site.passes(1, 3);
            deleted.delete();
            site.passes(1, 3);
            change(&site, &switch, &["remove", &there]).expect("removed");
            until("the namespace has ended", || link_json(&site.hosts[2], "eth0").is_null());
        });
    });
    assert_eq!(terminate(switch), Some(0));
}

/// Frames to one address from so many others, from this number on.
fn from_others(first: u32, to: [u8; 6]) -> Vec<Frame> {
    let frame = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        bare_frame([0x02, 0x77, a, b, c, d], to)
    };
    (first..first + PART).map(frame).collect()
}

/// Sends frames from so many addresses to another one, on the interface of the host that it is called in.
fn send_from_others(addresses: u32, to: [u8; 6]) {
    let ifindex = interface_index("eth0").expect("eth0");
    let mut first = 0;
    while first < addresses {
        let frames = from_others(first, to);
        let duration = twinpath_time::Duration::from_secs_f64(f64::from(PART) / RATE);
        let sending = Sending { frames: &frames, batch: 64, duration, rate: Some(RATE) };
        let sent = send_frames(ifindex, &sending, &Stop::default()).expect("sent");
        first += PART.min(sent.frames as u32);
    }
}

/// How often a datagram goes from one host to another and back while `during` runs, and how often it does not within a tenth of
/// a second.
fn tries_beside(site: &Site, from: usize, to: usize, during: impl FnOnce()) -> [u64; 2] {
    let (there, here) = (site.udp(to, 9300), site.udp(from, 0));
    here.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let (stop, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| echo_until(&there, &stop));
        let tries = scope.spawn(|| {
            let (mut passed, mut failed) = (0, 0);
            while !enough.load(Ordering::Relaxed) {
                here.send_to(&[1; 60], (ip_of(to), 9300)).expect("sent");
                let came = here.recv_from(&mut [0; 64]).is_ok();
                if came { passed += 1 } else { failed += 1 }
            }
            [passed, failed]
        });
        let (echo_at_end, tries_at_end) = (StopAtEnd(&stop), StopAtEnd(&enough));
        during();
        drop(tries_at_end);
        let tries = tries.join().expect("no panic");
        drop(echo_at_end);
        tries
    })
}

#[test]
fn addresses_without_end_of_a_port_take_no_memory_and_no_traffic_of_others() {
    if !root_or_skip() {
        return;
    }
    // The table is full long before. What is kept of each would show: five bytes of so few, and 17 where the kernel forwards.
    let all = few_or_all(1_000_000, 2_000_000);
    // While the kernel forwards what it can, and where workers do everything.
    for (more, addresses) in [(&[][..], all / 4), (&BY_WORKERS[..], all)] {
        let site = Site::new(4);
        let ports = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3", "--port", "p4"];
        let switch = site.switch(&[&ports[..], more].concat());
        // So all of them are known before.
        site.passes(1, 2);
        site.passes(3, 4);
        let known: BTreeSet<String> = (2..=4).map(|host| Mac(site.mac(host)).to_string()).collect();
        let (there, before) = (site.mac(2), resident_kib(&switch));
        let flood = || send_from_others(addresses, there);
        let [passed, failed] = tries_beside(&site, 3, 4, || site.hosts[0].run(flood).expect("entered"));
        // What no worker could take in time may have been one of those.
        assert!(failed * 20 < passed, "{failed} of {passed} and these");
        // Every frame was taken or is counted as lost.
        let came = || {
            figure(&switch, "p1", "frames_in")
                + ["port_share", "ring_full"].map(|it| switch.drops(it)).iter().sum::<u64>()
        };
        until("all are counted", || came() >= addresses.into());
        let shown = switch.answer("ports")["switch"].clone();
        let (learned, places) = (shown["addresses"].as_u64(), shown["mac_entries_max"].as_u64());
        assert!(learned <= places && learned > places.map(|places| places / 2), "{shown}");
        assert!(switch.drops("mac_table_full") > u64::from(addresses / 20), "{shown}");
        // Before they are listed, which takes memory for all of them.
        let resident = resident_kib(&switch);
        assert!(resident <= before + GROWTH_MAX_KIB, "{before} KiB before, {resident} KiB then");
        let macs = switch.show("macs");
        let macs: BTreeSet<_> = macs
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|it| it["mac"].as_str().map(str::to_owned))
            .collect();
        assert!(macs.is_superset(&known), "{known:?} are known as before");
        site.passes(3, 4);
        site.passes(1, 2);
        assert_eq!(terminate(switch), Some(0));
    }
}
