//! The seccomp filter (seccomp(2)) that refuses, with EPERM, system calls that a running instance never makes: those
//! that start programs, change user or namespace, access other processes, load code into the kernel, or set the
//! machine's clock.
//!
//! The list names the refused calls, not the allowed ones: a new call that a future C library uses in place of an old
//! one must not end a service. Calls of another architecture (int 0x80) end the process.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::Needs;

/// Refused with any arguments.
const REFUSED: &[i64] = &[
    // Execution of programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Changes of user and privileges.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_personality,
    // Changes of namespaces and mounts.
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Changes of the kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_vhangup,
    // Large attack surfaces that are not used here.
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Of these, what serving files takes: by their handles, and with the rights of callers.
const OF_EXPORTS: [i64; 5] = [
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
];

/// Installs the filter. Returns a description of it.
pub(super) fn confine(needs: &Needs) -> Result<String, String> {
    let lacking = |error: String| format!("system calls are not confined: {error}");
    let programs = programs(needs).map_err(|error| lacking(error.to_string()))?;
    for program in &programs {
        apply_filter(program).map_err(|error| lacking(error.to_string()))?;
    }
    Ok(format!("by seccomp: {} calls are refused, and new processes", refused(needs).count()))
}

/// The calls that are refused to an instance with these needs.
fn refused(needs: &Needs) -> impl Iterator<Item = i64> {
    let (enters, serves_files) = (needs.namespaces, !needs.exports.is_empty());
    REFUSED.iter().copied().filter(move |call| {
        !(enters && *call == libc::SYS_setns || serves_files && OF_EXPORTS.contains(call))
    })
}

fn programs(needs: &Needs) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let action = |errno: i32| SeccompAction::Errno(errno as u32);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused(needs).map(|call| (call, Vec::new())).collect();
    // A thread shares its process; any other clone is a new process, or a namespace.
    let no_thread = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
    let no_thread = SeccompCondition::new(0, SeccompCmpArgLen::Qword, no_thread, 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_thread])?]);
    if !needs.exports.is_empty() {
        // A thread that makes files has a file mode mask of its own.
        let other = SeccompCmpOp::Ne;
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Qword, other, libc::CLONE_FS as u64)?;
        rules.insert(libc::SYS_unshare, vec![SeccompRule::new(vec![other])?]);
    }
    let refuse = SeccompFilter::new(rules, SeccompAction::Allow, action(libc::EPERM), arch)?;
    // The flags of clone3 are in memory, which a filter cannot read. The C library then creates threads with clone(2).
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompFilter::new(clone3, SeccompAction::Allow, action(libc::ENOSYS), arch)?;
    Ok([refuse.try_into()?, absent.try_into()?])
}
