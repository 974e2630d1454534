use nfs3_types::nfs3::{
    COMMIT3res, COMMIT3resok, LOOKUP3res, LOOKUP3resok, Nfs3Option, READ3res, READ3resok, READDIRPLUS3res,
    READDIRPLUS3resok, WRITE3res, WRITE3resfail, WRITE3resok, cookieverf3, dirlistplus3, entryplus3, fattr3,
    filename3, nfs_fh3, stable_how, wcc_attr, wcc_data, writeverf3,
};
use nfs3_types::xdr_codec::{List, Opaque, Pack};

use super::*;

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("memory is no file");
    bytes
}

fn attributes() -> fattr3 {
    let mut bytes = [0; ATTRIBUTES_LEN];
    bytes[3] = 1;
    let (zeroes, _) = fattr3::unpack(&mut &bytes[..]).expect("a regular file of zeroes");
    fattr3 { size: 7, fileid: 9, ..zeroes }
}

fn changed() -> wcc_data {
    let (before, _) = wcc_attr::unpack(&mut &[0; BEFORE_LEN][..]).expect("zeroes");
    wcc_data { before: Nfs3Option::Some(before), after: Nfs3Option::Some(attributes()) }
}

fn handle(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

/// Every shorter message is an error, and so is a longer one.
fn is_exact<T: std::fmt::Debug>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, NfsError>) {
    for len in 0..bytes.len() {
        let short = decode(&bytes[..len]);
        assert!(matches!(short, Err(NfsError::Xdr(XdrError::Short(_)))), "{len}: {short:?}");
    }
    let long = decode(&[bytes, &[0; 4]].concat());
    assert!(matches!(long, Err(NfsError::Xdr(XdrError::Trailing(4)))), "{long:?}");
}

#[test]
fn what_the_library_writes_is_read() {
    let read = packed(&READ3res::Ok(READ3resok {
        file_attributes: Nfs3Option::Some(attributes()),
        count: 5,
        eof: true,
        data: Opaque::borrowed(b"bytes"),
    }));
    assert_eq!(read_results(&read, 5), Ok(ReadResults { data: b"bytes", eof: true }));
    assert_eq!(read_results(&read, 4), Err(XdrError::TooLong { len: 5, max: 4 }.into()));
    is_exact(&read, |bytes| read_results(bytes, 5).map(drop));

    let (file_wcc, verf) = (changed(), writeverf3([3; 8]));
    let write =
        packed(&WRITE3res::Ok(WRITE3resok { file_wcc, count: 5, committed: stable_how::UNSTABLE, verf }));
    assert_eq!(write_results(&write), Ok(WriteResults { count: 5, verifier: [3; 8] }));
    is_exact(&write, write_results);

    let commit = packed(&COMMIT3res::Ok(COMMIT3resok { file_wcc: changed(), verf: writeverf3([4; 8]) }));
    assert_eq!(commit_results(&commit), Ok([4; 8]));
    is_exact(&commit, commit_results);

    let lookup = packed(&LOOKUP3res::Ok(LOOKUP3resok {
        object: handle(b"a handle"),
        obj_attributes: Nfs3Option::Some(attributes()),
        dir_attributes: Nfs3Option::None,
    }));
    assert_eq!(lookup_results(&lookup), Ok(&b"a handle"[..]));
    is_exact(&lookup, |bytes| lookup_results(bytes).map(drop));
}

fn entry(number: u64, name: &'static [u8], is_found: bool) -> entryplus3<'static> {
    let (name_attributes, name_handle) = if is_found {
        (Nfs3Option::Some(attributes()), Nfs3Option::Some(handle(name)))
    } else {
        (Nfs3Option::None, Nfs3Option::None)
    };
    entryplus3 {
        fileid: number,
        name: filename3(Opaque::borrowed(name)),
        cookie: number + 1,
        name_attributes,
        name_handle,
    }
}

#[test]
fn a_page_is_read_entry_by_entry() {
    let bytes = packed(&READDIRPLUS3res::Ok(READDIRPLUS3resok {
        dir_attributes: Nfs3Option::None,
        cookieverf: cookieverf3([8; 8]),
        reply: dirlistplus3 {
            entries: List(vec![entry(1, b"file", true), entry(2, b"gone", false)]),
            eof: true,
        },
    }));
    let all = |bytes: &[u8]| {
        let mut page = Page::new(bytes)?;
        assert_eq!(page.verifier, [8; 8]);
        let mut names = Vec::new();
        loop {
            match page.next()? {
                Listed::Entry(entry) => {
                    assert_eq!(entry.attributes.is_some(), entry.fileid == 1);
                    assert_eq!((entry.handle.is_some(), entry.cookie), (entry.fileid == 1, entry.fileid + 1));
                    names.push(entry.name.to_vec());
                }
                Listed::End { eof } => return Ok((names, eof)),
            }
        }
    };
    assert_eq!(all(&bytes), Ok((vec![b"file".to_vec(), b"gone".to_vec()], true)));
    is_exact(&bytes, all);
}

#[test]
fn failures_have_their_status_and_unknown_values_their_name() {
    let failed = packed(&WRITE3res::Err((nfsstat3::NFS3ERR_NOSPC, WRITE3resfail { file_wcc: changed() })));
    assert_eq!(write_results(&failed), Err(NfsError::Status(nfsstat3::NFS3ERR_NOSPC)));
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let unknown = |field, value| NfsError::Unknown { field, value };
    assert_eq!(commit_results(&words(&[12])).err(), Some(unknown("status", 12)));
    assert_eq!(commit_results(&words(&[0, 2])).err(), Some(unknown("mark of attributes", 2)));
    assert_eq!(write_results(&words(&[0, 0, 0, 1, 3])).err(), Some(unknown("committed", 3)));
    let count = words(&[0, 0, 9, 0, 0]);
    assert_eq!(read_results(&count, 16).err(), Some(unknown("count", 9)));
}
