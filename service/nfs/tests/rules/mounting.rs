//! MOUNT: who gets which handle, and who sees what.

use twinpath_nfs::{Context, MountCall, Mounts, Network};
use twinpath_rpc::nfs3_types::mount::mountstat3;
use twinpath_rpc::xdr::Reader;

use crate::rig::Rig;

struct Client {
    rig: Rig,
    mounts: Mounts,
}

impl Client {
    fn new() -> Self {
        let rig = Rig::with(|exports| {
            exports[1].clients =
                vec![Network::new("198.51.100.0".parse().expect("an address"), 24).expect("24 bits")];
        });
        Self { rig, mounts: Mounts::new(3) }
    }

    fn ask(&mut self, version: u32, call: MountCall<'_>) -> Vec<u8> {
        let context = Context { peer: self.rig.peer, claimed: None, sizes: self.rig.sizes };
        let mut out = Vec::new();
        let server = &self.rig.server;
        match call {
            MountCall::Mount(path) => {
                let done = server.mount(&mut self.rig.files, &self.mounts, &context, version, path, &mut out);
                done.expect("nothing waits");
            }
            call => server.answer_mount(&self.mounts, &context, call, &mut out),
        }
        out
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let results = self.ask(3, MountCall::Mount(path.as_bytes()));
        let mut reader = Reader::new(&results);
        match reader.u32().expect("a status") {
            0 => {
                let handle = reader.opaque(64).expect("a handle").to_vec();
                let flavours = reader.words(3).expect("two flavours");
                assert_eq!(flavours, [[0, 0, 0, 2], [0, 0, 0, 1], [0, 0, 0, 0]]);
                assert_eq!(reader.rest(), []);
                Ok(handle)
            }
            status => Err(status),
        }
    }

    /// The strings of a list of lists, in order.
    fn strings(results: &[u8]) -> Vec<String> {
        let mut reader = Reader::new(results);
        let mut strings = Vec::new();
        while let Ok(word) = reader.u32() {
            // A mark, or the length of a string that follows.
            if word > 1 {
                let bytes = reader.words(word.div_ceil(4) as usize).expect("a string").concat();
                strings.push(String::from_utf8_lossy(&bytes[..word as usize]).into_owned());
            }
        }
        strings
    }
}

#[test]
fn a_mounted_path_is_an_export_or_within_one() {
    let mut client = Client::new();
    let root = client.rig.root();
    assert_eq!(client.mount("/one").as_deref(), Ok(&root.data[..]));
    assert_eq!(client.mount("//one/./").as_deref(), Ok(&root.data[..]));
    let dir = client.rig.make_directory(&root, "dir").expect("new");
    assert_eq!(client.mount("/one/dir").as_deref(), Ok(&dir.data[..]));
}

#[test]
fn each_error_of_a_mount_keeps_its_name() {
    let mut client = Client::new();
    let root = client.rig.root();
    client.rig.create(&root, "file", 0o640);
    let dir = client.rig.make_directory(&root, "dir").expect("new");
    let number = client.rig.file(&dir);
    client.rig.files.node(number).mode = 0o700;
    let long = format!("/one/{}", "x".repeat(256));
    for (path, status) in [
        ("/none", mountstat3::MNT3ERR_NOENT),
        ("/one/none", mountstat3::MNT3ERR_NOENT),
        ("one", mountstat3::MNT3ERR_NOENT),
        ("/one/file", mountstat3::MNT3ERR_NOTDIR),
        ("/one/file/x", mountstat3::MNT3ERR_NOTDIR),
        ("/one/dir/x", mountstat3::MNT3ERR_ACCES),
        ("/one/dir/../..", mountstat3::MNT3ERR_INVAL),
        ("/one/a\0b", mountstat3::MNT3ERR_INVAL),
        (&long, mountstat3::MNT3ERR_NAMETOOLONG),
        ("/two", mountstat3::MNT3ERR_ACCES),
    ] {
        assert_eq!(client.mount(path), Err(status as u32), "{path:?}");
    }
    client.rig.peer.set_port(40_000);
    assert_eq!(client.mount("/one"), Err(mountstat3::MNT3ERR_ACCES as u32));
}

#[test]
fn version_1_lists_but_gives_no_handles() {
    let mut client = Client::new();
    let refused = client.ask(1, MountCall::Mount(b"/one"));
    assert_eq!(refused, (mountstat3::MNT3ERR_ACCES as u32).to_be_bytes());
    assert_eq!(Client::strings(&client.ask(1, MountCall::Export)), ["/one"]);
}

#[test]
fn exports_and_mounts_are_shown_to_those_who_may_mount_them() {
    let mut client = Client::new();
    client.mount("/one").expect("it may");
    assert_eq!(Client::strings(&client.ask(3, MountCall::Export)), ["/one"]);
    client.rig.peer = "198.51.100.7:700".parse().expect("an address");
    client.mount("/two").expect("it may");
    assert_eq!(Client::strings(&client.ask(3, MountCall::Export)), ["/one", "/two", "198.51.100.0/24"]);
    let all = ["192.0.2.1", "/one", "198.51.100.7", "/two"];
    assert_eq!(Client::strings(&client.ask(3, MountCall::Dump)), all);
    client.rig.peer = "192.0.2.1:700".parse().expect("an address");
    assert_eq!(Client::strings(&client.ask(3, MountCall::Dump)), all[..2]);
    client.ask(3, MountCall::Unmount(b"/one"));
    assert_eq!(Client::strings(&client.ask(3, MountCall::Dump)), Vec::<String>::new());
}

#[test]
fn the_list_of_mounts_is_bounded_and_has_a_mount_once() {
    let mut client = Client::new();
    for last in 1..=9 {
        client.rig.peer = format!("192.0.2.{last}:700").parse().expect("an address");
        client.mount("/one").expect("it may");
        client.mount("/one").expect("it may");
    }
    let shown = Client::strings(&client.ask(3, MountCall::Dump));
    assert_eq!(shown, ["192.0.2.7", "/one", "192.0.2.8", "/one", "192.0.2.9", "/one"]);
    client.ask(3, MountCall::UnmountAll);
    assert_eq!(Client::strings(&client.ask(3, MountCall::Dump)).len(), 4, "its own are gone");
}
