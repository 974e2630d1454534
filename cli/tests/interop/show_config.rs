//! `twinpath show config`: every key with its value, where that comes from, and what it takes to change it.

use crate::rig::{Rig, Server, until};
use crate::root_or_skip;
use crate::several::{file, serve, two};

/// Value and source of a key.
fn setting(server: &Server, key: &str) -> (String, String) {
    let config = server.show("config");
    let settings = config.as_array().expect("a list");
    let setting = settings.iter().find(|setting| setting["key"] == key).expect(key);
    (setting["value"].to_string(), setting["source"].as_str().unwrap().to_owned())
}

fn is(server: &Server, key: &str, value: &str, source: &str) {
    assert_eq!(setting(server, key), (value.to_owned(), source.to_owned()), "{key}");
}

#[test]
fn a_value_says_whether_it_is_of_the_file_the_command_line_a_default_or_set_since() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let text = two("path = \"packet\"");
    let path = file(&rig, &text);
    let server = rig.start(&["--config", path.to_str().unwrap(), "--drain-ms", "700"]);
    let socket = server.socket.to_str().unwrap();
    is(&server, "interface.path", "\"packet\"", "file");
    is(&server, "service[0].limits.connections_per_source", "2", "file");
    is(&server, "service[1].tcp", "62049", "file");
    is(&server, "limits.drain_ms", "700", "command line");
    is(&server, "limits.take_over_ms", "30000", "default");
    is(&server, "control.sandbox", "\"on\"", "default");
    is(&server, "worker.mode", "\"adaptive\"", "default");
    let twinpath = |arguments: &[&str]| {
        let done = rig.twinpath(&rig.server, &[arguments, &["--socket", socket]].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout
    };
    twinpath(&["set", "worker", "0", "mode", "poll"]);
    until("the worker polls", || {
        setting(&server, "worker.mode") == ("\"poll\"".to_owned(), "set".to_owned())
    });
    twinpath(&["set", "worker", "all", "latency", "50us"]);
    is(&server, "worker.latency", "\"50us\"", "set");
    file(&rig, &(text + "[worker]\nmode = \"interrupt\"\n[limits]\ntake_over_ms = 30000\n"));
    assert!(twinpath(&["reload"]).contains("worker.mode"));
    until("the worker sleeps", || setting(&server, "worker.mode").0 == "\"interrupt\"");
    is(&server, "worker.mode", "\"interrupt\"", "file");
    is(&server, "limits.take_over_ms", "30000", "file");
    is(&server, "worker.latency", "\"50us\"", "set");
    let table = twinpath(&["show", "config"]);
    for words in ["worker.linger_ms", "learnt; 1000 in interrupt", "50us", "command line", "set, reload"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!twinpath(&["show"]).contains("worker.linger_ms"));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_default_that_a_file_says_is_of_the_file_from_its_reload_on() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let text = two("path = \"packet\"");
    let server = serve(&rig, &text);
    is(&server, "worker.count", "1", "default");
    file(&rig, &(text + "[worker]\ncount = 1\n"));
    let socket = server.socket.to_str().unwrap();
    assert_eq!(rig.twinpath(&rig.server, &["reload", "--socket", socket]).code, Some(0));
    is(&server, "worker.count", "1", "file");
}
