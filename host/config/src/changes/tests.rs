use std::path::Path;

use super::*;

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("test.toml")).expect("valid")
}

const BOTH: &str = "[interface]\nname = \"eth0\"\n\
                    [[service]]\nkind = \"echo\"\nudp = 7\ntcp = 7\n\
                    [[service]]\nname = \"nfs\"\nkind = \"rpc\"\nudp = 2049\n";

fn changed(former: &str, new: &str) -> (Changes, Vec<String>) {
    let (former, new) = (config(former), config(new));
    let changes = Changes::between(&former, &new).expect("can be done");
    let lines = changes.lines(&former, &new);
    (changes, lines)
}

#[test]
fn nothing_changes_between_equals_whatever_their_order() {
    let (changes, lines) = changed(BOTH, BOTH);
    assert_eq!(changes.services, [Origin::Kept(0, vec![]), Origin::Kept(1, vec![])]);
    assert!(lines.is_empty(), "{lines:?}");
    let turned = "[interface]\nname = \"eth0\"\n\
                  [[service]]\nname = \"nfs\"\nkind = \"rpc\"\nudp = 2049\n\
                  [[service]]\nkind = \"echo\"\nudp = 7\ntcp = 7\n";
    let (changes, lines) = changed(BOTH, turned);
    assert_eq!(changes.services, [Origin::Kept(1, vec![]), Origin::Kept(0, vec![])]);
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn services_are_kept_replaced_new_or_gone_by_their_names() {
    let new = "[interface]\nname = \"eth0\"\n[limits]\nidle_timeout_s = 5\n\
               [[service]]\nkind = \"echo\"\nudp = 7\ntcp = 7\nlimits.connections = 9\n\
               [[service]]\nname = \"more\"\nkind = \"echo\"\nudp = 9\n";
    let (changes, lines) = changed(BOTH, new);
    assert_eq!(changes.leaving, [1]);
    assert!(matches!(&changes.services[..], [Origin::Kept(0, limits), Origin::New] if limits.len() == 2));
    assert_eq!(
        lines,
        [
            "service `nfs` goes; its connections end once they are answered",
            "service `echo`: limits.connections: 1024 -> 9, limits.idle_timeout_s: 600 -> 5",
            "service `more` is new",
        ]
    );
    let (changes, lines) = changed(BOTH, &format!("{BOTH}sources = [\"10.0.0.0/8\"]\nrpc.fragments = 5\n"));
    assert_eq!(changes.leaving, [1]);
    let [_, Origin::Replaces(1, served)] = &changes.services[..] else { panic!("{changes:?}") };
    assert_eq!(served.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["sources", "rpc.fragments"]);
    assert!(lines[0].starts_with("service `nfs` is made anew (sources: [] -> [\"10.0.0.0/8\"]"), "{lines:?}");
    let (changes, lines) = changed(BOTH, &format!("{BOTH}rpc.rpcbind = true\n"));
    assert!(changes.leaving.is_empty());
    assert_eq!(lines, ["service `nfs`: rpc.rpcbind: false -> true"]);
}

/// A key of the instance that is not listed as changeable is refused, so that a new key is never ignored
/// silently.
#[test]
fn what_cannot_change_is_refused_all_at_once() {
    let text = "[interface]\nname = \"eth1\"\npath = \"packet\"\nring_frames = 64\n\
                [worker]\ncount = 2\nmode = \"poll\"\nspin_us = 5\n[limits]\npeers = 5\ndrain_ms = 7\n\
                [pool]\nthreads_max = 3\n[control]\nsocket = \"/run/x.sock\"\nmetrics = \"9464\"\n\
                [service]\nkind = \"echo\"\nudp = 7\ntcp = 7\n";
    let faults = Changes::between(&config(BOTH), &config(text)).expect_err("much of it");
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    let fixed = [
        "control.socket",
        "interface.name",
        "interface.path",
        "interface.ring_frames",
        "limits.peers",
        "pool.threads_max",
        "worker.count",
        "worker.spin_us",
    ];
    assert_eq!(keys, fixed);
    assert_eq!(
        faults[6].to_string(),
        "worker.count: 1 -> 2 cannot be done while it runs: restart for that, or put it back"
    );
    let settings = "[interface]\nname = \"eth0\"\n[worker]\nmode = \"poll\"\nlatency = \"20us\"\n\
                    [limits]\ndrain_ms = 7\ntake_over_ms = 700\n[control]\nmetrics = \"9464\"\n\
                    [service]\nkind = \"echo\"\nudp = 7\ntcp = 7\n";
    let (changes, lines) =
        changed("[interface]\nname = \"eth0\"\n[service]\nkind = \"echo\"\nudp = 7\ntcp = 7\n", settings);
    let keys: Vec<_> = changes.settings.iter().map(|it| it.key.as_str()).collect();
    let all = ["control.metrics", "limits.drain_ms", "limits.take_over_ms", "worker.latency", "worker.mode"];
    assert_eq!(keys, all);
    assert_eq!(lines[0], "control.metrics: none -> \"127.0.0.1:9464\"");
}

#[test]
fn a_port_cannot_move_between_all_addresses_and_some() {
    let some = BOTH.replace("tcp = 7\n", "tcp = 7\naddresses = [\"10.9.0.1\"]\n");
    for (former, new) in [(BOTH, some.as_str()), (some.as_str(), BOTH)] {
        let faults = Changes::between(&config(former), &config(new)).expect_err("cannot be bound");
        assert_eq!(faults.len(), 1);
        assert!(faults[0].to_string().contains("udp port 7 at other addresses"), "{}", faults[0]);
    }
    let more = some.replace("[\"10.9.0.1\"]", "[\"10.9.0.1\", \"10.9.0.2\"]");
    assert!(matches!(changed(&some, &more).0.services[0], Origin::Replaces(0, _)));
}

#[test]
fn a_value_is_said_as_a_file_has_it() {
    let value = serde_json::json!({ "a": [1, "b"], "c": true, "d": null });
    assert_eq!(in_words(&value), "{ a = [1, \"b\"], c = true }");
}
