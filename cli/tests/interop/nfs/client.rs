//! A client of NFS and MOUNT by `nfs3_types`, over UDP and TCP: whatever the server's own codec takes for granted, it
//! does not share.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use twinpath_rpc::client::{Auth, Call, Refusal, Reply, mount_arguments, root_handle};
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use twinpath_rpc::nfs3_types::{mount, nfs3};
use twinpath_rpc::record::{RecordLimits, RecordReader};

use crate::rig::{CLIENT, PATIENCE, Rig, SERVER};

/// The port of NFS.
pub(super) const PORT: u16 = 2049;
const LIMITS: RecordLimits = RecordLimits { record_bytes: 2 << 20, fragments: 64 };

/// By which transport calls go.
enum By {
    Datagrams(UdpSocket),
    Stream(TcpStream, RecordReader),
}

/// A client that has a transport, and a user.
pub(super) struct Client {
    by: By,
    auth: Auth,
    xid: u32,
    /// The call that was sent last.
    last: Vec<u8>,
}

impl Client {
    /// By UDP, from a port that needs a privilege.
    pub(super) fn udp(rig: &Rig, uid: u32) -> Self {
        let socket = (600..1000).find_map(|port| {
            let bind = || UdpSocket::bind(format!("{CLIENT}:{port}"));
            rig.client.run(bind).unwrap().ok()
        });
        Self::over_udp(socket.expect("a free port"), uid)
    }

    /// By UDP, from any port.
    pub(super) fn insecure(rig: &Rig, uid: u32) -> Self {
        Self::over_udp(rig.client_udp(CLIENT, 0), uid)
    }

