//! The client side of ONC RPC: encodes calls, and decodes and checks their replies.
//!
//! A [`Call`] is written into a buffer as a datagram or as a record; [`RecordReader`](crate::record::RecordReader)
//! extracts replies from a stream; [`Reply`] decodes one, and its errors name what is wrong.
//!
//! ```
//! use twinpath_rpc::client::{Auth, Call, Reply};
//! use twinpath_rpc::nfs3_types::nfs3;
//!
//! let auth = Auth::none();
//! let call = Call { xid: 7, program: nfs3::PROGRAM, version: nfs3::VERSION, procedure: 0, auth: &auth, args: &[] };
//! let mut stream = Vec::new();
//! call.write_record(3, &mut stream);
//! assert_eq!(stream.len(), 40 + 3 * 4);
//! # let message = [0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
//! let reply = Reply::parse(&message)?;
//! assert_eq!(reply.xid, 7);
//! reply.verify_null()?;
//! # Ok::<(), twinpath_rpc::client::ReplyError>(())
//! ```

mod call;
mod mount;
pub mod nfs;
mod portmap;
mod reply;

pub use call::{Auth, AuthTooLong, Call, handle_arguments};
pub use mount::{MountError, MountStatus, mount_arguments, root_handle};
pub use portmap::{portmap_arguments, portmap_boolean, portmap_port};
pub use reply::{Reply, ReplyError};

pub use crate::refusal::Refusal;
