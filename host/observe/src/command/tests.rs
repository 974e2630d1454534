use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use twinpath_sys::event_loop::{EventLoop, on_a_thread, yield_now};
use twinpath_sys::race;
use twinpath_time::Duration;

use super::*;
use crate::report::{Drop, Report};

fn report() -> Report {
    let drop = Drop { place: "worker 0".to_owned(), reason: "martian".to_owned(), count: 3 };
    Report { drops: vec![drop], ..Report::default() }
}

fn handle(request: Request) -> Result<Value, String> {
    match request {
        Request::Show(topic) => topic.of(&report()),
        Request::Set(Set { worker: Some(9), .. }) => Err("there is no worker 9: they are 0 to 1".to_owned()),
        Request::Set(_) => Ok(json!({})),
        Request::Measure => Ok(json!({ "machine": null })),
        Request::Capture(_) => Err("no captures here".to_owned()),
        Request::Port(_) => Err(NO_SWITCH.to_owned()),
        Request::Connections(_) => Err(NO_SERVICES.to_owned()),
        Request::Sockets | Request::StandBy | Request::Drain(_) | Request::Reload => {
            Err("nothing to hand over".to_owned())
        }
    }
}

/// Serves on a socket in a new directory while `client` runs on a separate thread; returns the counters.
/// With `hurried`, clients are let go at once.
fn served(hurried: bool, client: impl FnOnce(&Path) + Send + 'static) -> ServerCounters {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run").join("test.sock");
    let counters = EventLoop::new().unwrap().run(async {
        let mut server = Server::bind(&path).unwrap();
        if hurried {
            server.patience = Duration::from_millis(10);
        }
        let socket = path.clone();
        let ended = on_a_thread("client", move || client(&socket));
        let serves = async { match server.serve(|request| std::future::ready(handle(request))).await {} };
        race!(serves, async { ended.await.expect("the client's assertions hold") });
        server.counters()
    });
    assert!(!path.exists(), "the socket goes with its server");
    counters
}

