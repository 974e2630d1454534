//! Commands that are not in this build, because `make run` builds only what it measures with. Each of them
//! says so.

use std::process::ExitCode;

/// The exit code, the same as for a wrong command line.
const NOT_BUILT: u8 = 2;

/// The arguments of a command that is not in this build.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

/// Says how to build the command.
#[allow(clippy::unnecessary_wraps, clippy::needless_pass_by_value, reason = "the same as the commands' own")]
pub(crate) fn run(_: Args) -> anyhow::Result<ExitCode> {
    eprintln!(
        "twinpath: this program was built by `make run`, for `serve` and `bench`: `make build` builds it with all commands"
    );
    Ok(ExitCode::from(NOT_BUILT))
}
