//! How the library gets into a program, and into those that this starts.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The environment variable with the libraries that the dynamic loader loads in front of others.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// The one with options of AddressSanitizer.
pub const ASAN_VARIABLE: &str = "ASAN_OPTIONS";

/// Steps from the folder of a program to the root, at least: further ones stay there.
const STEPS: usize = 64;

/// What [`PRELOAD_VARIABLE`] is to be for the library to be loaded in front of others that are named there.
///
/// `$ORIGIN` is the folder of whatever program is started, from which enough steps lead to the root. glibc's loader puts it in place; one
/// of musl takes it as it is written, finds no such file, and starts the program without the library, which it could not start with it.
#[must_use]
pub fn preload(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut preload = OsString::from("$ORIGIN");
    preload.push("/..".repeat(STEPS));
    preload.push(library);
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

/// What [`ASAN_VARIABLE`] is to be: a program with AddressSanitizer that is started by another one refuses to start if any library is in
/// front of its own. There, the library leaves everything alone.
#[must_use]
pub fn asan_options(before: Option<&OsStr>) -> OsString {
    let mut options = before.unwrap_or_default().to_owned();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0");
    options
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{asan_options, preload};

    #[test]
    fn what_the_environment_had_is_kept() {
        let with = |others: Option<&str>| {
            let preload = preload(Path::new("/usr/lib/library.so"), others.map(OsStr::new));
            preload.into_string().unwrap()
        };
        assert!(with(None).ends_with("/../../usr/lib/library.so"));
        assert!(with(Some("")).ends_with("/../../usr/lib/library.so"));
        assert!(with(Some("other.so")).ends_with("/library.so:other.so"));
        assert_eq!(asan_options(None), "verify_asan_link_order=0");
        assert_eq!(asan_options(Some(OsStr::new("a=1"))), "a=1:verify_asan_link_order=0");
    }
}
