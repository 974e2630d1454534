//! `twinpath reload`: lets a running instance read its configuration again, and prints the changes.

use std::path::PathBuf;
use std::process::ExitCode;

use twinpath_observe::command::{CommandError, Request, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command socket of the instance, where more than one runs.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = crate::show::socket(args.socket)?;
    let answer = match ask(&socket, &Request::Reload) {
        Ok(answer) => answer,
        Err(CommandError::Refused(why)) => {
            eprintln!("not reloaded, and nothing was changed:\n{why}");
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    let changed: Vec<&str> =
        answer["changed"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
    match changed.as_slice() {
        [] => println!("reloaded: nothing differs"),
        lines => println!("reloaded:\n{}", lines.join("\n")),
    }
    Ok(ExitCode::SUCCESS)
}
