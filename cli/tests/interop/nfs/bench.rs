//! `bench nfs` measures our server, verifies what it says, and leaves nothing behind.

use serde_json::Value;

use super::*;
use crate::rig::SERVER;

/// `bench nfs` from the client's namespace.
fn bench(place: &Place, export: &Path, arguments: &str) -> Value {
    let base =
        ["bench", "nfs", SERVER, "--json", "--warmup", "0", "--timeout", "20", "--export", text(export)];
    let words: Vec<&str> = base.into_iter().chain(arguments.split_whitespace()).collect();
    let finished = place.rig.twinpath(&place.rig.client, &words);
    assert_eq!(finished.code, Some(0), "{words:?}: {}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let wrong = ["refused", "corrupt", "duplicates"].map(|field| report[field].as_u64());
    assert_eq!(wrong, [Some(0); 3], "{words:?}");
    report
}

#[test]
fn every_procedure_is_measured_over_both_transports() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let [data, tree] = ["data", "tree"].map(|name| place.directory(name));
    for number in 0..70 {
        let directory = tree.join(format!("directory-{}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("a file with number {number}")), [number; 5000]).unwrap();
    }
    fs::write(tree.join("file"), (0..9999).map(|at| (at / 3) as u8).collect::<Vec<_>>()).unwrap();
    let server =
        place.serve(&[export(&data, "rw,no_root_squash"), export(&tree, "ro")], &["--path", "packet"]);
    for transport in ["--tcp", "--udp"] {
        for load in ["--proc read -a 4 -j 2", "--proc write -a 3 --writes-per-commit 5", "--proc write -j 2"]
        {
            let arguments = format!("{transport} {load} --size 8192 --file-size 100000 --count 60");
            let report = bench(&place, &data, &arguments);
            assert_eq!(report["received"], 60, "{arguments}");
            assert!(report["bytes_per_s"].as_f64().unwrap() > 0.0, "{report}");
            assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "{arguments}: it removed its files");
        }
        for load in [
            "getattr -a 8",
            "getattr --file directory-3/",
            "lookup -a 8 --file directory-2",
            "read --size 1000 --file file",
        ] {
            let arguments = format!("{transport} --count 50 --proc {load}");
            assert_eq!(bench(&place, &tree, &arguments)["received"], 50, "{arguments}");
        }
        let listed = bench(&place, &tree, &format!("{transport} --proc list -i 2"));
        assert_eq!((&listed["names"], listed["runs"].as_array().unwrap().len()), (&78.into(), 2));
        assert!(listed["listing_s"].as_f64().unwrap() > 0.0, "{listed}");
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn what_cannot_be_measured_gets_one_sentence() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let [data, squashed] = ["data", "squashed"].map(|name| place.directory(name));
    fs::set_permissions(&squashed, fs::Permissions::from_mode(0o755)).unwrap();
    let server = place.serve(&[export(&data, "ro"), export(&squashed, "rw")], &["--path", "kernel"]);
    for (target, export, arguments, words) in [
        (SERVER, text(&data), "", "the export is read-only: name a file to read with --file"),
        (SERVER, text(&squashed), "", "root_squash"),
        (SERVER, text(&data), "--proc lookup", "the directory is empty"),
        (SERVER, text(&data), "--proc lookup --file missing", "cannot find missing"),
        (SERVER, "/elsewhere", "", "does not mount /elsewhere"),
        (SERVER, text(&data), "--mount-port 9", "nothing listens on"),
        (&format!("{SERVER}:2050"), text(&data), "", "nothing listens on"),
        (&format!("{SERVER}:2050"), text(&data), "--udp", "onnection refused"),
    ] {
        let base = ["bench", "nfs", target, "--duration", "0.1", "--export", export];
        let line: Vec<&str> = base.into_iter().chain(arguments.split_whitespace()).collect();
        let finished = place.rig.twinpath(&place.rig.client, &line);
        assert_eq!(finished.code, Some(1), "{line:?}: {}", finished.stdout);
        assert!(finished.stderr.contains(words), "{line:?}: {} lacks {words:?}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{line:?}: {}", finished.stderr);
    }
    assert_eq!(server.interrupt(), Some(0));
}