/// Sends raw bytes and reads until the server closes.
fn raw(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn requests_are_the_documented_json() {
    for (text, request) in [
        (r#"{"show":"all"}"#, Request::Show(Topic::All)),
        (r#""measure""#, Request::Measure),
        (r#"{"show":"neighbours"}"#, Request::Show(Topic::Neighbours)),
        (
            r#"{"set":{"worker":0,"mode":"poll"}}"#,
            Request::Set(Set { worker: Some(0), mode: Some(Mode::Poll), ..Set::default() }),
        ),
        (
            r#"{"set":{"worker":null,"mode":"adaptive"}}"#,
            Request::Set(Set { mode: Some(Mode::Adaptive), ..Set::default() }),
        ),
    ] {
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
    }
    assert_eq!(
        serde_json::from_str::<Request>(r#"{"set":{"mode":"poll"}}"#).unwrap(),
        Request::Set(Set { mode: Some(Mode::Poll), ..Set::default() })
    );
    for topic in Topic::ALL {
        assert_eq!(serde_json::to_value(topic).unwrap(), json!(topic.name()));
    }
}

#[test]
fn topics_are_parts_of_the_report() {
    assert_eq!(
        Topic::Drops.of(&report()).unwrap(),
        json!({"drops": [{"place": "worker 0", "reason": "martian", "count": 3}]})
    );
    let all = Topic::All.of(&report()).unwrap();
    for topic in &Topic::ALL[1..] {
        assert_eq!(all.get(topic.name()), topic.of(&report()).unwrap().get(topic.name()), "{topic}");
        assert!(all.get(topic.name()).is_some(), "{topic}");
    }
}

#[test]
fn a_client_gets_an_answer_or_one_sentence() {
    let counters = served(false, |socket| {
        let mode = std::fs::metadata(socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ask(socket, &Request::Show(Topic::Drops)).unwrap(), Topic::Drops.of(&report()).unwrap());
        let set =
            |worker| ask(socket, &Request::Set(Set { worker, mode: Some(Mode::Poll), ..Set::default() }));
        assert_eq!(set(None).unwrap(), json!({}));
        assert_eq!(set(Some(9)).unwrap_err().to_string(), "there is no worker 9: they are 0 to 1");
    });
    assert_eq!(counters, ServerCounters { answered: 3, ..ServerCounters::default() });
}

#[test]
fn one_connection_takes_several_requests_and_survives_wrong_ones() {
    let counters = served(false, |socket| {
        let answer =
            raw(socket, b"{\"show\":\"rules\"}\nnonsense\n{\"show\":\"tables\"}\n{\"show\":\"drops\"}\n");
        let lines: Vec<Value> = answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].get("ok").is_some() && lines[3].get("ok").is_some());
        assert!(lines[1]["error"].as_str().unwrap().starts_with("not a request: expected"));
        assert!(lines[2]["error"].as_str().unwrap().starts_with("not a request: unknown variant `tables`"));
    });
    assert_eq!(counters, ServerCounters { answered: 4, ..ServerCounters::default() });
}

#[test]
fn a_client_with_many_requests_does_not_keep_the_loop_from_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run").join("test.sock");
    EventLoop::new().unwrap().run(async {
        let server = Server::bind(&path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&b"x\n".repeat(500)).unwrap();
        let serves = async { match server.serve(|request| std::future::ready(handle(request))).await {} };
        let looks = async {
            while server.counters().answered == 0 {
                yield_now().await;
            }
        };
        race!(serves, looks);
        assert!(server.counters().answered < 10, "all were answered before anything else had its turn");
    });
}

#[test]
fn a_line_too_long_and_a_line_cut_short_end_the_client() {
    let counters = served(false, |socket| {
        let answer = raw(socket, &vec![b' '; REQUEST_MAX]);
        assert_eq!(answer, "{\"error\":\"a request has at most 65536 bytes\"}\n");
        assert_eq!(raw(socket, b"{\"show\":\"all\""), "");
    });
    assert_eq!(counters, ServerCounters { cut_off: 2, ..ServerCounters::default() });
}

#[test]
fn a_silent_client_is_let_go() {
    let counters = served(true, |socket| {
        let mut silent = UnixStream::connect(socket).unwrap();
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    });
    assert_eq!(counters.cut_off, 1);
}

#[test]
fn a_client_that_never_reads_is_let_go() {
    let counters = served(true, |socket| {
        let mut deaf = UnixStream::connect(socket).unwrap();
        let mut requests = b"{\"show\":\"all\"}\n".repeat(1000);
        // The server stops reading when its answers do not fit, and closes after a while.
        while deaf.write_all(&requests).is_ok() {
            requests.truncate(100_000);
        }
    });
    assert_eq!(counters.cut_off, 1);
}

#[test]
fn one_client_too_many_is_told_so() {
    let counters = served(false, |socket| {
        let mut clients: Vec<UnixStream> =
            (0..CLIENTS_MAX).map(|_| UnixStream::connect(socket).unwrap()).collect();
        let refused = ask(socket, &Request::Show(Topic::All)).unwrap_err();
        assert_eq!(refused.to_string(), "16 clients are connected already: try again");
        // A client that leaves makes room; the server has noticed it when it closes its end of the connection.
        let mut leaving = clients.pop().unwrap();
        leaving.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(leaving.read(&mut [0; 1]).unwrap(), 0);
        assert!(ask(socket, &Request::Show(Topic::All)).is_ok());
    });
    assert_eq!((counters.answered, counters.refused_full), (1, 1));
}

#[test]
fn a_dead_socket_is_replaced_a_live_one_and_a_file_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let events = EventLoop::new().unwrap();
    let _inside = events.enter();
    let dead = directory.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let live = Server::bind(&dead).unwrap();
    assert!(matches!(Server::bind(&dead), Err(CommandError::InUse { .. })));
    let file = directory.path().join("file.sock");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(Server::bind(&file), Err(CommandError::NotASocket { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    drop(live);
    assert!(!dead.exists());
    let long = directory.path().join("x".repeat(200));
    assert!(matches!(Server::bind(&long), Err(CommandError::Listen { .. })));
}

#[test]
fn running_instances_are_found_and_dead_ones_swept() {
    let directory = tempfile::tempdir().unwrap();
    let nonesuch = [directory.path().join("nonesuch")];
    let found = find_instances(&nonesuch).unwrap();
    assert_eq!(found, FoundInstances { looked: nonesuch.to_vec(), ..FoundInstances::default() });
    let socket = |name: &str| directory.path().join(name);
    let running = std::os::unix::net::UnixListener::bind(socket("b.sock")).unwrap();
    let other = std::os::unix::net::UnixListener::bind(socket("a.sock")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(socket("dead.sock")).unwrap());
    std::fs::write(socket("file.sock"), "").unwrap();
    let found = find_instances(&[directory.path().to_owned()]).unwrap();
    assert_eq!(found.running, [socket("a.sock"), socket("b.sock")]);
    assert!(!socket("dead.sock").exists() && socket("file.sock").exists());
    drop((running, other));
}

/// Runs `work` on a thread with another user id, which the kernel also reports to the peer.
fn as_user<R: Send>(uid: u32, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let uid = rustix::fs::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

const NOBODY: u32 = 65_534;

/// A folder that all users may write to: sticky, like /tmp.
fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

#[test]
fn an_impostor_is_not_asked_believed_or_taken_over_from() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let folder = shared_folder();
    let path = folder.path().join("echo-eth0-1.sock");
    let impostor = as_user(NOBODY, || {
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        listener
    });
    let refused = ask(&path, &Request::Show(Topic::All)).unwrap_err();
    assert!(matches!(refused, CommandError::OtherUser { uid: NOBODY, own: 0, .. }), "{refused}");
    let refused = follow_drain(&path, Drain::default(), |_| unreachable!()).unwrap_err();
    assert!(matches!(refused, CommandError::OtherUser { .. }), "{refused}");
    let found = find_instances(&[folder.path().to_owned()]).unwrap();
    assert_eq!((found.running.len(), found.closed_to_us), (0, vec![path.clone()]));
    // Nothing was sent to it.
    for _ in 0..3 {
        let (mut stream, _) = impostor.accept().unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
    }
    // A name that another user has taken cannot be listened on.
    let events = EventLoop::new().unwrap();
    let _inside = events.enter();
    assert!(matches!(Server::bind(&path), Err(CommandError::InUse { .. })));
}

#[test]
fn another_user_is_neither_answered_nor_able_to_replace_the_socket() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let counters = served(false, |path| {
        // The mode excludes others; even with another mode, the user is checked.
        for folder in [path.parent().unwrap(), path.parent().unwrap().parent().unwrap()] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let denied = as_user(NOBODY, || UnixStream::connect(path).unwrap_err().kind());
        assert_eq!(denied, io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let answer = as_user(NOBODY, || {
            let mut stream = UnixStream::connect(path).unwrap();
            // The connection may be closed before this is sent.
            let _ = stream.write_all(b"{\"show\":\"all\"}\n");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer
        });
        assert_eq!(answer, b"");
        as_user(NOBODY, || std::fs::remove_file(path).unwrap_err());
    });
    assert_eq!((counters.refused_user, counters.answered), (1, 0));
}

#[test]
fn a_folder_that_others_could_change_holds_no_command_socket() {
    let folder = tempfile::tempdir().unwrap();
    let events = EventLoop::new().unwrap();
    let _inside = events.enter();
    let path = folder.path().join("run/test.sock");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path.parent().unwrap(), mode).unwrap();
    };
    for open in [0o770, 0o707, 0o777] {
        mode(open);
        let refused = Server::bind(&path).err().unwrap();
        assert!(matches!(refused, CommandError::Folder(TrustError::Mode { .. })), "{refused}");
        assert!(find_instances(&[path.parent().unwrap().to_owned()]).is_err());
    }
    mode(0o755);
    drop(Server::bind(&path).unwrap());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(path.parent().unwrap(), &link).unwrap();
    let refused = Server::bind(&link.join("test.sock")).err().unwrap();
    assert!(matches!(refused, CommandError::Folder(TrustError::Link { .. })), "{refused}");
    if twinpath_test_rig::root_or_skip() {
        std::os::unix::fs::chown(path.parent().unwrap(), Some(NOBODY), None).unwrap();
        let refused = Server::bind(&path).err().unwrap();
        assert!(matches!(refused, CommandError::Folder(TrustError::Owner { uid: NOBODY, .. })), "{refused}");
        assert!(find_instances(&[path.parent().unwrap().to_owned()]).is_err());
    }
}

#[test]
fn a_folder_within_is_looked_into_and_named_if_it_is_somebody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("eth0");
    std::fs::create_dir(&within).unwrap();
    let _running = std::os::unix::net::UnixListener::bind(within.join("serve.sock")).unwrap();
    let places = [folder.path().to_owned(), folder.path().join("nonesuch")];
    let found = find_instances(&places).unwrap();
    assert_eq!(found.running, [within.join("serve.sock")]);
    assert_eq!(found.places(), format!("{} and {}", places[0].display(), places[1].display()));
    if twinpath_test_rig::root_or_skip() {
        std::os::unix::fs::chown(&within, Some(NOBODY), None).unwrap();
        let found = find_instances(&places).unwrap();
        assert_eq!((found.running.len(), found.closed_to_us), (0, vec![within]));
    }
}
