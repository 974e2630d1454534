//! Builds the BPF objects from their C sources, and compares them with the committed ones.
//!
//! Users need no compiler: the objects are committed. The sources include no header from outside the tree, the
//! compiler's major version is pinned, and paths are mapped, so two checkouts give the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layouts;

/// The crates with programs, and the programs of each. The last ones are of the labs.
const OBJECTS: [(&str, &str); 11] = [
    ("stack/bpf", "packet"),
    ("stack/bpf", "listener"),
    ("stack/bpf", "lookup"),
    ("stack/bpf", "lease"),
    ("stack/bpf", "xdp"),
    ("stack/bpf", "bridge"),
    ("stack/bpf", "ports"),
    ("stack/bpf", "empty"),
    ("stack/bpf", "foreign"),
    ("test/plain", "redirect"),
    ("test/plain", "mirror"),
];
const COMPILER: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";
/// What to do about layouts in Rust that are not those of the sources.
pub(crate) const LAYOUTS_ADVICE: &str = "run `cargo run -p xtask -- bpf` and commit";
const INSTALL: &str = "install it with: apt-get install clang-14 llvm-14";

/// Builds the objects into the tree; with `check`, compares with the committed ones and changes nothing.
pub(crate) fn build(check: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the tree's root")?;
    // Without a compiler as well.
    let different = layouts::write(root, check)?;
    if check && !different.is_empty() {
        bail!("{} is not what the sources say; {LAYOUTS_ADVICE}", different.join(" and "));
    }
    let scratch = std::env::temp_dir().join(format!("twinpath-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let result = OBJECTS.iter().try_for_each(|(home, name)| build_one(root, home, &scratch, name, check));
    std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    result
}

fn build_one(root: &Path, crate_path: &str, scratch: &Path, name: &str, check: bool) -> Result<()> {
    let home = &root.join(crate_path);
    let built = compile(home, scratch, name)?;
    let bytes = std::fs::read(&built).with_context(|| format!("reading {}", built.display()))?;
    let committed = home.join("object").join(format!("{name}.o"));
    if !check {
        return std::fs::write(&committed, bytes).with_context(|| format!("writing {}", committed.display()));
    }
    let old = std::fs::read(&committed).with_context(|| format!("reading {}", committed.display()))?;
    if old != bytes {
        bail!(
            "{crate_path}/object/{name}.o is not what {crate_path}/bpf/{name}.c gives; run `cargo run -p xtask -- bpf` and commit"
        );
    }
    Ok(())
}

/// Compiles one source, without this machine's paths in the object.
fn compile(home: &Path, scratch: &Path, name: &str) -> Result<PathBuf> {
    let object = scratch.join(format!("{name}.o"));
    let mut clang = Command::new(COMPILER);
    clang
        .current_dir(home)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-nostdinc"])
        .arg(format!("-ffile-prefix-map={}=.", home.display()))
        .arg("-fdebug-compilation-dir=.")
        .arg("-c")
        .arg(format!("bpf/{name}.c"))
        .arg("-o")
        .arg(&object);
    run(clang, COMPILER)?;
    let mut strip = Command::new(STRIP);
    strip.arg("-g").arg(&object);
    run(strip, STRIP)?;
    Ok(object)
}

fn run(mut command: Command, program: &str) -> Result<()> {
    let status = match command.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{program} is not installed, and the BPF objects can only be rebuilt with it; {INSTALL}")
        }
        other => other.with_context(|| format!("running {program}"))?,
    };
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}
