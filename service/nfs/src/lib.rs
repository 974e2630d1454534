//! The server of NFS version 3 (RFC 1813), as a function of (state, call) over a [`Files`]: what a file system does.
//!
//! Nothing here owns a descriptor, a clock or a thread. Arguments are borrowed from the message, results are written
//! into the buffer that is sent. No length of the wire decides how much memory is taken.

mod call;
mod caller;
mod export;
mod files;
mod gate;
mod handle;
mod meter;
mod mount;
mod program;
mod reply;
mod server;
mod verifier;

pub use call::{Call, CreateAt, Name};
pub use caller::{Caller, NOBODY_AT_ALL};
pub use export::{Denied, Export, ExportError, Exports, Network, Squash};
pub use files::{Fault, Files, Limits, Listed, Make, OpenAs, Rights, SetTime, Space, Sync};
pub use gate::Bounds;
pub use handle::{FILE_KEY_MAX, FileId, FileKey, Handle, HandleSecret};
pub use mount::{MountCall, Mounts};
pub use program::{MountProgram, NfsProgram, PROGRAMS, ThreadFiles};
pub use reply::{NO_WCC, Reply, Reserved, Wcc};
pub use server::{Context, Server, Sizes, WouldBlock};
pub use verifier::WriteVerifier;

/// Maximum length of a file handle, bytes (RFC 1813, 2.4).
pub const HANDLE_MAX: usize = twinpath_rpc::nfs3_types::nfs3::NFS3_FHSIZE;
