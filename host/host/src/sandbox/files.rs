//! The Landlock rules (landlock(7)) for files that are needed again after the start: all others are refused with
//! EACCES, for any user. Open files stay open.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use twinpath_sys::TrustedDir;

use super::Needs;

/// The latest version known here; an older kernel gets what it supports.
const KNOWN: ABI = ABI::V5;

/// Installs the rules. Returns a description of them.
pub(super) fn confine(needs: &Needs) -> Result<String, String> {
    if !needs.exports.is_empty() && !twinpath_sys::landlock::takes_handles() {
        return Err("files are not confined: this kernel's Landlock refuses files that are opened by their handles, by which \
                    clients name them (Linux 6.19 does not, nor do stable kernels with its mend)"
            .to_owned());
    }
    let lacking = |error: RulesetError| format!("files are not confined: {error}");
    let status = restrict(needs).map_err(lacking)?;
    let exports = if needs.exports.is_empty() { "" } else { ", and what it exports" };
    match status {
        RulesetStatus::NotEnforced => {
            Err("files are not confined: this kernel has no Landlock, or it is not enabled (lsm=landlock)"
                .to_owned())
        }
        RulesetStatus::PartiallyEnforced => Ok(format!(
            "by Landlock, as far as this older kernel can: /proc, /sys and the devices that it needs{exports}"
        )),
        RulesetStatus::FullyEnforced => {
            Ok(format!("by Landlock: /proc, /sys and the devices that it needs{exports}"))
        }
    }
}

/// Whether the kernel has Landlock, and it is enabled.
pub(super) fn is_there() -> bool {
    let oldest = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1));
    oldest.and_then(Ruleset::create).is_ok()
}

/// What clients of an export may do.
fn all_in_exports() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !(AccessFs::Execute | AccessFs::IoctlDev)
}

fn restrict(needs: &Needs) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let looks: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let writes = looks | AccessFs::WriteFile | AccessFs::Truncate;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    // Namespaces that `ip netns` knows by name.
    let names = needs.namespaces.then_some("/run/netns");
    for folder in ["/proc", "/sys"].into_iter().chain(names) {
        rules = allow(rules, Path::new(folder), looks)?;
    }
    if let Some(folder) = &needs.former_values {
        // A rule needs an existing folder. Its faults are reported where it is used.
        let _ = TrustedDir::make(folder);
        rules = allow(rules, folder, writes | AccessFs::MakeReg | AccessFs::RemoveFile)?;
        rules = allow(rules, Path::new("/sys/devices/system/cpu"), writes)?;
    }
    let mut devices = vec!["/dev/cpu_dma_latency", "/dev/null", "/dev/urandom"];
    if needs.tap {
        devices.push("/dev/net/tun");
    }
    for device in devices {
        rules =
            allow(rules, Path::new(device), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev)?;
    }
    for folder in needs.configuration.iter().flat_map(|file| folders_of(file)) {
        rules = allow(rules, &folder, AccessFs::ReadFile.into())?;
    }
    if let Some(folder) = &needs.sockets {
        // As above.
        let _ = TrustedDir::make_shared(folder);
        rules = allow(rules, folder, looks | AccessFs::MakeSock | AccessFs::RemoveFile)?;
    }
    for export in &needs.exports {
        rules = allow(rules, export, all_in_exports())?;
    }
    if let Some(folder) = &needs.kept {
        let makes = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::RemoveDir;
        rules = allow(rules, folder, looks | makes)?;
    }
    for folder in needs.listeners.iter().filter_map(|socket| socket.parent()) {
        let folder = or_here(folder.to_owned());
        rules = allow(rules, &folder, AccessFs::MakeSock | AccessFs::RemoveFile)?;
    }
    if needs.resolver {
        // resolv.conf(5), hosts(5), nsswitch.conf(5), which are replaced by new files.
        rules = allow(rules, Path::new("/etc"), AccessFs::ReadFile.into())?;
        for folder in folders_of(Path::new("/etc/resolv.conf")) {
            rules = allow(rules, &folder, AccessFs::ReadFile.into())?;
        }
    }
    let socket = needs.socket.parent().map_or_else(PathBuf::new, Path::to_owned);
    let socket = or_here(socket);
    rules = allow(rules, &socket, AccessFs::RemoveFile.into())?;
    Ok(rules.restrict_self()?.ruleset)
}

/// The folder of a file and, if the file is a link, the folder of its target. The rules are for folders
/// because editors replace a file by a new one, for which no rule can exist yet.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let folder = |file: &Path| or_here(file.parent().map_or_else(PathBuf::new, Path::to_owned));
    let mut folders = vec![folder(file)];
    folders.extend(file.canonicalize().ok().map(|file| folder(&file)));
    folders
}

/// The path of a file without a folder is in the working directory.
fn or_here(folder: PathBuf) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }
}

/// Adds a rule for a path that exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => rules.add_rule(PathBeneath::new(opened, access)),
        Err(_) => Ok(rules),
    }
}
