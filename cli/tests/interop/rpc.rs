//! Tests of `serve rpc` with rpcinfo, with hand-made calls, and with peers that break the protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};

use twinpath_rpc::client::{
    Auth, Call, Refusal, Reply, handle_arguments, mount_arguments, portmap_arguments, portmap_boolean,
    portmap_port, root_handle,
};
use twinpath_rpc::nfs3_types::portmap::mapping;
use twinpath_rpc::nfs3_types::{mount, nfs3, portmap};
use twinpath_rpc::record::{RecordLimits, RecordReader};
use twinpath_test_rig::within;

use crate::rig::{
    CLIENT, CLIENT_V6, PATIENCE, Rig, SERVER, SERVER_V6, Server, Started, answered, ask, until,
};
use crate::rig::{PORT, udp_in};
use crate::root_or_skip;

const PATHS: [&str; 3] = ["packet", "xdp", "kernel"];
const LIMITS: RecordLimits = RecordLimits { record_bytes: 65_536, fragments: 1 };
const RPCBIND: u16 = portmap::PMAP_PORT;

pub(crate) fn serve(rig: &Rig, arguments: &[&str]) -> Server {
    let port = PORT.to_string();
    rig.start(&[&["rpc", "--on", "vs", "--udp", &port, "--tcp", &port], arguments].concat())
}

/// A call of version 3 with AUTH_SYS.
pub(crate) fn message(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let auth = Auth::sys("client", 1000, 100, &[4, 24]).unwrap();
    let mut message = Vec::new();
    Call { xid, program, version: 3, procedure, auth: &auth, args }.write(&mut message);
    message
}

/// Arguments of GETATTR for the root.
pub(crate) fn root_arguments(socket: &UdpSocket, target: &str) -> Vec<u8> {
    let mounted = call(socket, target, mount::PROGRAM, 1, &mount_arguments("/")).unwrap();
    handle_arguments(root_handle(&mounted).unwrap())
}

fn record(xid: u32, fragments: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let auth = Auth::none();
    Call { xid, program: nfs3::PROGRAM, version: 3, procedure: 0, auth: &auth, args: &[] }
        .write_record(fragments, &mut stream);
    stream
}

