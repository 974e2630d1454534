//! The NFS server and clients of `lab kni`: nfs-ganesha over a generated tree, and the walk of a kernel client's cold
//! `ls -last -R`, either with our client, or with that command itself if the kernel can mount the tree.
//!
//! The server is Debian's. Our client speaks NFSv3 over an ordinary blocking TCP socket with one call outstanding, as a
//! kernel client's threads do when `ls` reads one name after the other.

mod keeper;
mod listing;
mod mounted;
mod portmapper;
mod server;
mod transport;
mod tree;
mod walk;

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) use self::keeper::keep;
pub(crate) use self::listing::ListReport;
pub(super) use self::listing::list;
pub(super) use self::mounted::work;
pub(crate) use self::server::find_ganesha;
pub(super) use self::server::serve;
pub(crate) use self::tree::Shape;
pub(crate) use self::walk::WalkReport;
pub(super) use self::walk::walk;

/// The port of ganesha's NFS service.
pub(crate) const NFS_PORT: u16 = 2049;
/// The port of ganesha's MOUNT service.
pub(crate) const MOUNT_PORT: u16 = 20048;

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// An empty directory: configuration, log and tree go there, the tree on a tmpfs that only the server sees
    #[arg(long)]
    directory: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Clients may change the tree
    #[arg(long)]
    writable: bool,
}

#[derive(clap::Args)]
pub(crate) struct TreeArgs {
    /// An empty directory: the tree goes to its `tree`, on a tmpfs that only the server sees
    #[arg(long)]
    directory: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Kill twinpath so often, and start it again at once
    #[arg(long)]
    kill_every_ms: Option<u64>,
    /// Arguments of twinpath
    #[arg(last = true, required = true)]
    args: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct WalkArgs {
    /// The NFS server
    target: SocketAddr,
    /// The exported path
    #[arg(long)]
    export: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Stop after so many calls instead of at the end of the tree
    #[arg(long)]
    calls: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// The NFS server
    target: SocketAddr,
    /// The exported path
    #[arg(long)]
    export: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

#[derive(clap::Args)]
pub(crate) struct MountedArgs {
    /// The NFS server
    target: SocketAddr,
    /// The port of its MOUNT service
    #[arg(long)]
    mount_port: u16,
    /// The exported path, which clients may change
    #[arg(long)]
    export: PathBuf,
    /// tcp or udp
    #[arg(long)]
    proto: String,
    /// How long to read and write at random, seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    shape: Shape,
}
