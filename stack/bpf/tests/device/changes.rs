//! Tests that rules can change while packets flow.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use twinpath_bpf::{Kept, Path, Steering, TcAttach};
use twinpath_claims::{Claim, ClaimKind, Table};
use twinpath_test_rig::until;
use twinpath_wire::{FlowKey, Protocol};

use crate::foreign::ForeignProgram;
use crate::lab::{Lab, PacketSocket, near_udp, take, wait_for};
use crate::{PAYLOAD_AT, counter, each_way, empty_table, packet_path, table_of};

const DATAGRAMS: u32 = 50_000;
/// Small enough for the kernel's backlog of 1000 frames.
const BURST: u32 = 100;

/// Sends numbered datagrams to the packet path while another thread switches between tables. Returns how many came
/// through the socket, how many through the kernel, and how often the table was switched.
fn toggle(lab: &Lab, how: TcAttach, tables: &[Table]) -> (u32, u32, u32) {
    let (mut steering, socket) = packet_path(lab, how, &[]);
    steering.apply(&tables[0]).unwrap();
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    let done = AtomicBool::new(false);
    let mut seen = vec![0u8; DATAGRAMS as usize];
    let (mut by_socket, mut by_kernel) = (0, 0);
    let switches = std::thread::scope(|scope| {
        let switcher = scope.spawn(|| switch(&mut steering, tables, &done));
        for first in (0..DATAGRAMS).step_by(BURST as usize) {
            for number in first..first + BURST {
                sender.send_to(&number.to_be_bytes(), "10.0.0.2:7").unwrap();
            }
            let mut missing = BURST;
            while missing > 0 {
                wait_for(&[socket.as_fd(), kernel.as_fd()]);
                while let Some(frame) = socket.take() {
                    seen[number_in(&frame[PAYLOAD_AT..])] += 1;
                    by_socket += 1;
                    missing = missing.saturating_sub(1);
                }
                while let Some((payload, _)) = take(&kernel) {
                    seen[number_in(&payload)] += 1;
                    by_kernel += 1;
                    missing = missing.saturating_sub(1);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        switcher.join().unwrap()
    });
    assert!(seen.iter().all(|&times| times == 1), "lost {}, doubled {}", times(&seen, 0), times(&seen, 2));
    assert_eq!(counter(&steering, "note_of_other_frame"), 0);
    assert_eq!(counter(&steering, "withheld_from_kernel"), u64::from(by_socket));
    (by_socket, by_kernel, switches)
}

fn switch(steering: &mut Steering, tables: &[Table], done: &AtomicBool) -> u32 {
    let mut switches = 0;
    while !done.load(Ordering::Relaxed) {
        for table in tables {
            steering.apply(table).unwrap();
            switches += 1;
        }
    }
    switches
}

fn number_in(payload: &[u8]) -> usize {
    u32::from_be_bytes(*payload.first_chunk().unwrap()) as usize
}

fn times(seen: &[u8], wanted: u8) -> usize {
    seen.iter().filter(|&&times| times == wanted || (wanted == 2 && times > 2)).count()
}

#[test]
fn claiming_and_releasing_a_port_loses_and_duplicates_nothing() {
    each_way(true, |lab, how| {
        let (by_socket, by_kernel, switches) =
            toggle(&lab, how, &[table_of(&[Claim::port(Protocol::Udp, 7)]), empty_table()]);
        println!("{by_socket} by the socket, {by_kernel} by the kernel, {switches} switches");
        assert!(by_socket > 0 && by_kernel > 0 && switches >= 4, "{by_socket} {by_kernel} {switches}");
    });
}

#[test]
fn a_flow_claim_comes_and_goes_the_same_way() {
    each_way(true, |lab, how| {
        let flow =
            FlowKey::new(Protocol::Udp, "10.0.0.1:4000".parse().unwrap(), "10.0.0.2:7".parse().unwrap());
        let (by_socket, by_kernel, switches) =
            toggle(&lab, how, &[table_of(&[Claim::flow(flow)]), empty_table()]);
        assert!(by_socket > 0 && by_kernel > 0 && switches >= 4, "{by_socket} {by_kernel} {switches}");
    });
}

#[test]
fn a_claim_in_both_tables_stays_in_force_throughout() {
    each_way(true, |lab, how| {
        // The claim gets another index, gains and loses an allow-list with the sender in it, and an address.
        let from = |prefixes: &[&str]| Claim {
            sources: prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect(),
            ..Claim::port(Protocol::Udp, 7)
        };
        let at = Claim {
            kind: ClaimKind::Port {
                protocol: Protocol::Udp,
                port: 7,
                address: Some("10.0.0.2".parse().unwrap()),
            },
            ..from(&["10.0.0.0/24", "fd00::/64"])
        };
        let tables = [
            table_of(&[Claim::port(Protocol::Udp, 7)]),
            table_of(&[Claim::port(Protocol::Udp, 9), from(&["10.0.0.0/8"])]),
            table_of(&[Claim::port(Protocol::Tcp, 7), at]),
            table_of(&[from(&["10.0.0.1/32", "192.168.0.0/16"]), Claim::ethertype(0x88b5)]),
        ];
        let (by_socket, by_kernel, switches) = toggle(&lab, how, &tables);
        assert_eq!((by_socket, by_kernel), (DATAGRAMS, 0));
        assert!(switches >= 4, "{switches}");
    });
}

/// Sends numbered datagrams while `during` runs. Returns how often each arrived, including those that its packet
/// sockets received.
fn while_sending(lab: &Lab, during: impl FnOnce() -> Vec<PacketSocket> + Send) -> Vec<u8> {
    let (kernel, fence) = (near_udp("10.0.0.2:7"), near_udp("10.0.0.2:98"));
    let sender = lab.far_udp("10.0.0.1:4000");
    let over = AtomicBool::new(false);
    // If loading a program takes seconds, more is sent than fits into all sockets, so they are emptied meanwhile.
    let taken = || std::iter::from_fn(|| take(&kernel)).map(|(payload, _)| number_in(&payload));
    let (sent, mut seen, sockets) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (mut sent, mut seen) = (0u32, Vec::new());
            while !over.load(Ordering::Relaxed) {
                for number in sent..sent + BURST {
                    sender.send_to(&number.to_be_bytes(), "10.0.0.2:7").unwrap();
                }
                sent += BURST;
                // Everything sent before has then passed the kernel's backlog, however late the kernel gets to it.
                sender.send_to(b"fence", "10.0.0.2:98").unwrap();
                wait_for(&[fence.as_fd()]);
                take(&fence).unwrap();
                seen.extend(taken());
            }
            (sent, seen)
        });
        let sockets = during();
        over.store(true, Ordering::Relaxed);
        let (sent, seen) = sending.join().unwrap();
        (sent, seen, sockets)
    });
    crate::fence(&sender, 99);
    seen.extend(taken());
    for socket in &sockets {
        seen.extend(std::iter::from_fn(|| socket.take()).map(|frame| number_in(&frame[PAYLOAD_AT..])));
    }
    let mut times = vec![0; sent as usize];
    seen.into_iter().for_each(|number| times[number] += 1);
    times
}