fn connect(rig: &Rig) -> TcpStream {
    let target: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
    let stream = rig.client.run(|| TcpStream::connect(target)).unwrap().expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads this many replies, and checks that they answer NULL calls, in order from `first` on.
fn expect_nulls(stream: &mut TcpStream, first: u32, count: u32) {
    let mut reader = RecordReader::new(LIMITS);
    let mut buffer = [0; 4096];
    let mut next = first;
    while next < first + count {
        let len = stream.read(&mut buffer).expect("a reply in time");
        assert!(len > 0, "closed before reply {next}");
        let mut input = &buffer[..len];
        while let Some(record) = reader.next(&mut input).unwrap() {
            let reply = Reply::parse(record).unwrap();
            assert_eq!((reply.xid, reply.verify_null()), (next, Ok(())));
            next += 1;
        }
    }
}

/// The results of a call over UDP.
fn call(
    socket: &UdpSocket,
    target: &str,
    program: u32,
    procedure: u32,
    args: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let reply = ask(socket, target, PORT, &message(7, program, procedure, args));
    let reply = Reply::parse(&reply).unwrap();
    assert_eq!(reply.xid, 7);
    reply.outcome.map(<[u8]>::to_vec)
}

#[test]
fn nfs_and_mount_are_served_over_udp_on_every_path() {
    if !root_or_skip() {
        return;
    }
    for path in PATHS {
        let rig = Rig::new();
        let server = serve(&rig, &["--path", path]);
        for (client, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(client, 0);
            assert_eq!(call(&socket, target, nfs3::PROGRAM, 0, &[]), Ok(vec![]), "{path} {target}");
            let mounted = call(&socket, target, mount::PROGRAM, 1, &mount_arguments("/directory")).unwrap();
            let args = handle_arguments(root_handle(&mounted).unwrap());
            let results = call(&socket, target, nfs3::PROGRAM, 1, &args).unwrap();
            let attributes = Reply { xid: 7, outcome: Ok(&results) }.verify_getattr().unwrap();
            assert_eq!((attributes.fileid, attributes.mode), (2, 0o755));
            let refused = call(&socket, target, nfs3::PROGRAM, 6, &args);
            assert_eq!(refused, Err(Refusal::ProcedureUnavailable));
        }
        let requests = &server.show("services")[0]["requests"];
        assert_eq!((&requests["answered"], &requests["refused"]), (&8.into(), &2.into()), "{path}");
        assert_eq!((server.drops("rpc_procedure"), server.drops("rpc_header")), (2, 0));
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn records_may_be_cut_anywhere() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet"]);
    let mut stream = connect(&rig);
    let calls: Vec<u8> = (0..300).flat_map(|xid| record(xid, xid as usize % 5 + 1)).collect();
    stream.write_all(&calls).unwrap();
    expect_nulls(&mut stream, 0, 300);
    for byte in record(300, 3) {
        stream.write_all(&[byte]).unwrap();
    }
    expect_nulls(&mut stream, 300, 1);
    assert_eq!(server.show("services")[0]["requests"]["answered"], 301);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn calls_are_answered_without_an_allocation() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet"]);
    let socket = rig.client_udp(CLIENT, 0);
    let mounted = call(&socket, SERVER, mount::PROGRAM, 1, &mount_arguments("/")).unwrap();
    let getattr = handle_arguments(root_handle(&mounted).unwrap());
    let mut stream = connect(&rig);
    let mut calls = |count: u32| {
        for xid in 0..count {
            stream.write_all(&record(xid, xid as usize % 3 + 1)).unwrap();
            expect_nulls(&mut stream, xid, 1);
            assert!(call(&socket, SERVER, nfs3::PROGRAM, 1, &getattr).is_ok());
        }
    };
    // The first ones allocate memory that stays: the peer's entry, the buffer for joining fragments.
    calls(100);
    let before = server.worker("allocations");
    calls(1000);
    assert_eq!(server.worker("allocations"), before);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn what_breaks_the_rules_is_closed_or_dropped_under_its_name_and_others_are_served() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet", "--record-bytes", "1024", "--fragments", "4"]);
    let mut honest = connect(&rig);
    let reply = [&[0x80, 0, 0, 24][..], &7_u32.to_be_bytes(), &1_u32.to_be_bytes(), &[0; 16]].concat();
    let cases: [(&str, Vec<u8>); 5] = [
        ("record_too_large", vec![0x80, 0, 4, 1]),
        ("record_too_large", [&[0, 0, 4, 0][..], &[0; 1024], &[0x80, 0, 0, 1]].concat()),
        ("too_many_fragments", vec![0; 20]),
        ("rpc_header", reply),
        ("rpc_header", vec![0x80, 0, 0, 0]),
    ];
    for (number, (reason, bytes)) in (0..).zip(cases) {
        let before = server.drops(reason);
        let mut stream = connect(&rig);
        stream.write_all(&[record(9, 1), bytes].concat()).unwrap();
        expect_nulls(&mut stream, 9, 1);
        // Unread input may turn the close into a reset.
        match stream.read(&mut [0; 16]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{reason}: not closed: {other:?}"),
        }
        // It lingers until its peer has closed as well.
        drop(stream);
        until("the reason is counted", || server.drops(reason) == before + 1);
        honest.write_all(&record(number, 1)).unwrap();
        expect_nulls(&mut honest, number, 1);
    }
    let socket = rig.client_udp(CLIENT, 0);
    let before = server.drops("rpc_header");
    let lengths = [0, 1, 3, 4, 39, 1400];
    for len in lengths {
        assert!(!answered(&socket, SERVER, &vec![0xff; len]), "{len} bytes are no call");
    }
    assert_eq!(server.drops("rpc_header"), before + lengths.len() as u64);
    // Fragmented by IP, so it comes through the kernel's socket: a call with a handle that is longer than any.
    let long = message(7, nfs3::PROGRAM, 1, &[0xff; 60_000]);
    let reply = ask(&socket, SERVER, PORT, &long);
    assert_eq!(Reply::parse(&reply).unwrap().outcome, Err(Refusal::GarbageArguments));
    assert_eq!(server.interrupt(), Some(0));
}

/// Bytes and time bound a record, and not the number of its fragments.
#[test]
fn a_call_in_very_small_fragments_is_answered_and_endless_ones_end() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet"]);
    let mut stream = connect(&rig);
    let whole = record(1, 1);
    let mut small: Vec<u8> = Vec::new();
    for (at, byte) in whole[4..].iter().enumerate() {
        // With an empty one in front of each byte.
        small.extend([0, 0, 0, 0]);
        let last = if at + 5 == whole.len() { 0x80 } else { 0 };
        small.extend([last, 0, 0, 1, *byte]);
    }
    stream.write_all(&small).unwrap();
    expect_nulls(&mut stream, 1, 1);
    // Longer than any call, and in pieces that end within marks.
    let tail: Vec<u8> = (0..20_000).flat_map(|_| [0, 0, 0, 1, 7]).chain([0x80, 0, 0, 0]).collect();
    let mut head = record(2, 1);
    head[0] = 0;
    for piece in [&head[..], &tail].concat().chunks(4_093) {
        stream.write_all(piece).unwrap();
    }
    expect_nulls(&mut stream, 2, 1);
    // A record that never ends holds no more than its connection may.
    let (mut endless, zeros) = (connect(&rig), vec![0; 65_536]);
    while endless.write_all(&zeros).is_ok() {}
    until("it is counted", || server.drops("request_too_large") + server.drops("too_many_fragments") == 1);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn half_a_header_then_silence_ends_in_time() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet", "--request-timeout-s", "1"]);
    let mut idle = connect(&rig);
    let mut halves: Vec<TcpStream> = [1, 4, 20, 43]
        .map(|len| {
            let mut stream = connect(&rig);
            stream.write_all(&record(1, 1)[..len]).unwrap();
            stream
        })
        .into();
    for stream in &mut halves {
        assert!(matches!(stream.read(&mut [0; 16]), Ok(0)), "closed, and nothing sent");
    }
    until("all are counted", || server.drops("request_timeout") == 4);
    idle.write_all(&record(5, 1)).unwrap();
    expect_nulls(&mut idle, 5, 1);
    assert_eq!(server.interrupt(), Some(0));
}

/// Runs rpcinfo in the client's namespace; `None` if there is none.
fn rpcinfo(rig: &Rig, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("rpcinfo");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    within(&rig.client, &mut command);
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            twinpath_test_rig::skip("rpcinfo is not installed (apt-get install rpcbind)");
            None
        }
        Err(error) => panic!("rpcinfo {arguments:?}: {error}"),
    }
}

