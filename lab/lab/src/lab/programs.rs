//! Finds the two programs that a lab starts: the product, in its own directory, and itself for the plain peers.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The subcommand of the peers; any other command line is for the product.
const PEERS: &str = "plain";

/// The paths of both programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) product: PathBuf,
    pub(crate) own: PathBuf,
}

impl Programs {
    /// This program, and the product in the same directory.
    ///
    /// # Errors
    /// The product is not there.
    pub(crate) fn found() -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find this program to start children of it")?;
        let product = own.with_file_name("twinpath");
        ensure!(
            product.is_file(),
            "cannot find {}: a lab measures the program twinpath that lies beside it; `make build` builds both",
            product.display()
        );
        Ok(Self { product, own })
    }

    /// The program for these arguments.
    pub(crate) fn of(&self, args: &[String]) -> &Path {
        if args.first().is_some_and(|first| first == PEERS) { &self.own } else { &self.product }
    }

    /// The command line as a user would type it.
    pub(crate) fn command_line(&self, args: &[String]) -> String {
        let name = self.of(args).file_name().unwrap_or_default().to_string_lossy().into_owned();
        std::iter::once(&name).chain(args).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_started_from_this_program_and_all_else_from_the_product() {
        let programs = Programs { product: "/x/twinpath".into(), own: "/x/twinpath-lab".into() };
        let line = |args: &[&str]| {
            programs.command_line(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line(&["plain", "tcp-echo"]), "twinpath-lab plain tcp-echo");
        assert_eq!(line(&["bench", "echo", "plain"]), "twinpath bench echo plain");
        // A test's own directory does not contain the product.
        let missing = Programs::found().unwrap_err().to_string();
        assert!(missing.contains("make build"), "{missing}");
    }
}
