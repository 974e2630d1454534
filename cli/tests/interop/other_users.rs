//! Tests that other users of the machine have no influence on an instance or its clients.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::rig::Rig;
use crate::tune::with_own_run_directory;

const NOBODY: u32 = 65_534;

/// Runs `work` on a thread with another user id, which the kernel also reports to the peer.
pub(crate) fn as_nobody<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let uid = rustix::fs::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root");
            work()
        });
        thread.join().expect("no panic")
    })
}

#[test]
fn no_sockets_are_taken_over_from_another_user() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let folder = tempfile::tempdir().expect("made");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).expect("ours");
    let path = folder.path().join("impostor.sock");
    let impostor = as_nobody(|| std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    let refused = rig.try_serve(&["--take-over", path.to_str().expect("text")]).err().expect("refused");
    assert!(refused.contains("is listened on by user 65534"), "{refused}");
    let (mut stream, _) = impostor.accept().expect("it connected");
    assert_eq!(std::io::Read::read(&mut stream, &mut [0; 64]).expect("closed"), 0, "nothing was asked");
}

#[test]
fn another_user_is_told_where_instances_were_looked_for_and_which_are_closed_to_it() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    with_own_run_directory(|| {
        let show = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
            command.arg("show").env_remove("XDG_RUNTIME_DIR").env("TMPDIR", "/tmp");
            command.stdin(Stdio::null()).uid(NOBODY);
            String::from_utf8(command.output().expect("it runs").stderr).expect("text")
        };
        let said = show();
        assert!(said.contains("looked in /tmp/twinpath-65534 and /run/twinpath"), "{said}");
        let socket = "/run/twinpath/echo-vs-1.sock";
        let _roots = std::os::unix::net::UnixListener::bind(socket).expect("bound");
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let said = show();
        assert!(said.contains("as another user") && said.contains(socket), "{said}");
    });
}

#[test]
fn another_user_cannot_take_an_ethertype_away() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let ifindex = rig
        .server
        .run(|| twinpath_sys::packet_socket::interface_index("vs"))
        .expect("entered")
        .expect("there");
    // An older kind of lock: a name that any user may take.
    let name = format!("twinpath/interface-{ifindex}/ethertype-88b5");
    let squat = || {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
        let taken = twinpath_sys::FrameClaim::take(ifindex, 0x88b5).map(|claim| claim.is_some());
        (std::os::unix::net::UnixDatagram::bind_addr(&address).expect("bound"), taken)
    };
    let (_squatter, taken) = rig.server.run(|| as_nobody(squat)).expect("entered");
    assert_eq!(taken.expect_err("no right").kind(), std::io::ErrorKind::PermissionDenied);
    let server = rig.start(&["reflect", "--on", "vs", "--ethertype", "0x88b5", "--path", "packet"]);
    assert_eq!(server.interrupt(), Some(0));
}