#[test]
fn rpcinfo_is_answered_over_tcp_and_udp() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, &["--path", "packet"]);
    let address = format!("{SERVER}.{}.{}", PORT >> 8, PORT & 0xff);
    for transport in ["tcp", "udp"] {
        let cases = [
            (&["100003", "3"][..], true, "ready and waiting"),
            // It sends a version that does not exist, and takes the range from the refusal.
            (&["100005"], true, "version 3 ready and waiting"),
            (&["100003", "4"], false, "low version = 3, high version = 3"),
            (&["100004", "1"], false, "Program unavailable"),
        ];
        for (asked, success, words) in cases {
            let Some(output) = rpcinfo(&rig, &[&["-a", &address, "-T", transport], asked].concat()) else {
                return;
            };
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert_eq!(output.status.success(), success, "{transport} {asked:?}: {said}");
            assert!(said.contains(words), "{transport} {asked:?}: {said}");
        }
    }
    assert_eq!(server.interrupt(), Some(0));
}

/// An rpcbind in the server's namespace, with its own /run.
struct Rpcbind {
    _process: Started,
}

/// Runs the rest of a command with another folder as /run, which is the first argument.
const OTHER_RUN: [&str; 4] = ["--mount", "sh", "-c", "mount --bind \"$0\" /run && exec \"$@\""];

