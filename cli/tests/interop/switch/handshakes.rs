//! Tests of a switch with what controllers of other projects write, and of streams that are cut anywhere.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use twinpath_openflow_wire::{Frames, Header, Hello, Message, number};
use twinpath_test_fuzz::seed::handshakes::handshakes;

use super::{Site, terminate};
use crate::rig::PATIENCE;
use crate::root_or_skip;

/// Connections that say nothing.
const SILENT: usize = 60;

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the switch listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Reads messages until they are enough.
fn read_until(stream: &mut UnixStream, frames: &mut Frames, mut is_enough: impl FnMut(&[Vec<u8>]) -> bool) {
    let (mut heard, mut buffer) = (Vec::<Vec<u8>>::new(), [0; 16384]);
    while !is_enough(&heard) {
        let len = stream.read(&mut buffer).unwrap_or_else(|error| panic!("{error}, after {heard:?}"));
        assert!(len > 0, "the switch has closed the connection, after {heard:?}");
        let mut rest = &buffer[..len];
        while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
            heard.push(message.to_vec());
        }
    }
}

/// What the sources say is beside the handshakes themselves.
#[test]
fn floodlight_onos_and_open_daylight_rule_the_switch_beside_connections_that_say_nothing() {
    if !root_or_skip() {
        return;
    }
    for handshake in handshakes() {
        // No controller has ruled it before.
        let site = Site::new(2);
        let path = site.rig.directory.path().join("of");
        let listen = format!("unix:{}", path.display());
        let server = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--listen", &listen]);
        let silent: Vec<_> = (0..SILENT).map(|_| connect(&path)).collect();
        // One has said half of something.
        let hello = Message::Hello(Hello { version: number::VERSION, versions: None });
        let (mut half, mut bytes) = (connect(&path), Vec::new());
        hello.encode(1, &mut bytes).expect("it is short");
        bytes.extend([number::VERSION, 14, 0, 80, 0, 0, 0, 1, 0]);
        half.write_all(&bytes).expect("the switch takes it");
        let (mut stream, mut frames) = (connect(&path), Frames::new());
        for step in &handshake.steps {
            stream.write_all(&step.bytes()).expect("the switch takes it");
            read_until(&mut stream, &mut frames, |heard| step.is_answered(heard));
        }
        // Each byte by itself.
        let mut asked = Vec::new();
        Message::BarrierRequest.encode(77, &mut asked).expect("it is short");
        Message::EchoRequest([7].into()).encode(78, &mut asked).expect("it is short");
        asked.iter().for_each(|byte| stream.write_all(&[*byte]).expect("the switch takes it"));
        let is_last = |message: &Vec<u8>| Header::of(message).is_some_and(|header| header.xid == 78);
        read_until(&mut stream, &mut frames, |heard| heard.iter().any(is_last));
        drop((silent, half));
        assert_eq!(terminate(server), Some(0), "{}", handshake.name);
    }
}
