//! The status of NFS for an error of the kernel (RFC 1813, 2.6).

use rustix::io::Errno;
use twinpath_rpc::nfs3_types::nfs3::nfsstat3;

/// The status for an error.
#[must_use]
pub const fn status(errno: Errno) -> nfsstat3 {
    match errno {
        Errno::PERM => nfsstat3::NFS3ERR_PERM,
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        Errno::NXIO => nfsstat3::NFS3ERR_NXIO,
        Errno::ACCESS => nfsstat3::NFS3ERR_ACCES,
        Errno::EXIST => nfsstat3::NFS3ERR_EXIST,
        Errno::XDEV => nfsstat3::NFS3ERR_XDEV,
        Errno::NODEV => nfsstat3::NFS3ERR_NODEV,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::ISDIR => nfsstat3::NFS3ERR_ISDIR,
        // A symbolic link where none is followed: it is no directory.
        Errno::LOOP => nfsstat3::NFS3ERR_NOTDIR,
        Errno::INVAL => nfsstat3::NFS3ERR_INVAL,
        Errno::FBIG | Errno::OVERFLOW => nfsstat3::NFS3ERR_FBIG,
        Errno::NOSPC => nfsstat3::NFS3ERR_NOSPC,
        Errno::ROFS => nfsstat3::NFS3ERR_ROFS,
        Errno::MLINK => nfsstat3::NFS3ERR_MLINK,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => nfsstat3::NFS3ERR_NOTEMPTY,
        Errno::DQUOT => nfsstat3::NFS3ERR_DQUOT,
        Errno::STALE => nfsstat3::NFS3ERR_STALE,
        Errno::OPNOTSUPP | Errno::NOSYS => nfsstat3::NFS3ERR_NOTSUPP,
        // A directory that is a place of a mount or a process's root. Asked again, it would be for ever.
        Errno::BUSY => nfsstat3::NFS3ERR_ACCES,
        // The client asks again: it is not the file's fault.
        Errno::NFILE | Errno::MFILE | Errno::NOMEM | Errno::AGAIN => nfsstat3::NFS3ERR_JUKEBOX,
        // Among them ETXTBSY, a program that runs: it may do so for ever.
        _ => nfsstat3::NFS3ERR_IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ask_again_only_where_it_may_help_soon() {
        assert_eq!(status(Errno::BUSY), nfsstat3::NFS3ERR_ACCES);
        assert_eq!(status(Errno::TXTBSY), nfsstat3::NFS3ERR_IO);
        assert_eq!(status(Errno::MFILE), nfsstat3::NFS3ERR_JUKEBOX);
    }
}
