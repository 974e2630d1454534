//! Debian packages, downloaded and unpacked but not installed: from the sources of this machine's apt, or from the
//! backports of its distribution, even if they are not among the sources.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tokio::process::Command;

use super::tools;

/// Follows a package's name to select the backports of this machine's distribution, like apt's suffix for a suite.
const BACKPORTS: &str = "/backports";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where files of guests are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// They end with the guest.
    pub(super) temporary: &'a Path,
    /// For what was fetched, complete under its name.
    pub(super) kept: &'a Path,
}

impl Places<'_> {
    /// The directory of what is fetched under this name. It exists once it is complete.
    pub(super) fn of(&self, name: &str) -> PathBuf {
        self.kept.join(name)
    }
}

/// A source of packages: apt's options besides the package's name.
#[derive(Debug)]
pub(super) struct Source(Vec<String>);

impl Source {
    /// The source and the name of a requested package, NAME or NAME/backports. Package lists are stored below
    /// `directory`.
    pub(super) async fn of<'a>(asked: &'a str, directory: &Path) -> anyhow::Result<(Self, &'a str)> {
        // As the user that apt would switch to, it could not write here.
        let mut options = vec!["APT::Sandbox::User=root".to_owned()];
        let Some(package) = asked.strip_suffix(BACKPORTS) else {
            return Ok((Self(options), asked));
        };
        let place = directory.join("apt");
        let list = place.join("sources.list");
        options.extend([
            format!("Dir::Etc::SourceList={}", list.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", place.join("lists").display()),
            format!("Dir::Cache={}", place.join("cache").display()),
        ]);
        let source = Self(options);
        if !list.exists() {
            for part in ["lists/partial", "cache/archives/partial"] {
                std::fs::create_dir_all(place.join(part))
                    .with_context(|| format!("cannot make directories in {}", place.display()))?;
            }
            std::fs::write(&list, backports(directory).await?)
                .with_context(|| format!("cannot write {}", list.display()))?;
            source.run("apt-get", &["-q", "update"], directory).await.context("cannot list the backports")?;
        }
        Ok((source, package))
    }

    /// A package's dependencies, as `apt-cache depends` prints them.
    pub(super) async fn depends(&self, package: &str, directory: &Path) -> anyhow::Result<String> {
        self.run("apt-cache", &["depends", "--important", package], directory).await
    }

    /// Downloads packages and unpacks them below `into`, which exists once they are complete.
    pub(super) async fn unpack(&self, packages: &[&str], into: &Path) -> anyhow::Result<()> {
        let cannot_make = |path: &Path| format!("cannot make the directory {}", path.display());
        let beside = into.parent().unwrap_or(into);
        let working = tempfile::tempdir_in(beside).with_context(|| cannot_make(beside))?;
        let (fetched, unpacked) = (working.path().join("deb"), working.path().join("unpacked"));
        std::fs::create_dir(&fetched).with_context(|| cannot_make(&fetched))?;
        let args: Vec<_> = ["-q", "download"].into_iter().chain(packages.iter().copied()).collect();
        self.run("apt-get", &args, &fetched).await.with_context(|| {
            format!("cannot fetch {}: are the package lists fresh (apt-get update)?", packages.join(", "))
        })?;
        for entry in std::fs::read_dir(&fetched)?.flatten() {
            extract(&entry.path(), &unpacked).await?;
        }
        std::fs::rename(&unpacked, into).with_context(|| cannot_make(into))
    }

    async fn run(&self, program: &str, args: &[&str], directory: &Path) -> anyhow::Result<String> {
        let mut command = Command::new(program);
        command.args(self.0.iter().flat_map(|option| ["-o", option])).args(args);
        tools::run(command, "apt", directory).await
    }
}

/// Unpacks one package below `into`.
pub(super) async fn extract(package: &Path, into: &Path) -> anyhow::Result<()> {
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").args([package, into]);
    let parent: PathBuf = into.parent().map_or_else(|| "/".into(), Path::to_path_buf);
    tools::run(unpack, "dpkg", &parent).await.map(drop)
}

/// The line of `sources.list` for the backports, from the archive that this machine uses for its distribution.
async fn backports(directory: &Path) -> anyhow::Result<String> {
    let os = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let field = |name: &str| os.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let codename = field("VERSION_CODENAME").filter(|_| field("ID") == Some("debian"));
    let codename =
        codename.context("this machine does not run a release of Debian, so it has no backports")?;
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(CODENAME) $(ORIGIN) $(REPO_URI)", "Created-By: Packages"]);
    let targets = tools::run(targets, "apt", directory).await?;
    let archive = archive(&targets, codename)
        .with_context(|| format!("apt knows no archive of Debian's {codename} here"))?;
    ensure!(Path::new(KEYRING).exists(), "no {KEYRING} to check backports with");
    Ok(format!("deb [signed-by={KEYRING}] {archive} {codename}-backports main\n"))
}

/// The address of Debian's archive in apt's list: codename, origin, address.
pub(super) fn archive<'a>(targets: &'a str, codename: &str) -> Option<&'a str> {
    targets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == codename && words.next()? == "Debian").then(|| words.next()).flatten()
    })
}
