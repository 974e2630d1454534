//! A naive file system in memory: the rights and errors of the kernel, written as plainly as possible. It logs what was
//! changed and what was made durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinpath_nfs::{
    Caller, Fault, FileId, FileKey, Files, Limits, Listed, Make, OpenAs, Rights, Server, SetTime, Space, Sync,
};
use twinpath_rpc::nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3};

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Changed(u64),
    Synced(u64),
    /// Its data was read or written.
    Opened(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: ftype3,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) entries: BTreeMap<Vec<u8>, u64>,
    pub(crate) parent: u64,
    pub(crate) times: [nfstime3; 3],
    pub(crate) links: u32,
}

/// The file system. Its root directories are the exports.
pub(crate) struct Memory {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) roots: BTreeMap<u32, u64>,
    pub(crate) log: Vec<Event>,
    /// How syncs fail, if they do.
    pub(crate) sync_fails: Option<nfsstat3>,
    /// Whether what needs a disk would block.
    pub(crate) must_not_wait: bool,
    /// Whether READ fails behind the bytes that it has read.
    pub(crate) read_fails: bool,
    /// The export whose file system does not answer: nothing of it is opened.
    pub(crate) hung: Option<u32>,
    /// The server whose verifier changes during a write, as if a sync failed on another thread.
    pub(crate) disturbs: Option<Arc<Server>>,
    now: u32,
    next: u64,
}

type Result<T> = std::result::Result<T, Fault>;

fn fail<T>(status: nfsstat3) -> Result<T> {
    Err(Fault::Status(status))
}

impl Memory {
    /// Exports 1 and 2, each an empty directory that everybody may write to.
    pub(crate) fn new() -> Self {
        let mut memory = Self {
            nodes: BTreeMap::new(),
            roots: BTreeMap::new(),
            log: Vec::new(),
            sync_fails: None,
            must_not_wait: false,
            read_fails: false,
            hung: None,
            disturbs: None,
            now: 1000,
            next: 10,
        };
        for export in [1, 2] {
            let root = memory.add(&Caller::new(0, 0), ftype3::NF3DIR, 0o777);
            memory.node(root).parent = root;
            memory.roots.insert(export, root);
        }
        memory
    }

    pub(crate) fn node(&mut self, file: u64) -> &mut Node {
        self.nodes.get_mut(&file).expect("the file is there")
    }

    fn tick(&mut self) -> nfstime3 {
        self.now += 1;
        nfstime3 { seconds: self.now, nseconds: 5 }
    }

    fn add(&mut self, who: &Caller, kind: ftype3, mode: u32) -> u64 {
        let (now, file) = (self.tick(), self.next);
        self.next += 1;
        let node = Node {
            kind,
            mode,
            uid: who.uid,
            gid: who.gid,
            data: Vec::new(),
            entries: BTreeMap::new(),
            parent: 0,
            times: [now; 3],
            links: 1,
        };
        self.nodes.insert(file, node);
        file
    }

    fn get(&self, file: u64) -> Result<&Node> {
        self.nodes.get(&file).ok_or(Fault::Status(nfsstat3::NFS3ERR_STALE))
    }

    fn changed(&mut self, file: u64) {
        let now = self.tick();
        self.log.push(Event::Changed(file));
        if let Some(node) = self.nodes.get_mut(&file) {
            node.times[1] = now;
            node.times[2] = now;
        }
    }

    fn may(&self, who: &Caller, file: u64, rights: Rights) -> Result<()> {
        let node = self.get(file)?;
        let shift = match () {
            () if who.uid == node.uid => 6,
            () if who.is_in(node.gid) => 3,
            () => 0,
        };
        let has = node.mode >> shift & 7;
        // Root runs what somebody may run.
        let runs = rights.bits() & 1 != 0 && !matches!(node.kind, ftype3::NF3DIR) && node.mode & 0o111 == 0;
        let is_root = who.uid == 0 && !runs;
        if is_root || rights.bits() & !has == 0 { Ok(()) } else { fail(nfsstat3::NFS3ERR_ACCES) }
    }

    fn opened(&mut self, who: &Caller, open_as: OpenAs, file: u64, rights: Rights) -> Result<()> {
        if open_as == OpenAs::Caller {
            self.may(who, file, rights)?;
        }
        if self.must_not_wait {
            return Err(Fault::WouldBlock);
        }
        self.log.push(Event::Opened(file));
        Ok(())
    }

