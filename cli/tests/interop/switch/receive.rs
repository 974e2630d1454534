//! Tests of ports whose frames a thread of the kernel takes.

use std::collections::BTreeSet;

use super::ports::change;
use super::traffic::{bulk, echo};
use super::{BY_WORKERS, Site, address, ip_of, port, terminate};
use crate::rig::{PATIENCE, Server, ip};
use crate::root_or_skip;
use twinpath_test_rig::skip_without;

/// Datagrams that are under way at a time: the ring of a veth has room for 256 frames.
const AHEAD: u32 = 32;
const ROUNDS: u32 = 60;

const THREADS: [&str; 5] = ["sw0", "--port", "p1,receive=thread", "--port", "p2,receive=thread"];

/// A switch, unless this kernel cannot give NAPI a thread.
fn start(site: &Site, arguments: &[&str]) -> Option<Server> {
    match site.try_switch(arguments) {
        Ok(switch) => Some(switch),
        Err(stderr) if stderr.contains("it needs Linux 6.17") => {
            skip_without("Linux 6.17");
            None
        }
        Err(stderr) => panic!("no switch: {stderr}"),
    }
}

/// Sends datagrams of one flow and of different lengths, many at a time, and asserts that each arrives once and whole: on the way
/// the kernel may have joined them. When the kernel takes over from the worker, some may overtake others.
fn crosses(site: &Site, from: usize, to: usize) {
    let (here, there) = (site.udp(from, 0), site.udp(to, 9600));
    there.set_read_timeout(Some(PATIENCE)).expect("set");
    let payload = |number: u32| {
        // Some are as long as those before, so that they can be joined.
        let len = 64 + (number / 7 % 4) as usize * 300;
        let mut payload = vec![number as u8; len];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        payload
    };
    let mut buffer = [0; 2048];
    for round in 0..ROUNDS {
        let numbers = round * AHEAD..(round + 1) * AHEAD;
        numbers.clone().for_each(|number| {
            here.send_to(&payload(number), (ip_of(to), 9600)).expect("sent");
        });
        let mut missing: BTreeSet<u32> = numbers.collect();
        while !missing.is_empty() {
            let (len, _) = there.recv_from(&mut buffer).unwrap_or_else(|_| panic!("{missing:?} are missing"));
            let number = u32::from_be_bytes(*buffer[..len].first_chunk().expect("a number"));
            assert!(missing.remove(&number), "{number} came twice, or was never sent");
            assert!(buffer[..len] == payload(number), "number {number}: {len} bytes");
        }
    }
}

#[test]
fn what_a_thread_takes_arrives_once_and_whole() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    for mode in [&[][..], &BY_WORKERS] {
        let Some(switch) = start(&site, &[&THREADS[..], mode].concat()) else { return };
        site.passes(1, 2);
        let why = port(&switch, "p1")["why"].as_str().expect("a sentence").to_owned();
        assert!(why.contains("taken by a thread of the kernel"), "{why}");
        for (from, to) in [(1, 2), (2, 1)] {
            crosses(&site, from, to);
            bulk(&site, from, to, &address(to));
        }
        [1, 1_400, 20_000, 60_000].into_iter().for_each(|len| echo(&site, 1, 2, len));
        // It has a thread again when it is set up again.
        ip(&site.rig.server, &["link", "set", "p1", "down"]);
        ip(&site.rig.server, &["link", "set", "p1", "up"]);
        site.passes(1, 2);
        crosses(&site, 1, 2);
        let said = change(&site, &switch, &["set", "p1", "receive=sender"]).expect("changed");
        assert_eq!(said, "port p1: receive \"thread\" -> \"sender\"\n");
        site.passes(1, 2);
        let why = port(&switch, "p1")["why"].as_str().expect("a sentence").to_owned();
        assert!(!why.contains("thread"), "{why}");
        crosses(&site, 1, 2);
        assert_eq!(terminate(switch), Some(0));
    }
    // Where it cannot be.
    for (arguments, why) in [
        (&["--port", "p1", "--port", "tap:vm0,receive=thread"][..], "only a veth interface has it"),
        (
            &["--port", "p1,receive=thread", "--on-exit", "keep=9", "--listen", "tcp:127.0.0.1:0"],
            "the thread ends with the switch",
        ),
        (&["--port", "p1,receive=fast"], "choose sender or thread"),
    ] {
        let said = site.try_switch(&[&["sw0"], arguments].concat()).err().expect("refused");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
