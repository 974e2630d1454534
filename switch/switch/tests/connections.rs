//! Controllers over real sockets. Time is a value: no test waits for a pause.

use std::io::{ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use twinpath_config::values::Endpoint;
use twinpath_forwarding::openflow::{CONTROLLERS_MAX, OpenFlowSwitch, SwitchInfo};
use twinpath_openflow_wire::{
    Action, Config, Desc, Frames, Hello, Message, Multipart, MultipartRequest, PacketOut, number,
};
use twinpath_switch::controllers::Controllers;
use twinpath_test_fuzz::seed::datapath::Maps;
use twinpath_test_fuzz::seed::handshakes::handshakes;
use twinpath_time::{Duration, Instant};

const START: Instant = Instant::from_nanos(1 << 40);

fn controllers() -> Controllers<Maps> {
    let info = SwitchInfo { datapath_id: 77, desc: Desc::default(), flows_max: 10, packet_in_rate: 10 };
    Controllers::new(OpenFlowSwitch::new(info, Maps::default()), None)
}

fn run<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limit = Duration::from_secs(20);
    runtime.block_on(async { tokio::time::timeout(limit, test()).await.expect("it ends in time") })
}

fn encoded(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        message.encode(5, &mut bytes).expect("it is short");
    }
    bytes
}

fn greeting() -> Vec<u8> {
    encoded(&[Message::Hello(Hello { version: 4, versions: None }), Message::FeaturesRequest])
}

/// Turns until the controller has got that many messages.
async fn heard(
    controllers: &mut Controllers<Maps>,
    stream: &mut (impl std::io::Read + ?Sized),
    count: usize,
) -> Vec<Message> {
    let (mut frames, mut messages) = (Frames::new(), Vec::new());
    while messages.len() < count {
        controllers.wait(START).await;
        controllers.turn(START);
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(len) => {
                let mut rest = &bytes[..len];
                while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
                    messages.push(Message::decode(message).expect("a message"));
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    messages
}

#[test]
fn a_controller_gets_answers_over_either_kind_of_socket_however_its_messages_are_divided() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("of");
        let mut controllers = controllers();
        let address = controllers.listen(&"tcp:127.0.0.1:0".parse().expect("an address")).await;
        let address = address.expect("it is bound").expect("it is TCP");
        controllers.listen(&Endpoint::Unix(path.clone())).await.expect("it is bound");
        let mut unix = UnixStream::connect(&path).expect("it listens");
        unix.set_nonblocking(true).expect("a socket");
        unix.write_all(&greeting()).expect("there is room");
        let messages = heard(&mut controllers, &mut unix, 2).await;
        assert!(matches!(&messages[..], [Message::Hello(_), Message::FeaturesReply(_)]));
        let mut tcp = TcpStream::connect(address).expect("it listens");
        tcp.set_nonblocking(true).expect("a socket");
        for byte in greeting() {
            tcp.write_all(&[byte]).expect("there is room");
            controllers.wait(START).await;
            controllers.turn(START);
        }
        let messages = heard(&mut controllers, &mut tcp, 2).await;
        assert!(matches!(&messages[..], [Message::Hello(_), Message::FeaturesReply(_)]));
        drop((tcp, unix));
        while controllers.connections() > 0 {
            controllers.wait(START).await;
            controllers.turn(START);
        }
        drop(controllers);
        assert!(!path.exists());
    });
}

/// What controllers write at once when they have connected: Floodlight and ONOS have a barrier in the midst, and wait for all of it.
fn handshake() -> Vec<Message> {
    let config = Message::SetConfig(Config { flags: 0, miss_send_len: 0xffff });
    let part = |body| Message::MultipartRequest(Box::new(Multipart { more: false, body }));
    vec![
        config,
        Message::BarrierRequest,
        Message::GetConfigRequest,
        part(MultipartRequest::PortDesc),
        Message::BarrierRequest,
        part(MultipartRequest::Desc),
        Message::BarrierRequest,
        Message::BarrierRequest,
        Message::EchoRequest([7].into()),
    ]
}

fn is_answered(heard: &[Message]) -> bool {
    matches!(
        heard,
        [
            Message::Hello(_),
            Message::FeaturesReply(_),
            Message::BarrierReply,
            Message::GetConfigReply(_),
            Message::MultipartReply(_),
            Message::BarrierReply,
            Message::MultipartReply(_),
            Message::BarrierReply,
            Message::BarrierReply,
            Message::EchoReply(_),
        ]
    )
}

