use twinpath_rpc::auth::{Credential, OpaqueAuth};

use super::*;

fn peer(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

fn network(address: &str, prefix: u8) -> Network {
    Network::new(address.parse().expect("an address"), prefix).expect("as many bits")
}

fn body(uid: u32, gid: u32, gids: &[u32]) -> Vec<u8> {
    let words = [0, 0, uid, gid, gids.len() as u32];
    words.iter().chain(gids).flat_map(|word| word.to_be_bytes()).collect()
}

fn caller(squash: Squash, uid: u32, gid: u32, gids: &[u32]) -> Caller {
    let body = body(uid, gid, gids);
    let credential = Credential::read(OpaqueAuth { flavour: 1, body: &body }).expect("AUTH_SYS");
    let claimed = Caller::claimed(&credential);
    Export { squash, ..Export::new(1, b"/srv".to_vec()) }.caller(claimed.as_ref())
}

#[test]
fn by_default_an_export_is_read_only_root_is_squashed_and_ports_are_privileged() {
    let export = Export::new(1, b"/srv".to_vec());
    assert!(export.is_read_only && export.is_secure && !export.is_async);
    assert_eq!(export.squash, Squash::Root);
    assert_eq!(export.admit(peer("192.0.2.1:1024")), Err(Denied::Port));
    assert_eq!(export.admit(peer("192.0.2.1:1023")), Ok(()));
}

#[test]
fn squashing_takes_root_out_of_users_and_all_groups() {
    let root = caller(Squash::Root, 0, 0, &[0, 7]);
    assert_eq!((root.uid, root.gid, root.groups()), (NOBODY, NOBODY, &[NOBODY, 7][..]));
    let user = caller(Squash::Root, 1000, 0, &[0, 7]);
    assert_eq!((user.uid, user.gid, user.groups()), (1000, NOBODY, &[NOBODY, 7][..]));
    let user = caller(Squash::All, 1000, 1000, &[7]);
    assert_eq!((user.uid, user.gid, user.groups()), (NOBODY, NOBODY, &[][..]));
    let root = caller(Squash::None, 0, 0, &[0]);
    assert_eq!((root.uid, root.gid, root.groups()), (0, 0, &[0][..]));
    let export = Export { squash: Squash::None, ..Export::new(1, b"/srv".to_vec()) };
    assert_eq!(export.caller(None), export.anonymous(), "who does not say who it is");
}

#[test]
fn a_user_or_group_that_means_no_change_is_anonymous() {
    for squash in [Squash::Root, Squash::All, Squash::None] {
        assert_eq!(caller(squash, u32::MAX, 5, &[6]).uid, NOBODY);
        let user = caller(squash, 9, u32::MAX, &[u32::MAX]);
        assert!(!user.is_in(u32::MAX));
    }
    let export = Export { anon_uid: u32::MAX, ..Export::new(1, b"/srv".to_vec()) };
    assert_eq!(Exports::new(vec![export]).err(), Some(ExportError::Anonymous("/srv".to_owned())));
}

#[test]
fn a_client_is_known_by_its_network() {
    let clients = vec![network("192.0.2.0", 25), network("2001:db8::", 32)];
    let export = Export { clients, ..Export::new(1, b"/srv".to_vec()) };
    for (address, is_admitted) in [
        ("192.0.2.127:1", true),
        ("192.0.2.128:1", false),
        ("[::ffff:192.0.2.1]:1", true),
        ("[2001:db8:ffff::1]:1", true),
        ("[2001:db9::1]:1", false),
    ] {
        let expected = if is_admitted { Ok(()) } else { Err(Denied::NoExport) };
        assert_eq!(export.admit(peer(address)), expected, "{address}");
    }
    assert!(network("192.0.2.1", 0).contains("203.0.113.9".parse().expect("an address")));
    assert_eq!(Network::new("192.0.2.1".parse().expect("an address"), 33), None);
}

#[test]
fn a_path_is_of_the_export_that_it_is_deepest_in() {
    let exports = Exports::new(vec![
        Export::new(1, b"/srv".to_vec()),
        Export::new(2, b"/srv/data/secret".to_vec()),
        Export::new(3, b"/srv/data".to_vec()),
    ])
    .expect("three exports");
    let of = |path: &str| {
        let (export, names) = exports.of_path(path.as_bytes())?;
        Some((
            export.number,
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>(),
        ))
    };
    assert_eq!(of("/srv"), Some((1, vec![])));
    assert_eq!(of("//srv//data/"), Some((3, vec![])));
    assert_eq!(of("/srv/data/secret/x"), Some((2, vec!["x".to_owned()])));
    assert_eq!(of("/srv/database"), Some((1, vec!["database".to_owned()])));
    assert_eq!((of("/"), of("/srvx"), of("srv"), of("")), (None, None, None, None));
}

#[test]
fn exports_that_cannot_be_told_apart_are_refused() {
    let refused = |exports: Vec<Export>| Exports::new(exports).err();
    let two = |one: (u32, &[u8]), other: (u32, &[u8])| {
        refused(vec![Export::new(one.0, one.1.to_vec()), Export::new(other.0, other.1.to_vec())])
    };
    assert_eq!(two((1, b"/a"), (1, b"/b")), Some(ExportError::Number(1)));
    assert_eq!(two((1, b"/a"), (2, b"/a")), Some(ExportError::Path("/a".to_owned())));
    assert_eq!(two((1, b"/"), (2, b"/a")), None);
    for path in ["", "a", "/a/", "/a/../b", "/./a", "/a\0b"] {
        let form = Some(ExportError::Form(path.to_owned()));
        assert_eq!(refused(vec![Export::new(1, path.as_bytes().to_vec())]), form, "{path}");
    }
}