    fn owns(&self, who: &Caller, file: u64) -> Result<()> {
        let is_owner = who.uid == 0 || self.get(file)?.uid == who.uid;
        if is_owner { Ok(()) } else { fail(nfsstat3::NFS3ERR_PERM) }
    }

    fn child(&self, who: &Caller, dir: u64, name: &[u8]) -> Result<u64> {
        if !matches!(self.get(dir)?.kind, ftype3::NF3DIR) {
            return fail(nfsstat3::NFS3ERR_NOTDIR);
        }
        self.may(who, dir, Rights::EXECUTE)?;
        self.get(dir)?.entries.get(name).copied().ok_or(Fault::Status(nfsstat3::NFS3ERR_NOENT))
    }

    fn enter(&mut self, dir: u64, name: &[u8], file: u64) {
        self.node(dir).entries.insert(name.to_vec(), file);
        self.changed(dir);
    }

    fn leave(&mut self, dir: u64, name: &[u8], file: u64) {
        self.node(dir).entries.remove(name);
        self.node(file).links -= 1;
        if self.node(file).links == 0 {
            self.nodes.remove(&file);
        }
        self.changed(dir);
    }

    fn may_change(&self, who: &Caller, dir: u64) -> Result<()> {
        self.may(who, dir, Rights::WRITE.and(Rights::EXECUTE))
    }

    fn is_within(&self, mut dir: u64, of: u64) -> bool {
        loop {
            if dir == of {
                return true;
            }
            let parent = self.nodes.get(&dir).map_or(dir, |node| node.parent);
            if parent == dir {
                return false;
            }
            dir = parent;
        }
    }
}

impl Files for Memory {
    type File = u64;

    fn root(&mut self, export: u32) -> Result<u64> {
        Ok(self.roots[&export])
    }

    fn open(&mut self, id: &FileId) -> Result<u64> {
        assert_ne!(Some(id.export), self.hung, "a thread would wait for it");
        let bytes = id.key.bytes().first_chunk().copied().unwrap_or_default();
        let file = u64::from_be_bytes(bytes);
        // As a careless implementation would say it.
        if self.nodes.contains_key(&file) { Ok(file) } else { fail(nfsstat3::NFS3ERR_NOENT) }
    }

    fn key(&mut self, file: &u64) -> Result<FileKey> {
        self.get(*file)?;
        Ok(FileKey::new(1, &file.to_be_bytes()).expect("8 bytes fit"))
    }

    fn attributes(&mut self, file: &u64) -> Result<fattr3> {
        let node = self.get(*file)?;
        let directories =
            node.entries.values().filter(|child| matches!(self.nodes[child].kind, ftype3::NF3DIR));
        let more = if matches!(node.kind, ftype3::NF3DIR) { 1 + directories.count() as u32 } else { 0 };
        Ok(fattr3 {
            type_: node.kind,
            mode: node.mode,
            nlink: node.links + more,
            uid: node.uid,
            gid: node.gid,
            size: node.data.len() as u64,
            used: node.data.len() as u64,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: 7,
            fileid: *file,
            atime: node.times[0],
            mtime: node.times[1],
            ctime: node.times[2],
        })
    }