#[test]
fn whatever_follows_a_barrier_is_answered_wherever_the_bytes_are_cut() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("of");
        let mut controllers = controllers();
        controllers.listen(&Endpoint::Unix(path.clone())).await.expect("it is bound");
        let bytes = [greeting(), encoded(&handshake())].concat();
        for cut in 1..=bytes.len() {
            let mut unix = UnixStream::connect(&path).expect("it listens");
            unix.set_nonblocking(true).expect("a socket");
            let (first, rest) = bytes.split_at(cut);
            unix.write_all(first).expect("there is room");
            while controllers.connections() == 0 {
                controllers.wait(START).await;
                controllers.turn(START);
            }
            unix.write_all(rest).expect("there is room");
            let heard = heard(&mut controllers, &mut unix, 10).await;
            assert!(is_answered(&heard), "cut at byte {cut}: {heard:?}");
            drop(unix);
            // Its end is seen as well.
            while controllers.connections() > 0 {
                controllers.wait(START).await;
                controllers.turn(START);
            }
        }
    });
}

/// What they write, and which sources say so: `twinpath_test_fuzz::seed::handshakes`.
#[test]
fn floodlight_onos_and_open_daylight_come_to_rule_beside_connections_that_say_nothing() {
    for handshake in handshakes() {
        run(async || {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("of");
            let mut controllers = controllers();
            controllers.listen(&Endpoint::Unix(path.clone())).await.expect("it is bound");
            let others: Vec<_> =
                (2..CONTROLLERS_MAX).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
            // One has said half of something.
            let mut half = UnixStream::connect(&path).expect("it listens");
            half.write_all(&[&greeting()[..], &[4, 14, 0, 80, 0, 0, 0, 1, 0]].concat()).expect("room");
            let mut stream = UnixStream::connect(&path).expect("it listens");
            stream.set_nonblocking(true).expect("a socket");
            let mut frames = Frames::new();
            for (number, step) in handshake.steps.iter().enumerate() {
                stream.write_all(&step.bytes()).expect("there is room");
                let mut heard = Vec::new();
                while !step.is_answered(&heard) {
                    // A probe of a silent controller would go on after 5 s.
                    let limit = Duration::from_secs(4);
                    let turn = tokio::time::timeout(limit, controllers.wait(START)).await;
                    assert!(turn.is_ok(), "{}, step {number}: {heard:?}", handshake.name);
                    controllers.turn(START);
                    // As workers do.
                    controllers.switch().datapath().take_all();
                    controllers.switch().advance(START);
                    let mut bytes = [0; 65536];
                    while let Ok(len) = std::io::Read::read(&mut stream, &mut bytes) {
                        assert!(len > 0, "{}, step {number}: closed", handshake.name);
                        let mut rest = &bytes[..len];
                        while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
                            heard.push(message.to_vec());
                        }
                    }
                }
            }
            drop((others, half));
        });
    }
}

#[test]
fn frames_for_which_there_is_no_room_yet_hold_up_nothing_for_longer() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("of");
        let mut controllers = controllers();
        controllers.listen(&Endpoint::Unix(path.clone())).await.expect("it is bound");
        let packet_out = Message::PacketOut(Box::new(PacketOut {
            buffer_id: number::NO_BUFFER,
            in_port: number::port::CONTROLLER,
            actions: [Action::Output { port: number::port::FLOOD, max_len: 0 }].into(),
            data: vec![0; 20].into(),
        }));
        let count = 700;
        let mut asked = vec![packet_out; count];
        asked.extend([Message::BarrierRequest, Message::EchoRequest([7].into())]);
        let mut unix = UnixStream::connect(&path).expect("it listens");
        unix.write_all(&[greeting(), encoded(&asked)].concat()).expect("there is room");
        unix.set_nonblocking(true).expect("a socket");
        let (mut taken, mut times, mut frames, mut messages) = (0, 0, Frames::new(), Vec::new());
        while messages.len() < 4 {
            // A probe of a silent controller would go on after 5 s.
            let limit = Duration::from_secs(2);
            tokio::time::timeout(limit, controllers.wait(START)).await.expect("there is something to do");
            controllers.turn(START);
            // As workers do, which bring all of them back: nothing else comes from outside meanwhile.
            let requests = controllers.switch().take_requests(usize::MAX).len();
            controllers.switch().done_but(0);
            (taken, times) = (taken + requests, times + usize::from(requests > 0));
            let mut bytes = [0; 4096];
            let Ok(len) = std::io::Read::read(&mut unix, &mut bytes) else { continue };
            let mut rest = &bytes[..len];
            while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
                messages.push(Message::decode(message).expect("a message"));
            }
        }
        assert_eq!(taken, count);
        assert!(times > 2, "there was room for all of them at once");
        assert!(matches!(&messages[2..], [Message::BarrierReply, Message::EchoReply(_)]), "{messages:?}");
    });
}

