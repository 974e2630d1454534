//! The two programs that a lab starts: the product, which it finds beside itself, and itself for the plain peers.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The command of this program that the peers are under; whatever else a lab starts is the product.
const PEERS: &str = "plain";

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) product: PathBuf,
    pub(crate) own: PathBuf,
}

impl Programs {
    /// This one, and the product in the same directory.
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

    /// The one that understands these arguments.
    pub(crate) fn of(&self, args: &[String]) -> &Path {
        if args.first().is_some_and(|first| first == PEERS) { &self.own } else { &self.product }
    }

    /// What a person would type for it.
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
        // Two tests' own directory has no product in it.
        let missing = Programs::found().unwrap_err().to_string();
        assert!(missing.contains("make build"), "{missing}");
    }
}
