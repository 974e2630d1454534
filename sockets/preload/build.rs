//! Says how this package's library is linked. Builds the small library that loads it (`sockets/preloader`), and puts it where cargo puts
//! this one. Cargo builds it in a folder of its own: it is without the standard library, and so with `panic=abort`, which cargo knows for
//! all packages of a build or for none.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "twinpath-preloader";
const LIBRARY: &str = "libtwinpath_preloader.so";

/// For the linker: which code and data of this package's library lie together.
const ORDER: &str = "order.ld";

/// Linkers that do not take such a file beside their own. GNU ld and lld do.
const UNABLE: [&str; 3] = ["gold", "mold", "wild"];

/// Every program loads it: each segment, each relocation and each page that is written costs. A function of the C library is looked up
/// when it is called first, as most programs call few. The unwinder is a part of it: most programs have none.
const SHORT: [&str; 10] = [
    "panic=abort",
    "codegen-units=1",
    "relro-level=off",
    "link-arg=-nostartfiles",
    "link-arg=-Wl,-z,lazy",
    "link-arg=-Wl,-z,norelro",
    "link-arg=-Wl,-z,noseparate-code",
    "link-arg=-Wl,--build-id=none",
    "link-arg=-Wl,--hash-style=gnu",
    "link-arg=-lc",
];
const UNWINDER: &str = "static:-bundle=gcc_eh";

fn main() {
    println!("cargo:rerun-if-changed=../preloader");
    let order = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(ORDER);
    println!("cargo:rerun-if-changed={ORDER}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if UNABLE.iter().any(|linker| flags.contains(linker)) {
        println!(
            "cargo:warning=this linker cannot order the library's code: programs that fork often lose some speed under twinpath run"
        );
    } else {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}", order.display());
    }
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let (out, target) = (PathBuf::from(variable("OUT_DIR")), variable("TARGET"));
    let build = out.join("preloader");
    let mut cargo = Command::new(variable("CARGO"));
    // What this package is built from is here already.
    cargo.args(["rustc", "--locked", "--offline", "--release", "--lib", "--crate-type", "cdylib"]);
    cargo.args(["--package", PACKAGE]).arg("--target").arg(&target).arg("--target-dir").arg(&build).arg("--");
    cargo.args(SHORT.iter().flat_map(|flag| ["-C", flag])).args(["-l", UNWINDER]);
    // Clippy, where it is what builds this package.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let done = cargo.output().expect("cargo can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{PACKAGE} cannot be built: {said}");
    let built = build.join(&target).join("release").join(LIBRARY);
    let age = fs::metadata("Cargo.toml").and_then(|manifest| manifest.modified()).expect("a manifest");
    // target/PROFILE/build/PACKAGE/out. This package's library is in the second folder, and after `cargo build` in the first one as well.
    let folder = out.ancestors().nth(3).expect("a folder of cargo's").to_owned();
    for folder in [folder.join("deps"), folder] {
        let library = folder.join(LIBRARY);
        // Another build may read it meanwhile.
        let beside = folder.join(format!("{LIBRARY}.{}", std::process::id()));
        // As old as this package: what is newer than the last run of this script has it run again.
        let aged = fs::copy(&built, &beside)
            .and_then(|_| fs::File::options().write(true).open(&beside)?.set_modified(age));
        aged.and_then(|()| fs::rename(&beside, &library)).expect("a folder to write to");
        println!("cargo:rerun-if-changed={}", library.display());
    }
}