#[test]
fn attaching_and_detaching_programs_loses_and_duplicates_nothing() {
    each_way(true, |lab, how| {
        let claims = [Claim::port(Protocol::Udp, 7)];
        let ifindex = lab.ifindex;
        let seen = while_sending(&lab, || {
            let instance = |round| {
                let mut steering = Steering::load(Path::Packet).unwrap();
                steering.attach_tc(ifindex, how).unwrap();
                let attach = |socket: BorrowedFd<'_>| steering.attach_socket_filter(0, socket).unwrap();
                let socket = PacketSocket::receiver(ifindex, attach);
                steering.apply(&table_of(&claims)).unwrap();
                until("frames are claimed", || counter(&steering, "claimed") > 200);
                if round % 2 == 0 {
                    steering.detach();
                }
                drop(steering);
                socket
            };
            (0..10).map(instance).collect()
        });
        assert!(seen.len() > 2000, "{}", seen.len());
        assert!(
            seen.iter().all(|&times| times == 1),
            "lost {}, doubled {}",
            times(&seen, 0),
            times(&seen, 2)
        );
    });
}

#[test]
fn moving_in_front_of_another_program_loses_and_duplicates_nothing() {
    each_way(true, |lab, how| {
        let (mut steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let ifindex = lab.ifindex;
        let seen = while_sending(&lab, || {
            for round in 1..=10 {
                let foreign = ForeignProgram::in_front("foreign_next", how);
                assert_ne!(steering.keep_first(ifindex).unwrap(), Kept::First);
                until("frames are claimed", || counter(&steering, "claimed") > 200 * round);
                foreign.detach();
            }
            vec![socket]
        });
        assert!(
            seen.iter().all(|&times| times == 1),
            "lost {}, doubled {}",
            times(&seen, 0),
            times(&seen, 2)
        );
    });
}
