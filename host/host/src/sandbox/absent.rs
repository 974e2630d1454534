//! Replaces the sandbox's mechanisms in a program built without the feature `sandbox`.

/// Files.
pub(super) mod files {
    use crate::sandbox::Needs;

    pub(crate) fn confine(_: &Needs) -> Result<String, String> {
        Err("files are not confined: this program is built without the feature `sandbox` of the library"
            .to_owned())
    }

    pub(crate) const fn is_there() -> bool {
        false
    }
}

/// System calls.
pub(super) mod calls {
    use crate::sandbox::Needs;

    pub(crate) fn confine(_: &Needs) -> Result<String, String> {
        Err("system calls are not confined: this program is built without the feature `sandbox` of the library"
            .to_owned())
    }
}