    fn over_udp(socket: UdpSocket, uid: u32) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(format!("{SERVER}:{PORT}")).unwrap();
        Self::new(By::Datagrams(socket), uid)
    }

    /// By TCP, from a port that needs a privilege.
    pub(super) fn tcp(rig: &Rig, uid: u32) -> Self {
        let connect = |port: u16| {
            let local: SocketAddr = format!("{CLIENT}:{port}").parse().unwrap();
            let target: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
            let open = || {
                let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
                let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
                rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
                rustix::net::bind(&socket, &local)?;
                rustix::net::connect(&socket, &target)?;
                Ok::<_, rustix::io::Errno>(TcpStream::from(socket))
            };
            rig.client.run(open).unwrap().ok()
        };
        let stream = (600..1000).find_map(connect).expect("a free port");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::new(By::Stream(stream, RecordReader::new(LIMITS)), uid)
    }

    fn new(by: By, uid: u32) -> Self {
        let xid = fastrand::u32(..);
        Self { by, auth: Auth::sys("client", uid, uid, &[]).unwrap(), xid, last: Vec::new() }
    }

    /// The calls that follow come from another user.
    pub(super) fn become_user(&mut self, uid: u32) {
        self.auth = Auth::sys("client", uid, uid, &[]).unwrap();
    }

    /// Sends a call, and does not wait.
    pub(super) fn send(&mut self, program: u32, procedure: u32, args: &[u8]) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        let call = Call { xid: self.xid, program, version: 3, procedure, auth: &self.auth, args };
        let mut message = Vec::new();
        match &self.by {
            By::Datagrams(_) => call.write(&mut message),
            By::Stream(..) => call.write_record(1, &mut message),
        }
        self.last = message;
        self.send_last();
        self.xid
    }

    fn send_last(&mut self) {
        match &mut self.by {
            By::Datagrams(socket) => drop(socket.send(&self.last).unwrap()),
            By::Stream(stream, _) => stream.write_all(&self.last).unwrap(),
        }
    }

    /// The results of the last call, which is sent again.
    pub(super) fn repeat(&mut self) -> Result<Vec<u8>, Refusal> {
        self.send_last();
        self.reply_to(self.xid)
    }

    fn reply_to(&mut self, xid: u32) -> Result<Vec<u8>, Refusal> {
        loop {
            let (of, outcome) = self.next_reply();
            if of == xid {
                return outcome;
            }
        }
    }

    /// The next reply that comes: its call and its results.
    pub(super) fn next_reply(&mut self) -> (u32, Result<Vec<u8>, Refusal>) {
        let mut buffer = vec![0; 70_000];
        let parse = |message: &[u8]| {
            let reply = Reply::parse(message).unwrap();
            (reply.xid, reply.outcome.map(<[u8]>::to_vec))
        };
        match &mut self.by {
            By::Datagrams(socket) => {
                let len = socket.recv(&mut buffer).expect("a reply in time");
                parse(&buffer[..len])
            }
            By::Stream(stream, reader) => loop {
                // One byte after the other would be slow; more than one reply would be lost.
                if let Some(message) = reader.next(&mut &[][..]).unwrap() {
                    return parse(message);
                }
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).expect("a reply in time");
                let len = u32::from_be_bytes(mark) & !(1 << 31);
                let mut record = mark.to_vec();
                record.resize(4 + len as usize, 0);
                stream.read_exact(&mut record[4..]).expect("all of it");
                if let Some(message) = reader.next(&mut record.as_slice()).unwrap() {
                    return parse(message);
                }
            },
        }
    }

    /// The results of a call.
    pub(super) fn call(&mut self, program: u32, procedure: u32, args: &[u8]) -> Result<Vec<u8>, Refusal> {
        let xid = self.send(program, procedure, args);
        self.reply_to(xid)
    }

    /// The handle of a directory, or the status of MOUNT.
    pub(super) fn mount(&mut self, path: &str) -> Result<nfs_fh3, u32> {
        let results = self.call(mount::PROGRAM, 1, &mount_arguments(path)).expect("accepted");
        match root_handle(&results) {
            Ok(handle) => Ok(nfs_fh3 { data: Opaque::owned(handle.to_vec()) }),
            Err(_) => Err(u32::from_be_bytes(*results.first_chunk().unwrap())),
        }
    }

    /// The results of a procedure of NFS.
    pub(super) fn ask<T, E>(&mut self, procedure: NFS_PROGRAM, args: &impl Pack) -> Result<T, nfsstat3>
    where
        Nfs3Result<T, E>: Unpack,
    {
        let results = self.call(nfs3::PROGRAM, procedure as u32, &packed(args)).expect("accepted");
        result::<T, E>(&results)
    }

    pub(super) fn attributes(&mut self, file: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        let args = GETATTR3args { object: file.clone() };
        self.ask::<GETATTR3resok, Void>(NFS_PROGRAM::NFSPROC3_GETATTR, &args).map(|ok| ok.obj_attributes)
    }

    pub(super) fn look_up(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let args = LOOKUP3args { what: at(dir, name) };
        let found = self.ask::<LOOKUP3resok, LOOKUP3resfail>(NFS_PROGRAM::NFSPROC3_LOOKUP, &args);
        found.map(|found| found.object)
    }

    pub(super) fn create(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let new = sattr3 { mode: Nfs3Option::Some(0o644), ..sattr3::default() };
        let args = CREATE3args { where_: at(dir, name), how: createhow3::GUARDED(new) };
        let made = self.ask::<CREATE3resok, CREATE3resfail>(NFS_PROGRAM::NFSPROC3_CREATE, &args);
        made.map(|made| made.obj.unwrap())
    }

    pub(super) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, nfsstat3> {
        let args = write_arguments(file, offset, data, stable);
        self.ask::<WRITE3resok, WRITE3resfail>(NFS_PROGRAM::NFSPROC3_WRITE, &args)
    }

    pub(super) fn commit(&mut self, file: &nfs_fh3) -> Result<writeverf3, nfsstat3> {
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let done = self.ask::<COMMIT3resok, COMMIT3resfail>(NFS_PROGRAM::NFSPROC3_COMMIT, &args);
        done.map(|done| done.verf)
    }

    pub(super) fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<Vec<u8>, nfsstat3> {
        let args = READ3args { file: file.clone(), offset, count };
        let read = self.ask::<READ3resok<'static>, READ3resfail>(NFS_PROGRAM::NFSPROC3_READ, &args);
        read.map(|read| read.data.to_vec())
    }

    /// The names in a directory, by READDIRPLUS, with how many have a handle.
    pub(super) fn list(&mut self, dir: &nfs_fh3) -> Result<(Vec<String>, usize), nfsstat3> {
        let (mut names, mut handles) = (Vec::new(), 0);
        let (mut cookie, mut cookieverf) = (0, cookieverf3::default());
        loop {
            let args =
                READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: 8192, maxcount: 32_768 };
            let procedure = NFS_PROGRAM::NFSPROC3_READDIRPLUS;
            let listed = self.ask::<READDIRPLUS3resok<'static>, READDIRPLUS3resfail>(procedure, &args)?;
            cookieverf = listed.cookieverf;
            for entry in listed.reply.entries.0 {
                names.push(String::from_utf8_lossy(entry.name.as_ref()).into_owned());
                handles += usize::from(matches!(entry.name_handle, Nfs3Option::Some(_)));
                cookie = entry.cookie;
            }
            if listed.reply.eof {
                return Ok((names, handles));
            }
        }
    }
}

/// A name in a directory.
pub(super) fn at(dir: &nfs_fh3, name: &str) -> diropargs3<'static> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::owned(name.as_bytes().to_vec())) }
}

/// Arguments of WRITE.
pub(super) fn write_arguments<'a>(
    file: &nfs_fh3,
    offset: u64,
    data: &'a [u8],
    stable: stable_how,
) -> WRITE3args<'a> {
    let count = data.len() as u32;
    WRITE3args { file: file.clone(), offset, count, stable, data: Opaque::borrowed(data) }
}

/// Arguments as they are sent.
pub(super) fn packed(args: &impl Pack) -> Vec<u8> {
    let mut packed = Vec::new();
    args.pack(&mut packed).unwrap();
    packed
}

/// The results of a procedure, of which nothing is left.
pub(super) fn result<T, E>(results: &[u8]) -> Result<T, nfsstat3>
where
    Nfs3Result<T, E>: Unpack,
{
    let mut rest = results;
    let (result, _) = Nfs3Result::<T, E>::unpack(&mut rest).expect("results of the procedure");
    assert!(rest.is_empty(), "{} bytes behind the results", rest.len());
    match result {
        Nfs3Result::Ok(ok) => Ok(ok),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}
