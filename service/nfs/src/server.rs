//! The rules of the server: what each procedure does with a file system, and what it answers.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_rpc::nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, wcc_attr};

use crate::call::Call;
use crate::caller::Caller;
use crate::export::{Denied, Export, Exports};
use crate::files::{Fault, Files, OpenAs, Sync};
use crate::handle::{FileId, HandleSecret};
use crate::reply::{Reply, Wcc};
use crate::verifier::WriteVerifier;

mod attributes;
mod data;
mod directory;
mod making;

/// Length of the longest name, bytes: that of the kernel.
const NAME_MAX: usize = 255;
/// Length of the longest target of a symbolic link, bytes: `PATH_MAX` of the kernel, without its NUL.
const TARGET_MAX: usize = 4095;
/// The greatest offset in a file: offsets of the kernel are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The longest data of one call, bytes. A transport of datagrams has shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of READ.
    pub read_max: u32,
    /// Of WRITE.
    pub write_max: u32,
    /// Of the results of READDIR and READDIRPLUS.
    pub directory_max: u32,
}

/// Whose call it is, and by which transport.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The source of the call.
    pub peer: SocketAddr,
    /// Who the caller says it is, if it does.
    pub claimed: Option<Caller>,
    /// The longest data on its transport.
    pub sizes: Sizes,
}

/// The call needs a file system that may wait. Nothing was changed or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldBlock;

/// The server. Threads share it.
#[derive(Debug)]
pub struct Server {
    /// What is served.
    pub exports: Exports,
    /// Signs handles.
    pub secret: HandleSecret,
    /// The write verifier.
    pub verifier: Arc<WriteVerifier>,
}

impl Server {
    /// Carries a call out, and appends its results to `out`.
    ///
    /// # Errors
    /// The file system must not wait, and would have to. `out` is as before.
    pub fn call<F: Files>(
        &self,
        files: &mut F,
        context: &Context,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), WouldBlock> {
        let mut reply = Reply::new(out);
        let mut turn = Turn { server: self, files, context, first: None, second: None, is_named: false };
        match turn.run(call, &mut reply) {
            Ok(()) => Ok(()),
            Err(Fault::WouldBlock) => {
                reply.restart();
                Err(WouldBlock)
            }
            Err(Fault::Status(status)) => {
                reply.restart();
                reply.write_status(turn.after_change(status));
                let [first, second] = [turn.first_wcc(), turn.second_wcc()];
                write_failure(call, &first, &second, &mut reply);
                Ok(())
            }
        }
    }
}

impl Server {
    /// The place of the export of a call among all exports.
    ///
    /// # Errors
    /// The call has no handle of ours, or this client may not use its export: this is its status, and no file system
    /// has to be asked.
    pub fn place_of(&self, call: &Call<'_>, peer: SocketAddr) -> Result<u32, nfsstat3> {
        let export = self.export_of(call.handle().unwrap_or_default(), peer)?;
        self.exports.place_of(export.number).ok_or(nfsstat3::NFS3ERR_STALE)
    }

    /// The export of a handle, if this client may use it. No file is touched.
    fn export_of(&self, handle: &[u8], peer: SocketAddr) -> Result<&Export, nfsstat3> {
        let id = self.secret.open(handle)?;
        self.exports.find(id.export, peer).map_err(Denied::status)
    }

    /// Answers a call with a status, without attributes.
    pub fn refuse(&self, call: &Call<'_>, status: nfsstat3, out: &mut Vec<u8>) {
        let mut reply = Reply::new(out);
        reply.write_status(status);
        write_failure(call, &Wcc::default(), &Wcc::default(), &mut reply);
    }
}

/// A file of a handle, and the rules that hold for it.
struct Opened<'s, F> {
    file: F,
    id: FileId,
    export: &'s Export,
    who: Caller,
}

/// A file whose attributes the reply has, also if the call fails.
struct Watched<F> {
    file: F,
    before: Option<wcc_attr>,
}

/// One call that is carried out.
struct Turn<'s, 'c, F: Files> {
    server: &'s Server,
    files: &'c mut F,
    context: &'c Context,
    first: Option<Watched<F::File>>,
    second: Option<Watched<F::File>>,
    /// Whether the call has made, moved or removed a name.
    is_named: bool,
}

