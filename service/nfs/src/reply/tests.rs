use twinpath_rpc::nfs3_types::nfs3::{GETATTR3resok, Nfs3Option, READ3resok, ftype3, specdata3, wcc_data};
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack};

use super::*;

fn time(seconds: u32) -> nfstime3 {
    nfstime3 { seconds, nseconds: seconds + 1 }
}

fn attributes() -> fattr3 {
    fattr3 {
        type_: ftype3::NF3LNK,
        mode: 0o7777,
        nlink: 3,
        uid: 4,
        gid: 5,
        size: 6 << 32 | 7,
        used: 8 << 32 | 9,
        rdev: specdata3 { specdata1: 10, specdata2: 11 },
        fsid: 12 << 32 | 13,
        fileid: 14 << 32 | 15,
        atime: time(16),
        mtime: time(18),
        ctime: time(20),
    }
}

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("it can be encoded");
    bytes
}

#[test]
fn attributes_are_written_as_the_library_writes_them() {
    let mut buffer = b"header".to_vec();
    let mut reply = Reply::new(&mut buffer);
    reply.write_attributes(&attributes());
    assert_eq!(reply.len(), ATTRIBUTES_LEN);
    assert_eq!(buffer[6..], packed(&GETATTR3resok { obj_attributes: attributes() }));
}

#[test]
fn wcc_is_written_as_the_library_writes_it() {
    for (with_before, with_after) in [(false, false), (false, true), (true, false), (true, true)] {
        let before = wcc_attr { size: 1 << 33, mtime: time(1), ctime: time(2) };
        let ours = Wcc { before: with_before.then_some(before), after: with_after.then(attributes) };
        let mut buffer = Vec::new();
        Reply::new(&mut buffer).write_wcc(&ours);
        let theirs = wcc_data {
            before: if with_before { Nfs3Option::Some(before) } else { Nfs3Option::None },
            after: if with_after { Nfs3Option::Some(attributes()) } else { Nfs3Option::None },
        };
        assert_eq!(buffer, packed(&theirs));
    }
}

#[test]
fn attributes_can_follow_the_data_that_stands_behind_them() {
    let mut buffer = vec![9; 5];
    let mut reply = Reply::new(&mut buffer);
    let reserved = reply.reserve(3);
    reply.buffer().extend_from_slice(b"hello");
    reply.pad(5);
    reply.fill(&reserved, &attributes(), &[5, 1, 5]);
    let data = Opaque::borrowed(b"hello");
    let theirs = READ3resok { file_attributes: Nfs3Option::Some(attributes()), count: 5, eof: true, data };
    assert_eq!(buffer[5..], packed(&theirs));
}

#[test]
fn a_reply_that_starts_again_keeps_the_header_alone() {
    let mut buffer = b"header".to_vec();
    let mut reply = Reply::new(&mut buffer);
    reply.write_opaque(b"a success");
    reply.restart();
    reply.write_status(nfsstat3::NFS3ERR_IO);
    assert_eq!(reply.len(), 4);
    assert_eq!(buffer, b"header\0\0\0\x05");
}