#[test]
fn a_socket_whose_process_died_is_taken_over_and_one_in_use_is_not() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoint = Endpoint::Unix(folder.path().join("of"));
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("of")).expect("it is free"));
        let mut first = controllers();
        first.listen(&endpoint).await.expect("nobody listens there");
        let second = controllers().listen(&endpoint).await;
        assert_eq!(second.expect_err("it is in use").kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn more_connections_than_there_may_be_are_closed_and_counted() {
    run(async || {
        let mut controllers = controllers();
        let address = controllers.listen(&"tcp:127.0.0.1:0".parse().expect("an address")).await;
        let address = address.expect("it is bound").expect("it is TCP");
        let streams: Vec<_> =
            (0..CONTROLLERS_MAX + 3).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        while controllers.refused() < 3 {
            controllers.wait(START).await;
            controllers.turn(START);
        }
        assert_eq!(controllers.connections(), CONTROLLERS_MAX);
        drop(streams);
        while controllers.connections() > 0 {
            controllers.wait(START).await;
            controllers.turn(START);
        }
    });
}

#[test]
fn silent_connections_give_way_to_controllers_and_do_not_drive_out_one_that_has_greeted() {
    run(async || {
        let mut controllers = controllers();
        let address = controllers.listen(&"tcp:127.0.0.1:0".parse().expect("an address")).await;
        let address = address.expect("it is bound").expect("it is TCP");
        let silent = || -> Vec<_> {
            (0..CONTROLLERS_MAX).map(|_| TcpStream::connect(address).expect("it listens")).collect()
        };
        let _first = silent();
        while controllers.connections() < CONTROLLERS_MAX {
            controllers.wait(START).await;
            controllers.turn(START);
        }
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        stream.write_all(&greeting()).expect("room");
        let answers = heard(&mut controllers, &mut stream, 2).await;
        assert!(matches!(answers.last(), Some(Message::FeaturesReply(_))), "{answers:?}");
        let refused = controllers.refused();
        let _others = silent();
        while controllers.refused() < refused + CONTROLLERS_MAX as u64 {
            controllers.wait(START).await;
            controllers.turn(START);
        }
        stream.write_all(&encoded(&[Message::EchoRequest([7].into())])).expect("room");
        let answers = heard(&mut controllers, &mut stream, 1).await;
        assert!(matches!(answers[..], [Message::EchoReply(_)]), "{answers:?}");
    });
}

#[test]
fn connections_at_a_listener_leave_room_for_a_configured_controller() {
    run(async || {
        let own = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut controllers = controllers();
        let address = controllers.listen(&"tcp:127.0.0.1:0".parse().expect("an address")).await;
        let address = address.expect("it is bound").expect("it is TCP");
        controllers.connect(Endpoint::Tcp(own.local_addr().expect("an address").to_string()));
        let _others: Vec<_> =
            (0..CONTROLLERS_MAX + 3).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        while controllers.refused() < 4 || controllers.connections() < CONTROLLERS_MAX {
            controllers.wait(START).await;
            controllers.turn(START);
        }
        let (mut stream, _) = own.accept().expect("it connects");
        stream.set_nonblocking(true).expect("a socket");
        stream.write_all(&greeting()).expect("room");
        let heard = heard(&mut controllers, &mut stream, 2).await;
        assert!(matches!(heard.last(), Some(Message::FeaturesReply(_))), "{heard:?}");
    });
}

#[test]
fn a_controller_that_is_lost_is_connected_to_again_after_a_pause_that_grows() {
    run(async || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut controllers = controllers();
        controllers.connect(Endpoint::Tcp(address.to_string()));
        let mut now = START;
        for pause_s in [1, 2, 4, 8, 8] {
            while controllers.connections() == 0 {
                controllers.wait(now).await;
                controllers.turn(now);
            }
            // It ends before its hello.
            drop(listener.accept().expect("it connects"));
            while controllers.connections() > 0 {
                controllers.wait(now).await;
                controllers.turn(now);
            }
            now += Duration::from_millis(pause_s * 1000 - 1);
            controllers.turn(now);
            listener.set_nonblocking(true).expect("a socket");
            assert!(listener.accept().is_err(), "after {pause_s} s less 1 ms");
            listener.set_nonblocking(false).expect("a socket");
            now += Duration::from_millis(1);
        }
    });
}