/// A folder that can be /run for several processes.
fn run_folder(rig: &Rig, name: &str) -> String {
    let folder = rig.directory.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

impl Rpcbind {
    fn start(rig: &Rig) -> Option<Self> {
        Self::start_with(rig, &run_folder(rig, "run of rpcbind alone"))
    }

    fn start_with(rig: &Rig, run: &str) -> Option<Self> {
        rpcinfo(rig, &["-h"])?;
        let arguments = [&OTHER_RUN[..], &[run, "rpcbind", "-f"]].concat();
        let rpcbind = Self { _process: rig.run(&rig.server, "unshare", &arguments) };
        let target: SocketAddr = format!("{SERVER}:{RPCBIND}").parse().unwrap();
        let connect = || rig.client.run(|| TcpStream::connect(target)).unwrap();
        until("rpcbind serves", || connect().is_ok());
        Some(rpcbind)
    }
}

/// A call of the port mapper, from the server's own host.
fn portmap_call(rig: &Rig, procedure: u32, mapping: mapping) -> Vec<u8> {
    let local = SocketAddr::from(([127, 0, 0, 1], 599));
    let socket = udp_in(&rig.server, local);
    let (auth, args) = (Auth::none(), portmap_arguments(&mapping));
    let mut message = Vec::new();
    Call { xid: 3, program: portmap::PROGRAM, version: 2, procedure, auth: &auth, args: &args }
        .write(&mut message);
    let reply = ask(&socket, "127.0.0.1", RPCBIND, &message);
    Reply::parse(&reply).unwrap().outcome.unwrap().to_vec()
}

fn registered(rig: &Rig, program: u32, protocol: u32) -> Option<u16> {
    let results = portmap_call(rig, 3, mapping { prog: program, vers: 3, prot: protocol, port: 0 });
    portmap_port(&results).unwrap()
}

/// What is registered of both programs, over UDP and TCP.
fn known(rig: &Rig) -> [[Option<u16>; 2]; 2] {
    let protocols = [portmap::IPPROTO_UDP, portmap::IPPROTO_TCP];
    [nfs3::PROGRAM, mount::PROGRAM].map(|program| protocols.map(|it| registered(rig, program, it)))
}

#[test]
fn the_registration_of_a_killed_instance_at_another_port_is_replaced() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let Some(_rpcbind) = Rpcbind::start(&rig) else { return };
    let killed = serve(&rig, &["--path", "kernel", "--rpcbind"]);
    assert_eq!(known(&rig), [[Some(PORT); 2]; 2]);
    killed.kill();
    let port = (PORT + 1).to_string();
    let server = rig.start(&["rpc", "--on", "vs", "--udp", &port, "--path", "kernel", "--rpcbind"]);
    // It serves no TCP, where the killed one's port is nobody's as well.
    assert_eq!(known(&rig), [[Some(PORT + 1), None]; 2]);
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(known(&rig), [[None; 2]; 2]);
}

#[test]
fn a_service_that_was_there_before_rpcbind_registers_and_does_again_after_it_crashed() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let port = PORT.to_string();
    let shared = run_folder(&rig, "run of both");
    let program = env!("CARGO_BIN_EXE_twinpath");
    let serve = ["serve", "rpc", "--on", "vs", "--udp", &port, "--path", "kernel", "--rpcbind"];
    let ours = [[Some(PORT), None]; 2];
    for (own, of_rpcbind) in [(shared.as_str(), shared.as_str()), ("/run", &shared)] {
        let mut command = Command::new("unshare");
        command.args(OTHER_RUN).args([own, program]).args(serve);
        let server = rig.launch(command, &rig.server).expect("it serves");
        server.wait_until_said("no rpcbind answers at port 111");
        let Some(mut rpcbind) = Rpcbind::start_with(&rig, of_rpcbind) else { return };
        until("it is registered", || known(&rig) == ours);
        // Where its /run is the same, each start is seen.
        for _ in 0..if own == of_rpcbind { 2 } else { 0 } {
            drop(rpcbind);
            rpcbind = Rpcbind::start_with(&rig, of_rpcbind).expect("as before");
            until("it is registered again", || known(&rig) == ours);
        }
        assert_eq!(server.interrupt(), Some(0));
        assert_eq!(known(&rig), [[None; 2]; 2]);
    }
}

#[test]
fn programs_are_registered_with_rpcbind_until_the_end_and_others_stay() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let absent = serve(&rig, &["--path", "kernel", "--rpcbind"]);
    absent.wait_until_said("no rpcbind answers at port 111");
    assert_eq!(absent.interrupt(), Some(0));

    let Some(_rpcbind) = Rpcbind::start(&rig) else { return };
    // A registration of another program, over TCP only, which is there.
    let bind = || TcpListener::bind((SERVER, 999));
    let _other = rig.server.run(bind).unwrap().expect("a free port");
    let others = mapping { prog: mount::PROGRAM, vers: 3, prot: portmap::IPPROTO_TCP, port: 999 };
    assert_eq!(portmap_boolean(&portmap_call(&rig, 1, others)), Ok(true));
    let server = serve(&rig, &["--path", "packet", "--rpcbind"]);
    server.wait_until_said("at port 999, somebody else's");
    assert_eq!(known(&rig), [[Some(PORT), Some(PORT)], [Some(PORT), Some(999)]]);
    // The registration of a killed instance is right for the next one, which removes it.
    server.kill();
    let server = serve(&rig, &["--path", "packet", "--rpcbind"]);
    assert_eq!(known(&rig), [[Some(PORT), Some(PORT)], [Some(PORT), Some(999)]]);
    assert_eq!(server.interrupt(), Some(0));
    // The port mapper removes all protocols of a program or none, so the other program's entry keeps ours.
    assert_eq!(known(&rig), [[None, None], [Some(PORT), Some(999)]]);
}
