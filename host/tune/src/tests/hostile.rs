//! Tests of journals that others could have written: nothing is restored from them, and nothing outside /sys and /proc
//! is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use twinpath_sys::trusted_dir::TrustError;

use super::fake::Fake;
use crate::journal::{JournalError, read};
use crate::{At, System as _};

/// A machine with an apply in the journal, and the journal's text.
fn applied() -> (Fake, String) {
    let mut fake = Fake::new();
    fake.apply();
    let text = fs::read_to_string(fake.journal_file()).unwrap();
    (fake, text)
}

/// Opening the journal and reading it must both fail.
fn refused(fake: &Fake) -> JournalError {
    let before = fake.everything();
    let seen = read(&fake.journal_file()).unwrap_err().to_string();
    let error = fake.journal().unwrap_err();
    assert_eq!(error.to_string(), seen);
    assert_eq!(fake.everything(), before);
    error
}

#[test]
fn a_journal_of_the_former_layout_names_files_and_is_not_replayed() {
    let (fake, _) = applied();
    fs::write(fake.path("victim"), "kept").unwrap();
    let former = r#"{"version":1,"boot":"first-boot","entries":[{"id":"thp","subject":"","setting":{"place":{"kind":"file",
        "path":"../victim"},"form":"word","owner":null},"former":"lost","applied":"kept","earlier":null,"stage":"intended",
        "askers":["machine"]}]}"#;
    fs::write(fake.journal_file(), former).unwrap();
    let error = refused(&fake).to_string();
    assert!(error.contains("version 1, this program knows 2") && error.contains("by hand"), "{error}");
    assert_eq!(fs::read_to_string(fake.path("victim")).unwrap(), "kept");
    // The same with the new version number: an entry cannot name a file.
    fs::write(fake.journal_file(), former.replace("\"version\":1", "\"version\":2")).unwrap();
    assert!(matches!(refused(&fake), JournalError::Parse { .. }));
}

#[test]
fn an_entry_that_we_could_not_have_written_makes_it_no_journal() {
    let (fake, text) = applied();
    for (ours, theirs) in [
        ("\"name\": \"eth0\"", "\"name\": \"..\""),
        ("\"name\": \"eth0\"", "\"name\": \".\""),
        ("\"name\": \"eth0\"", "\"name\": \"../../../etc\""),
        ("\"name\": \"eth0\"", "\"name\": \"eth0\\nx\""),
        ("\"name\": \"eth0\"", "\"name\": \"\""),
        ("\"name\": \"eth0\"", "\"name\": \"a-name-that-is-too-long\""),
        ("\"name\": \"eth0-TxRx-1\"", "\"name\": \"../../../etc/shadow\""),
        ("\"name\": \"eth0-TxRx-1\"", "\"name\": \"..\""),
        ("\"namespace\": \"net:[1]\"", "\"namespace\": \"net:[1]\\u001b[2J\""),
        ("\"former\": \"20000\"", "\"former\": \"20000\\n1\""),
        ("\"former\": \"20000\"", "\"former\": \"\""),
        ("\"former\": \"always\"", "\"former\": \"always\\nnever\""),
        ("\"former\": \"schedutil\"", "\"former\": \"a b\""),
        ("\"irq\": 41", "\"irq\": -1"),
        ("\"irq\": 41", "\"irq\": \"41/../../../etc\""),
        ("\"cpu\": 1", "\"cpu\": \"1/../..\""),
        ("\"applied\": \"2\"", "\"applied\": \"2\\n\""),
        ("\"place\": {", "\"path\": \"etc/shadow\", \"place\": {"),
    ] {
        let changed = text.replace(ours, theirs);
        assert_ne!(changed, text, "{ours} is in the journal");
        fs::write(fake.journal_file(), changed).unwrap();
        assert!(matches!(refused(&fake), JournalError::Parse { .. }), "{theirs}");
    }
    // A setting of an interface without one, and a setting of the machine with one.
    let mut entries: serde_json::Value = serde_json::from_str(&text).unwrap();
    entries["entries"][0]["setting"]["owner"] = serde_json::Value::Null;
    fs::write(fake.journal_file(), entries.to_string()).unwrap();
    assert!(matches!(refused(&fake), JournalError::Parse { .. }));
}

#[test]
fn a_journal_or_folder_that_is_a_link_is_not_followed() {
    let (fake, text) = applied();
    let (file, folder) = (fake.journal_file(), fake.path("run"));
    fs::write(fake.path("elsewhere"), text).unwrap();
    fs::remove_file(&file).unwrap();
    symlink(fake.path("elsewhere"), &file).unwrap();
    assert!(matches!(refused(&fake), JournalError::Trust(TrustError::Link { .. })));
    // The lock file beside it is opened in the same way.
    fs::remove_file(&file).unwrap();
    fs::remove_file(fake.path("run/tune.lock")).unwrap();
    symlink(fake.path("made"), fake.path("run/tune.lock")).unwrap();
    assert!(matches!(fake.journal(), Err(JournalError::Trust(TrustError::Link { .. }))));
    assert!(!fake.path("made").exists());
    fs::rename(&folder, fake.path("real")).unwrap();
    symlink(fake.path("real"), &folder).unwrap();
    assert!(matches!(refused(&fake), JournalError::Trust(TrustError::Link { .. })));
}

#[test]
fn a_journal_or_folder_that_others_could_write_is_not_replayed() {
    let (fake, _) = applied();
    let (file, folder) = (fake.journal_file(), fake.path("run"));
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(refused(&fake), JournalError::Trust(TrustError::Mode { .. })), "{mode:o}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    for mode in [0o770, 0o777, 0o1777] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(refused(&fake), JournalError::Trust(TrustError::Mode { .. })), "{mode:o}");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    fake.journal().unwrap();
}

#[test]
fn a_journal_or_folder_of_somebody_else_is_not_replayed() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let (mut fake, _) = applied();
    for path in [fake.journal_file(), fake.path("run")] {
        chown(&path, Some(65_534), None).unwrap();
        assert!(matches!(refused(&fake), JournalError::Trust(TrustError::Owner { uid: 65_534, .. })));
        chown(&path, Some(0), None).unwrap();
    }
    fake.restore();
}

#[test]
fn no_link_leads_out_of_sys_and_proc() {
    let mut fake = Fake::new();
    fs::write(fake.path("victim"), "kept").unwrap();
    fs::create_dir_all(fake.path("sys/class/net/eth1")).unwrap();
    symlink("../../../../victim", fake.path("sys/class/net/eth1/threaded")).unwrap();
    symlink(fake.path("victim"), fake.path("sys/class/net/eth1/address")).unwrap();
    symlink("../eth0", fake.path("sys/class/net/lan0")).unwrap();
    symlink("net/eth0", fake.path("sys/class/link")).unwrap();
    for path in [
        "sys/class/net/eth1/threaded",
        "sys/class/net/eth1/address",
        "sys/../victim",
        "proc/../victim",
        "victim",
    ] {
        let at = At::File(path.to_owned());
        assert!(fake.read(&at).is_err(), "{path}");
        assert!(fake.write(&at, "lost").is_err(), "{path}");
    }
    assert_eq!(fs::read_to_string(fake.path("victim")).unwrap(), "kept");
    // Links within /sys are followed.
    assert_eq!(fake.file("sys/class/link/ifindex").as_deref(), Some("7"));
}