impl<'s, F: Files> Turn<'s, '_, F> {
    fn run(&mut self, call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
        match call {
            Call::Null => Ok(()),
            Call::Getattr { object } => self.getattr(object, reply),
            Call::Setattr { object, new, guard } => self.setattr(object, new, *guard, reply),
            Call::Lookup(what) => self.look_up(*what, reply),
            Call::Access { object, access } => self.access(object, *access, reply),
            Call::Readlink { symlink } => self.read_link(symlink, reply),
            Call::Read { file, offset, count } => self.read(file, *offset, *count, reply),
            Call::Write { file, offset, stable, data } => self.write(file, *offset, *stable, data, reply),
            Call::Create(what) => self.create(what, reply),
            Call::Mkdir { at, attributes } => self.make_directory(*at, attributes, reply),
            Call::Symlink { at, target, .. } => self.make_symlink(*at, target, reply),
            Call::Mknod { at, what } => self.make_node(*at, what, reply),
            Call::Remove(what) => self.remove(*what, false, reply),
            Call::Rmdir(what) => self.remove(*what, true, reply),
            Call::Rename { from, to } => self.rename(*from, *to, reply),
            Call::Link { file, link } => self.link(file, *link, reply),
            Call::Readdir { dir, cookie, verifier, count } => {
                let listing = directory::Listing { cookie: *cookie, verifier, plus: None, bytes: *count };
                self.list(dir, &listing, reply)
            }
            Call::Readdirplus { dir, cookie, verifier, dircount, maxcount } => {
                let plus = Some(*dircount);
                let listing = directory::Listing { cookie: *cookie, verifier, plus, bytes: *maxcount };
                self.list(dir, &listing, reply)
            }
            Call::Fsstat { root } => self.fsstat(root, reply),
            Call::Fsinfo { root } => self.fsinfo(root, reply),
            Call::Pathconf { object } => self.pathconf(object, reply),
            Call::Commit { file, .. } => self.commit(file, reply),
        }
    }

    /// The status of a failure. A client that is told to ask again would find what this call has done, and fail for that.
    const fn after_change(&self, status: nfsstat3) -> nfsstat3 {
        match status {
            nfsstat3::NFS3ERR_JUKEBOX if self.is_named => nfsstat3::NFS3ERR_SERVERFAULT,
            status => status,
        }
    }

    /// The attributes of the first watched file, before and after.
    fn first_wcc(&mut self) -> Wcc {
        wcc(self.files, self.first.as_ref())
    }

    /// The attributes of the second watched file, before and after.
    fn second_wcc(&mut self) -> Wcc {
        wcc(self.files, self.second.as_ref())
    }

    /// The file of a handle, if this client may use its export.
    fn open(&mut self, handle: &[u8]) -> Result<Opened<'s, F::File>, Fault> {
        let id = self.server.secret.open(handle)?;
        let export =
            self.server.exports.find(id.export, self.context.peer).map_err(|denied| denied.status())?;
        // A file that is gone has no name that could be missing.
        let file = self.files.open(&id).map_err(|fault| match fault {
            Fault::Status(nfsstat3::NFS3ERR_NOENT) => Fault::Status(nfsstat3::NFS3ERR_STALE),
            fault => fault,
        })?;
        let who = export.caller(self.context.claimed.as_ref());
        Ok(Opened { file, id, export, who })
    }

    /// The file of a handle, with its attributes in the reply.
    fn watch(&mut self, handle: &[u8]) -> Result<Opened<'s, F::File>, Fault> {
        let opened = self.open(handle)?;
        self.first = Some(Watched { file: opened.file.clone(), before: None });
        Ok(opened)
    }

    /// The file of a handle, which is about to be changed, and its attributes.
    fn change(&mut self, handle: &[u8]) -> Result<(Opened<'s, F::File>, fattr3), Fault> {
        let (opened, attributes, watched) = self.changed(handle)?;
        self.first = Some(watched);
        writable(&opened)?;
        Ok((opened, attributes))
    }

    /// The same for the second file of a call.
    fn change_second(&mut self, handle: &[u8]) -> Result<(Opened<'s, F::File>, fattr3), Fault> {
        let (opened, attributes, watched) = self.changed(handle)?;
        self.second = Some(watched);
        writable(&opened)?;
        Ok((opened, attributes))
    }

    #[expect(clippy::type_complexity, reason = "three values of two callers, each named there")]
    fn changed(&mut self, handle: &[u8]) -> Result<(Opened<'s, F::File>, fattr3, Watched<F::File>), Fault> {
        let opened = self.open(handle)?;
        let attributes = self.files.attributes(&opened.file)?;
        let before = wcc_attr { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime };
        let watched = Watched { file: opened.file.clone(), before: Some(before) };
        Ok((opened, attributes, watched))
    }

    /// Makes a change durable before it is answered. A failure changes the verifier before anybody learns of it.
    fn settle(&mut self, export: &Export, file: &F::File, how: Sync) -> Result<(), Fault> {
        if export.is_async {
            return Ok(());
        }
        let verifier = &self.server.verifier;
        self.files.sync(file, how, &mut || verifier.sync_failed())
    }

    /// Runs an operation by the caller's rights, and if they do not suffice, by the server's if the caller owns the
    /// file: its owner may have opened it before its mode was changed (RFC 1813, 4.4).
    fn as_owner<T>(
        &mut self,
        who: &Caller,
        attributes: &fattr3,
        mut operation: impl FnMut(&mut F, OpenAs) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match operation(self.files, OpenAs::Caller) {
            Err(Fault::Status(nfsstat3::NFS3ERR_ACCES)) if attributes.uid == who.uid => {
                operation(self.files, OpenAs::Server)
            }
            other => other,
        }
    }
}