    fn permits(&mut self, who: &Caller, file: &u64, rights: Rights) -> Result<bool> {
        match self.may(who, *file, rights) {
            Ok(()) => Ok(true),
            Err(Fault::Status(nfsstat3::NFS3ERR_ACCES)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn look_up(&mut self, who: &Caller, dir: &u64, name: &[u8]) -> Result<u64> {
        self.child(who, *dir, name)
    }

    fn parent(&mut self, _who: &Caller, export: u32, dir: &u64) -> Result<u64> {
        let parent = self.get(*dir)?.parent;
        if self.is_within(parent, self.roots[&export]) { Ok(parent) } else { fail(nfsstat3::NFS3ERR_STALE) }
    }

    fn read_link(&mut self, _who: &Caller, link: &u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.get(*link)?.data);
        Ok(())
    }

    fn read(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &u64,
        offset: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.opened(who, open_as, *file, Rights::READ)?;
        let data = &self.get(*file)?.data;
        let start = data.len().min(offset as usize);
        out.extend_from_slice(&data[start..data.len().min(start.saturating_add(count))]);
        if self.read_fails { fail(nfsstat3::NFS3ERR_IO) } else { Ok(()) }
    }

    fn write(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &u64,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.opened(who, open_as, *file, Rights::WRITE)?;
        let end = offset as usize + data.len();
        if end > 1 << 20 {
            return fail(nfsstat3::NFS3ERR_NOSPC);
        }
        let old = &mut self.node(*file).data;
        old.resize(old.len().max(end), 0);
        old[offset as usize..end].copy_from_slice(data);
        self.changed(*file);
        if let Some(server) = &self.disturbs {
            server.verifier.sync_failed();
        }
        Ok(data.len())
    }

    fn sync(&mut self, file: &u64, how: Sync, failed: &mut dyn FnMut()) -> Result<()> {
        if let Some(status) = self.sync_fails {
            failed();
            return fail(status);
        }
        let is_opened = matches!(self.attributes(file)?.type_, ftype3::NF3REG | ftype3::NF3DIR);
        assert_eq!(how != Sync::FileSystem, is_opened, "others cannot be opened");
        self.log.push(Event::Synced(*file));
        Ok(())
    }

    fn set_size(&mut self, who: &Caller, open_as: OpenAs, file: &u64, size: u64) -> Result<()> {
        self.opened(who, open_as, *file, Rights::WRITE)?;
        if size > 1 << 20 {
            return fail(nfsstat3::NFS3ERR_NOSPC);
        }
        self.node(*file).data.resize(size as usize, 0);
        self.changed(*file);
        Ok(())
    }

    fn set_owner(&mut self, who: &Caller, file: &u64, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.owns(who, *file)?;
        let is_given_away = uid.is_some_and(|uid| uid != self.nodes[file].uid);
        let is_foreign = gid.is_some_and(|gid| !who.is_in(gid));
        if who.uid != 0 && (is_given_away || is_foreign) {
            return fail(nfsstat3::NFS3ERR_PERM);
        }
        let node = self.node(*file);
        (node.uid, node.gid) = (uid.unwrap_or(node.uid), gid.unwrap_or(node.gid));
        self.changed(*file);
        Ok(())
    }

    fn set_mode(&mut self, who: &Caller, file: &u64, mode: u32) -> Result<()> {
        if matches!(self.get(*file)?.kind, ftype3::NF3LNK) {
            return fail(nfsstat3::NFS3ERR_NOTSUPP);
        }
        self.owns(who, *file)?;
        self.node(*file).mode = mode;
        self.changed(*file);
        Ok(())
    }

    fn set_times(&mut self, who: &Caller, file: &u64, accessed: SetTime, modified: SetTime) -> Result<()> {
        let is_now = |time| matches!(time, SetTime::Now);
        if !(is_now(accessed) && is_now(modified) && self.may(who, *file, Rights::WRITE).is_ok()) {
            self.owns(who, *file)?;
        }
        self.changed(*file);
        let now = self.tick();
        for (at, time) in [accessed, modified].into_iter().enumerate() {
            match time {
                SetTime::Keep => {}
                SetTime::Now => self.node(*file).times[at] = now,
                SetTime::To(time) => self.node(*file).times[at] = time,
            }
        }
        Ok(())
    }

    fn make(&mut self, who: &Caller, dir: &u64, name: &[u8], what: Make<'_>, mode: u32) -> Result<u64> {
        match self.child(who, *dir, name) {
            Err(Fault::Status(nfsstat3::NFS3ERR_NOENT)) => {}
            Ok(_) => return fail(nfsstat3::NFS3ERR_EXIST),
            Err(fault) => return Err(fault),
        }
        self.may_change(who, *dir)?;
        let kind = match what {
            Make::File(_) => ftype3::NF3REG,
            Make::Directory => ftype3::NF3DIR,
            Make::Symlink(_) => ftype3::NF3LNK,
            Make::Block(..) => ftype3::NF3BLK,
            Make::Character(..) => ftype3::NF3CHR,
            Make::Socket => ftype3::NF3SOCK,
            Make::Fifo => ftype3::NF3FIFO,
        };
        if matches!(what, Make::Block(..) | Make::Character(..)) && who.uid != 0 {
            return fail(nfsstat3::NFS3ERR_PERM);
        }
        let file = self.add(who, kind, mode);
        self.node(file).parent = *dir;
        match what {
            Make::Symlink(target) => self.node(file).data = target.to_vec(),
            Make::File(Some((accessed, modified))) => {
                self.node(file).times[..2].copy_from_slice(&[accessed, modified]);
            }
            _ => {}
        }
        self.log.push(Event::Changed(file));
        self.enter(*dir, name, file);
        Ok(file)
    }

    fn remove(&mut self, who: &Caller, dir: &u64, name: &[u8]) -> Result<()> {
        let file = self.child(who, *dir, name)?;
        self.may_change(who, *dir)?;
        if matches!(self.nodes[&file].kind, ftype3::NF3DIR) {
            return fail(nfsstat3::NFS3ERR_ISDIR);
        }
        self.leave(*dir, name, file);
        Ok(())
    }

    fn remove_directory(&mut self, who: &Caller, dir: &u64, name: &[u8]) -> Result<()> {
        let file = self.child(who, *dir, name)?;
        self.may_change(who, *dir)?;
        match &self.nodes[&file] {
            node if !matches!(node.kind, ftype3::NF3DIR) => return fail(nfsstat3::NFS3ERR_NOTDIR),
            node if !node.entries.is_empty() => return fail(nfsstat3::NFS3ERR_NOTEMPTY),
            _ => {}
        }
        self.leave(*dir, name, file);
        Ok(())
    }

    fn rename(&mut self, who: &Caller, from: (&u64, &[u8]), to: (&u64, &[u8])) -> Result<()> {
        let file = self.child(who, *from.0, from.1)?;
        if self.is_within(*to.0, file) {
            return fail(nfsstat3::NFS3ERR_INVAL);
        }
        // To itself it is nothing, and takes no right to write.
        if self.child(who, *to.0, to.1) == Ok(file) {
            return Ok(());
        }
        self.may_change(who, *from.0)?;
        self.may_change(who, *to.0)?;
        let is_directory = |node: &Node| matches!(node.kind, ftype3::NF3DIR);
        // Its `..` changes.
        if from.0 != to.0 && is_directory(&self.nodes[&file]) {
            self.may(who, file, Rights::WRITE)?;
        }
        match self.child(who, *to.0, to.1) {
            Ok(there) => match (is_directory(&self.nodes[&file]), &self.nodes[&there]) {
                (true, there) if !is_directory(there) => return fail(nfsstat3::NFS3ERR_NOTDIR),
                (false, there) if is_directory(there) => return fail(nfsstat3::NFS3ERR_ISDIR),
                (true, there) if !there.entries.is_empty() => return fail(nfsstat3::NFS3ERR_NOTEMPTY),
                _ => self.leave(*to.0, to.1, there),
            },
            Err(Fault::Status(nfsstat3::NFS3ERR_NOENT)) => {}
            Err(fault) => return Err(fault),
        }
        self.node(*from.0).entries.remove(from.1);
        self.changed(*from.0);
        self.node(file).parent = *to.0;
        self.enter(*to.0, to.1, file);
        Ok(())
    }

    fn link(&mut self, who: &Caller, file: &u64, dir: &u64, name: &[u8]) -> Result<()> {
        if matches!(self.get(*file)?.kind, ftype3::NF3DIR) {
            return fail(nfsstat3::NFS3ERR_PERM);
        }
        if self.child(who, *dir, name).is_ok() {
            return fail(nfsstat3::NFS3ERR_EXIST);
        }
        self.may_change(who, *dir)?;
        self.node(*file).links += 1;
        self.log.push(Event::Changed(*file));
        self.enter(*dir, name, *file);
        Ok(())
    }

    fn list(
        &mut self,
        who: &Caller,
        dir: &u64,
        cookie: u64,
        find: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<bool> {
        self.may(who, *dir, Rights::READ)?;
        let node = self.get(*dir)?.clone();
        let dots = [(b".".to_vec(), *dir), (b"..".to_vec(), node.parent)];
        for (at, (name, file)) in dots.into_iter().chain(node.entries).enumerate().skip(cookie as usize) {
            let found = if find { Some((self.attributes(&file)?, self.key(&file)?)) } else { None };
            let listed = Listed { fileid: file, name: &name, cookie: at as u64 + 1, found };
            if !each(&listed) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn space(&mut self, file: &u64) -> Result<Space> {
        self.get(*file)?;
        Ok(Space { total_bytes: 1 << 20, ..Space::default() })
    }

    fn limits(&mut self, file: &u64) -> Result<Limits> {
        self.get(*file)?;
        Ok(Limits { file_max: 1 << 20, link_max: 100, name_max: 255, time_step_ns: 1 })
    }
}
