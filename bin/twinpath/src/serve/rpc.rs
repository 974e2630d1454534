//! `twinpath serve rpc`: its options.

use std::net::IpAddr;
use std::num::NonZeroU16;

use twinpath_config::{FlowText, RpcOverrides, SourceText};

use super::{CommonArgs, parse_port};

#[derive(clap::Args)]
pub(super) struct RpcArgs {
    /// UDP port, served on the fast path and on the kernel path
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub(super) udp: Option<NonZeroU16>,
    /// TCP port, served on the kernel path
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub(super) tcp: Option<NonZeroU16>,
    /// Serve the ports only at this address of ours; may be given again [default: all]
    #[arg(long = "address", value_name = "IP")]
    pub(super) addresses: Vec<IpAddr>,
    /// Claim only this UDP flow, peer first: udp,10.9.0.1:4444,10.9.0.2:62049; may be given again [default: the whole port]
    #[arg(long = "flow", value_name = "FLOW")]
    pub(super) flows: Vec<FlowText>,
    /// Serve the ports only to senders in this prefix; may be given again [default: everybody]
    #[arg(long = "source", value_name = "PREFIX")]
    pub(super) sources: Vec<SourceText>,
    #[command(flatten)]
    pub(super) common: CommonArgs,
    #[command(flatten)]
    pub(super) own: OwnArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "RPC")]
pub(super) struct OwnArgs {
    /// Bytes of a record, at most; a connection that sends a longer one is closed [default: 65536]
    #[arg(long, value_name = "BYTES")]
    record_bytes: Option<u32>,
    /// Fragments of a record, at most; a connection that sends more is closed [default: 32]
    #[arg(long, value_name = "N")]
    fragments: Option<u32>,
    /// Calls that must run once whose replies are kept, by all workers together [default: 1024]
    #[arg(long, value_name = "N")]
    duplicates: Option<u32>,
    /// How long they are kept, s [default: 120]
    #[arg(long, value_name = "S")]
    duplicate_age_s: Option<u32>,
    /// Register the programs with rpcbind on this host, until the end
    #[arg(long)]
    rpcbind: bool,
}

impl From<OwnArgs> for RpcOverrides {
    fn from(args: OwnArgs) -> Self {
        let OwnArgs { record_bytes, fragments, duplicates, duplicate_age_s, rpcbind } = args;
        Self { record_bytes, fragments, duplicates, duplicate_age_s, rpcbind: rpcbind.then_some(true) }
    }
}
