//! `bench rpc`: derives the calls from the arguments.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use rustix::process::{getgid, getgroups, getuid};
use twinpath_clients::Transport;
use twinpath_load::{FRAGMENTS_MAX, Framing, NfsProcedure};
use twinpath_rpc::auth::{GIDS_MAX, MACHINE_NAME_MAX};
use twinpath_rpc::client::Auth;

use super::mount::{self, Exported};
use super::nfs::Peer;
use super::options::{CommonArgs, EXIT_CODES};
use super::plan::BenchPlan;
use super::service::{Rpc, Service};
use super::target::Target;

/// The port of ksf's krpc2, and of `serve rpc`.
const DEFAULT_PORT: u16 = 62_049;
/// Bytes of a file handle (RFC 1813, 2.4).
const HANDLE_BYTES: RangeInclusive<usize> = 1..=64;

/// Measure an ONC RPC service with calls of NFS version 3, and verify every reply
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RpcArgs {
    /// The target: a name or an address, and a port unless it is 62049; IPv6 addresses with a port in brackets,
    /// link-local ones as fe80::1%eth0
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// The procedure to call
    #[arg(long, value_enum, default_value_t = Procedure::Null)]
    proc: Procedure,
    /// The credential of each call
    #[arg(long, short = 'A', value_enum, default_value_t = Flavour::None)]
    auth: Flavour,
    /// Number of record fragments of each call, 1 to 16; the first one has one byte, and so does the last of three or
    /// more
    #[arg(long, value_name = "N")]
    fragments: Option<usize>,
    /// Split each call into three record fragments: --fragments 3
    #[arg(short = 'f', conflicts_with = "fragments")]
    three_fragments: bool,
    /// The export whose root GETATTR asks for; a MOUNT call gets its handle
    #[arg(long, value_name = "PATH", conflicts_with = "handle")]
    export: Option<PathBuf>,
    /// Where MOUNT is served [default: the target's own port, or else where its rpcbind says]
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// The file handle for GETATTR, in hexadecimal digits
    #[arg(long, value_name = "HEX")]
    handle: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Procedure {
    /// Nothing: no arguments, no results
    Null,
    /// A file's attributes
    Getattr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Flavour {
    /// AUTH_NONE
    None,
    /// AUTH_SYS: this machine's name, and the caller's user and groups
    Sys,
    /// AUTH_SYS under its former name
    Unix,
}

/// Checks the arguments, resolves the target and gets the handle, if one is needed.
pub(crate) fn plan(args: &RpcArgs) -> anyhow::Result<BenchPlan> {
    let common = &args.common;
    let transport = if common.udp { Transport::Udp } else { Transport::Tcp };
    let framing = framing(args, transport)?;
    ensure!(
        args.proc == Procedure::Getattr || (args.export.is_none() && args.handle.is_none()),
        "--export and --handle name a file, which NULL has no use for: add --proc getattr"
    );
    ensure!(
        args.proc == Procedure::Null || args.export.is_some() || args.handle.is_some(),
        "GETATTR needs a file: add --export PATH, to ask MOUNT for its handle, or --handle HEX"
    );
    ensure!(
        args.mount_port.is_none() || args.export.is_some(),
        "--mount-port says where to ask for the handle of an export: add --export PATH"
    );
    let auth = match args.auth {
        Flavour::None => Auth::none(),
        Flavour::Sys | Flavour::Unix => own_credential()?,
    };
    let auth_name = if args.auth == Flavour::None { "none" } else { "sys" };
    let handle = args.handle.as_deref().map(parse_handle).transpose()?;
    let target = Target::resolve(&args.target, common.port, Some(DEFAULT_PORT))?;
    // A plan with an arbitrary handle, so that other errors are reported before the server is called.
    let rpc = |asked| Service::Rpc(Rpc { asked, auth: auth.clone(), auth_name, framing });
    let asked = match args.proc {
        Procedure::Null => NfsProcedure::Null,
        Procedure::Getattr => NfsProcedure::GetAttr { handles: vec![handle.unwrap_or_default()] },
    };
    let mut plan = BenchPlan::new(common, target, transport, rpc(asked))?;
    if let Some(path) = &args.export {
        let path = path.to_str().context("--export: the path is not UTF-8")?;
        let credential = own_credential()?;
        let peer = Peer {
            at: plan.target.address,
            transport,
            source: plan.source,
            auth: &credential,
            patience: plan.load.loss_timeout,
        };
        let exported = Exported { peer, port: args.mount_port, path };
        plan.service = rpc(NfsProcedure::GetAttr { handles: vec![mount::root_handle(&exported)?] });
    }
    Ok(plan)
}

fn framing(args: &RpcArgs, transport: Transport) -> anyhow::Result<Framing> {
    let asked = if args.three_fragments { Some(3) } else { args.fragments };
    match transport {
        Transport::Udp => {
            ensure!(asked.is_none(), "a datagram has no record fragments: --fragments is for TCP");
            Ok(Framing::Datagram)
        }
        Transport::Tcp => {
            let fragments = asked.unwrap_or(1);
            ensure!(
                (1..=FRAGMENTS_MAX).contains(&fragments),
                "{fragments} fragments are impossible: choose 1 to {FRAGMENTS_MAX}"
            );
            Ok(Framing::Record { fragments })
        }
    }
}

/// This machine's name, and the caller's user and groups, truncated to what fits into AUTH_SYS.
pub(crate) fn own_credential() -> anyhow::Result<Auth> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut name_len = name.len().min(MACHINE_NAME_MAX as usize);
    while !name.is_char_boundary(name_len) {
        name_len -= 1;
    }
    let mut groups: Vec<u32> =
        getgroups().context("cannot read the list of groups")?.iter().map(|group| group.as_raw()).collect();
    groups.truncate(GIDS_MAX as usize);
    Ok(Auth::sys(&name[..name_len], getuid().as_raw(), getgid().as_raw(), &groups)?)
}

fn parse_handle(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let byte = |pair: &[u8; 2]| {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        Some((digit(0)? << 4 | digit(1)?) as u8)
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    let handle: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    handle.filter(|handle| rest.is_empty() && HANDLE_BYTES.contains(&handle.len())).with_context(|| {
        format!("--handle {text} is no file handle: write 1 to 64 bytes, two hexadecimal digits each")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rpc: RpcArgs,
    }

    fn plan(line: &str) -> Result<BenchPlan, String> {
        let words = std::iter::once("rpc").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        super::plan(&line.rpc).map_err(|error| format!("{error:#}"))
    }

    fn rpc(plan: &BenchPlan) -> &Rpc {
        let Service::Rpc(rpc) = &plan.service else { panic!("not rpc") };
        rpc
    }

    #[test]
    fn defaults_are_rpctests() {
        let plan = plan("127.0.0.1").unwrap();
        assert_eq!(plan.target.address, "127.0.0.1:62049".parse().unwrap());
        assert_eq!((plan.transport, plan.load.inflight, plan.service.size()), (Transport::Tcp, 1, 40));
        let rpc = rpc(&plan);
        assert_eq!((rpc.procedure(), rpc.auth_name, rpc.fragments()), ("null", "none", Some(1)));
    }

    #[test]
    fn the_options_of_rpctest_are_ours() {
        let plan =
            plan("localhost:2049 -A unix -a 128 -c 9M -f -d out -H -i 3 -j 16 -m -q 50,99 -x").unwrap();
        let rpc = rpc(&plan);
        assert_eq!((rpc.auth_name, rpc.fragments()), ("sys", Some(3)));
        assert_eq!((plan.load.inflight, plan.threads, plan.target.address.port()), (128, 16, 2049));
        assert!(plan.service.to_string().contains("null, auth sys, 3 fragments"));
        assert_eq!(super::tests::plan("::1 -u").unwrap().transport, Transport::Udp);
    }

    #[test]
    fn a_handle_is_hexadecimal() {
        let plan = plan("127.0.0.1 --proc getattr --handle 0x00fFa1").unwrap();
        let NfsProcedure::GetAttr { handles } = &rpc(&plan).asked else { panic!("not GETATTR") };
        assert_eq!(handles, &[[0, 0xff, 0xa1]]);
    }

    #[test]
    fn what_makes_no_sense_gets_one_sentence() {
        for (line, words) in [
            ("127.0.0.1 --proc getattr", "GETATTR needs a file"),
            ("127.0.0.1 --handle 00", "add --proc getattr"),
            ("127.0.0.1 --export /x", "add --proc getattr"),
            ("127.0.0.1 --proc getattr --handle 0", "two hexadecimal digits"),
            ("127.0.0.1 --proc getattr --handle xy", "two hexadecimal digits"),
            ("127.0.0.1 --proc getattr --handle 0x", "1 to 64 bytes"),
            ("127.0.0.1 --proc getattr --handle 00 --export /x", "cannot be used with"),
            ("127.0.0.1 --proc getattr --handle 00 --mount-port 1", "add --export"),
            ("127.0.0.1 --proc read", "null, getattr"),
            ("127.0.0.1 --auth kerberos", "none, sys, unix"),
            ("127.0.0.1 -u --fragments 3", "is for TCP"),
            ("127.0.0.1 -u -f", "is for TCP"),
            ("127.0.0.1 --fragments 0", "0 fragments"),
            ("127.0.0.1 --fragments 17", "1 to 16"),
            ("127.0.0.1 -f --fragments 2", "cannot be used with"),
            ("127.0.0.1 --on lo --path xdp", "choose --path packet or kernel, or add --udp"),
            ("127.0.0.1 -a 1025", "1 to 1024"),
            ("127.0.0.1:1 -p 2", "two ports"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error:?} lacks {words:?}");
        }
    }
}