/// What follows the status of a failure (RFC 1813, 3.3): attributes of what the call was about.
fn write_failure(call: &Call<'_>, first: &Wcc, second: &Wcc, reply: &mut Reply<'_>) {
    match call {
        Call::Null | Call::Getattr { .. } => {}
        Call::Setattr { .. }
        | Call::Write { .. }
        | Call::Create(_)
        | Call::Mkdir { .. }
        | Call::Symlink { .. }
        | Call::Mknod { .. }
        | Call::Remove(_)
        | Call::Rmdir(_)
        | Call::Commit { .. } => reply.write_wcc(first),
        Call::Rename { .. } => {
            reply.write_wcc(first);
            reply.write_wcc(second);
        }
        Call::Link { .. } => {
            reply.write_post_op(first.after.as_ref());
            reply.write_wcc(second);
        }
        Call::Lookup(_)
        | Call::Access { .. }
        | Call::Readlink { .. }
        | Call::Read { .. }
        | Call::Readdir { .. }
        | Call::Readdirplus { .. }
        | Call::Fsstat { .. }
        | Call::Fsinfo { .. }
        | Call::Pathconf { .. } => reply.write_post_op(first.after.as_ref()),
    }
}

fn wcc<F: Files>(files: &mut F, watched: Option<&Watched<F::File>>) -> Wcc {
    let Some(watched) = watched else { return Wcc::default() };
    Wcc { before: watched.before, after: files.attributes(&watched.file).ok() }
}

/// Checks that the export of a file may be changed.
fn writable<F>(opened: &Opened<'_, F>) -> Result<(), Fault> {
    if opened.export.is_read_only { Err(nfsstat3::NFS3ERR_ROFS.into()) } else { Ok(()) }
}

/// Checks that a file has data: others, such as a pipe or a device, would do something when they are opened.
fn regular(attributes: &fattr3) -> Result<(), Fault> {
    match attributes.type_ {
        ftype3::NF3REG => Ok(()),
        ftype3::NF3DIR => Err(nfsstat3::NFS3ERR_ISDIR.into()),
        _ => Err(nfsstat3::NFS3ERR_INVAL.into()),
    }
}

/// Checks that a file is a directory.
fn directory(attributes: &fattr3) -> Result<(), Fault> {
    if matches!(attributes.type_, ftype3::NF3DIR) { Ok(()) } else { Err(nfsstat3::NFS3ERR_NOTDIR.into()) }
}

/// Checks the form of a name. The kernel would take a slash for a path, and a NUL for the end.
fn well_formed(name: &[u8]) -> Result<(), Fault> {
    if name.len() > NAME_MAX {
        return Err(nfsstat3::NFS3ERR_NAMETOOLONG.into());
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(nfsstat3::NFS3ERR_ACCES.into());
    }
    Ok(())
}

/// Checks a name that is made, or whose file is renamed or removed: `.` and `..` are always there.
fn proper(name: &[u8], dots: nfsstat3) -> Result<(), Fault> {
    well_formed(name)?;
    if name == b"." || name == b".." { Err(dots.into()) } else { Ok(()) }
}
