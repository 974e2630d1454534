use std::io::ErrorKind;

use rustix::io::Errno;

use super::*;

/// Runs `work` on a thread that has entered the sandbox; existing threads are not affected.
fn inside<R: Send>(needs: Needs, work: impl FnOnce(report::Sandbox) -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(|| work(enter(Sandbox::On, &needs))).join().unwrap())
}

#[test]
fn files_of_the_machine_are_refused_and_those_needed_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (own, beside) = (folder.path().join("run"), folder.path().join("beside"));
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("x.sock"), "").unwrap();
    std::fs::write(&beside, "").unwrap();
    let needs = Needs { socket: own.join("x.sock"), ..Needs::default() };
    inside(needs, |said| {
        if !said.files.starts_with("by Landlock") {
            return twinpath_test_rig::skip(&said.files);
        }
        for path in ["/etc/shadow", "/etc/passwd", "/dev/mem", beside.to_str().unwrap()] {
            let refused = std::fs::File::open(path).map(drop).unwrap_err();
            assert!(
                matches!(refused.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound),
                "{path}: {refused}"
            );
        }
        assert_eq!(std::fs::write(own.join("new"), "").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(std::fs::remove_file(&beside).unwrap_err().kind(), ErrorKind::PermissionDenied);
        std::fs::read_to_string("/proc/self/status").unwrap();
        std::fs::read_dir("/sys/class/net").unwrap();
        std::fs::remove_file(own.join("x.sock")).unwrap();
    });
    assert!(std::fs::File::open("/etc/passwd").is_ok(), "other threads are as they were");
}

#[test]
fn calls_of_an_attacker_are_refused_and_threads_still_start() {
    inside(Needs::default(), |said| {
        if !said.calls.starts_with("by seccomp") {
            return twinpath_test_rig::skip(&said.calls);
        }
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(
            said.no_new_privs && status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"),
            "{status}"
        );
        // These calls would succeed without the sandbox.
        let run = std::process::Command::new("/proc/self/exe").arg("--list").status().unwrap_err();
        assert_eq!(run.kind(), ErrorKind::PermissionDenied);
        let name = rustix::system::uname().nodename().to_owned();
        assert_eq!(rustix::system::sethostname(name.to_bytes()), Err(Errno::PERM));
        assert_eq!(rustix::process::chroot("/"), Err(Errno::PERM));
        let uid = rustix::process::getuid();
        assert_eq!(rustix::thread::set_thread_res_uid(uid, uid, uid), Err(Errno::PERM));
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    });
}

#[test]
fn without_a_sandbox_what_serves_files_keeps_to_quotas() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let held = |exports| {
        let needs = Needs { exports, ..Needs::default() };
        let held = || enter(Sandbox::Off, &needs).capabilities.iter().map(|held| held.name.clone()).collect();
        std::thread::scope(|scope| scope.spawn(held).join()).expect("it does not panic")
    };
    let (serving, others): (Vec<String>, Vec<String>) = (held(vec!["/srv".into()]), held(Vec::new()));
    let resource = "CAP_SYS_RESOURCE";
    // In a container, root may not have it.
    let rest: Vec<_> = others.into_iter().filter(|name| name != resource).collect();
    assert_eq!(serving, rest, "all else is kept");
}

#[test]
fn capabilities_that_are_not_needed_again_are_gone_from_every_set() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let sets = |needs| {
        inside(needs, |said| {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let set = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            assert!(said.capabilities.iter().all(|kept| !kept.needed_for.is_empty()), "{said:?}");
            assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0));
            assert_eq!(set("CapEff:"), set("CapPrm:"));
            assert_eq!(set("CapBnd:") & !set("CapPrm:"), 0, "{status}");
            set("CapPrm:")
        })
    };
    // Numbers of linux/capability.h.
    let (dac_override, setuid, sys_module, sys_ptrace, net_bind_service, net_admin) = (1, 7, 16, 19, 10, 12);
    let kept = sets(Needs::default());
    for gone in [dac_override, setuid, sys_module, sys_ptrace, net_bind_service] {
        assert_eq!(kept >> gone & 1, 0, "capability {gone}");
    }
    assert_eq!(kept >> net_admin & 1, 1);
    assert_eq!(sets(Needs { rpcbind: true, ..Needs::default() }) >> net_bind_service & 1, 1);
}

#[test]
fn switched_off_nothing_changes_and_it_is_said() {
    let before = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let said = enter(Sandbox::Off, &Needs::default());
    assert_eq!((said.setting.as_str(), said.files.as_str()), ("off", "off, as asked"));
    let set = |status: &str| {
        status.lines().filter(|line| line.starts_with("Cap")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(set(&before), set(&std::fs::read_to_string("/proc/thread-self/status").unwrap()));
}

#[test]
fn files_that_are_exported_are_served_with_the_rights_of_callers_and_others_are_not_there() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (export, beside) = (folder.path().join("export"), folder.path().join("beside"));
    std::fs::create_dir(&export).unwrap();
    std::fs::write(export.join("file"), "data").unwrap();
    std::fs::write(&beside, "").unwrap();
    inside(Needs { exports: vec![export.clone()], ..Needs::default() }, |said| {
        if !said.calls.starts_with("by seccomp") || !said.files.starts_with("by Landlock") {
            return twinpath_test_rig::skip(&said.calls);
        }
        assert!(said.files.ends_with("what it exports"), "{}", said.files);
        assert_eq!(std::fs::read_to_string(export.join("file")).unwrap(), "data");
        std::fs::rename(export.join("file"), export.join("moved")).unwrap();
        assert!(std::fs::File::open(&beside).is_err());
        twinpath_sys::file_rights::own_mask().unwrap();
        drop(twinpath_sys::file_rights::act_as(1000, 1000, &[7]).unwrap());
        assert_eq!(rustix::process::chroot("/"), Err(Errno::PERM));
    });
    // Without exports it has none of that.
    inside(Needs::default(), |said| {
        if said.calls.starts_with("by seccomp") {
            assert_eq!(twinpath_sys::file_rights::own_mask(), Err(Errno::PERM));
        }
    });
}
