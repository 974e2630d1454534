//! Stands in the place of `sysctl`, `ip`, `sockstat` and other commands that a script runs, under their names: the world
//! answers, so that no setting of the machine is read or changed.

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<String> = env::args().collect();
    if let Some(name) = words.first_mut() {
        *name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    match ask(&words) {
        Ok((code, text)) => {
            print!("{text}");
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("{}: {error}", words.first().map_or("command", String::as_str));
            ExitCode::FAILURE
        }
    }
}

fn ask(words: &[String]) -> std::io::Result<(u8, String)> {
    if words.first().is_some_and(|name| name == "set_sysctls.py") {
        leave_restorer()?;
    }
    let path = env::var_os(twinpath_packetdrill::COMMANDS_VARIABLE).ok_or_else(|| {
        std::io::Error::other(format!(
            "no script runs ({} is not set)",
            twinpath_packetdrill::COMMANDS_VARIABLE
        ))
    })?;
    let mut stream = UnixStream::connect(path)?;
    let line = words.iter().map(|word| word.replace('\n', " ")).collect::<Vec<_>>().join("\u{1f}");
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (code, text) = answer.split_once('\n').unwrap_or((&answer, ""));
    Ok((code.parse().unwrap_or(1), text.to_owned()))
}

/// google/packetdrill's `set_sysctls.py` leaves a program, which a script runs at its end, that restores the settings.
/// There are none to restore, so it removes itself.
fn leave_restorer() -> std::io::Result<()> {
    if let Some(process) = env::var("PACKETDRILL_PID").ok().and_then(|it| it.parse::<u32>().ok()) {
        let path = format!("/tmp/sysctl_restore_{process}.sh");
        fs::write(&path, "#!/bin/sh\nexec rm -f \"$0\"\n")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
