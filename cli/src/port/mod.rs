//! `twinpath port`: changes the ports of a running switch.

use std::path::PathBuf;
use std::process::ExitCode;

use twinpath_observe::command::{CommandError, PortChange, Request, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// The command socket of the switch, where more than one instance runs.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Add a port: `port add veth3,vlan=10`.
    Add {
        /// The port and its keys, as for `twinpath switch --port`.
        port: String,
    },
    /// Remove a port: `port remove veth3`.
    Remove {
        /// Its name, as in `twinpath show ports`.
        port: String,
    },
    /// Change keys of a port: `port set veth3 vlan=20 mac_limit=100`.
    Set {
        /// Its name, as in `twinpath show ports`.
        port: String,
        /// Keys with their new values.
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let change = match args.what {
        What::Add { port } => PortChange::Add(port),
        What::Remove { port } => PortChange::Remove(port),
        What::Set { port, keys } => PortChange::Set { port, keys },
    };
    let socket = crate::show::socket(args.socket)?;
    let answer = match ask(&socket, &Request::Port(change)) {
        Ok(answer) => answer,
        Err(CommandError::Refused(why)) => {
            eprintln!("nothing was changed:\n{why}");
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    let changed: Vec<&str> =
        answer["changed"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
    match changed.as_slice() {
        [] => println!("nothing differs"),
        lines => println!("{}", lines.join("\n")),
    }
    Ok(ExitCode::SUCCESS)
}
