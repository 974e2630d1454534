use std::num::NonZeroU16;
use std::path::PathBuf;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, FilePath::new("x.toml"))
}

/// The faults of a file with this text.
fn faults(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    std::fs::write(&file, text).unwrap();
    // If the file does not name the service's kind, the command line does.
    let kind = (!text.contains("kind")).then_some(ServiceKind::Echo);
    let message = Config::load(Some(&file), &of_kind(kind), None).unwrap_err().to_string();
    message.replace(&format!("{}/", directory.path().display()), "")
}

/// The overrides of `serve KIND`.
fn of_kind(kind: Option<ServiceKind>) -> Overrides {
    let service = ServiceOverrides { kind: kind.map(Some), ..ServiceOverrides::default() };
    Overrides { service, ..Overrides::default() }
}

/// The overrides of a command line with these values.
fn overrides(values: &[(&str, &str)]) -> Overrides {
    let mut overrides = Overrides::default();
    for (path, text) in values {
        let key = keys().find(|key| key.path == *path).expect(path);
        overrides.set(key, &[(*text).to_owned()]).expect(path);
    }
    overrides
}

fn port(number: u16) -> Option<NonZeroU16> {
    NonZeroU16::new(number)
}

#[test]
fn the_example_is_valid_and_else_the_default() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.validate(), []);
    // Except for keys without a default, the example contains the defaults.
    let expected = Config {
        services: vec![Service {
            kind: Some(ServiceKind::Echo),
            udp: port(7),
            tcp: port(7),
            ..Service::default()
        }],
        interface: Interface { name: Some("eth0".to_owned()), ..Interface::default() },
        worker: Worker {
            cpus: vec![1],
            latency: Some("20us".parse().unwrap()),
            linger_ms: Some(1000),
            latency_request_max_exit_us: Some(2),
            ..Worker::default()
        },
        control: Control {
            socket: Some(PathBuf::from("/run/twinpath/echo.sock")),
            metrics: Some("9464".parse().unwrap()),
            sandbox: Some(Sandbox::On),
        },
        ..Config::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn an_error_names_file_line_key_and_what_to_do() {
    for (text, message) in [
        (
            "[worker]\ncount = 1\nmode = \"polling\"\n",
            "x.toml:3: worker.mode: unknown variant `polling`, expected one of `adaptive`, `interrupt`, `poll`",
        ),
        (
            "[worker]\nsockets = \"io_uring\"\n",
            "x.toml:2: worker.sockets: this key is gone: TCP connections are always served through epoll, as `auto` chose before; \
             delete the line (docs/decisions/0006 says why)",
        ),
        (
            "\n[worker]\ncuont = 1\n",
            "x.toml:3: worker.cuont: unknown field `cuont`, expected one of `count`, `cpus`, `mode`, `latency`, `cpu`, \
             `spin_us`, `linger_ms`, `latency_request`, `latency_request_scope`, `latency_request_max_exit_us`, `priority`, \
             `spin_share_max`, `fail_open_ms` (docs/config.md lists the keys)",
        ),
        (
            "[service]\nudp = \"seven\"\n",
            "x.toml:2: service.udp: invalid type: string \"seven\", expected a nonzero u16 (a port is 1 to 65535; \
             leave the key out for none)",
        ),
        (
            "[service]\nudp = 0\n",
            "x.toml:2: service.udp: invalid value: integer `0`, expected a nonzero u16 (a port is 1 to 65535; leave \
             the key out for none)",
        ),
        (
            "[interface]\npath = \"dpdk\"\n",
            "x.toml:2: interface.path: unknown variant `dpdk`, expected one of `auto`, `xdp`, `xdp-zerocopy`, \
             `packet`, `kernel`",
        ),
        ("[worker]\ncpus = [0, -1]\n", "x.toml:2: worker.cpus[1]: invalid value: integer `-1`, expected u32"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
    let not_toml = parse("[worker]\ncount = \n").unwrap_err().to_string();
    assert!(not_toml.starts_with("x.toml:2: "), "{not_toml}");
}

/// Loads a file as `serve KIND --config FILE` does, or as `serve --config FILE`.
fn load(text: &str, kind: Option<ServiceKind>) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    std::fs::write(&file, text).unwrap();
    let loaded = Config::load(Some(&file), &of_kind(kind), Some(20_000));
    loaded
        .map(|(config, _)| config)
        .map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_in_the_order_of_lines() {
    let text = "[service]\nkind = \"ecko\"\nudp = \"7\"\n[interface]\nname = \"eth0\"\npath = 5\n[sevrice]\nudp = 7\n\
                [worker]\ncount = 100\ncpus = [0, -1]\n[limits]\npeers = 5000\n";
    assert_eq!(
        load(text, None).unwrap_err(),
        "x.toml:2: service.kind: unknown variant `ecko`, expected one of `echo`, `discard`, `chargen`, `reflect`, `rpc`, `nfs`\n\
         x.toml:3: service.udp: invalid type: string \"7\", expected a nonzero u16 (a port is 1 to 65535; leave the key out for \
         none)\n\
         x.toml:6: interface.path: a word in quotes is expected here (docs/config.md lists those that each key knows)\n\
         x.toml:7: sevrice: unknown field `sevrice`, expected one of `service`, `interface`, `worker`, `limits`, `pool`, `rpc`, `nfs`, \
         `control`, `switch` (docs/config.md lists the keys)\n\
         x.toml:10: worker.count: 100 workers: give 1 to 64\n\
         x.toml:11: worker.cpus[1]: invalid value: integer `-1`, expected u32\n\
         x.toml:13: limits.peers: 5000: give 1 to 4096"
    );
    let broken = load("[service\nkind = \n[worker]\ncount = = 1\n", None).unwrap_err();
    assert!(broken.lines().count() >= 2 && broken.starts_with("x.toml:1: "), "{broken}");
}

const TWO: &str = "[interface]\nname = \"eth0\"\n[[service]]\nkind = \"echo\"\nudp = 7\ntcp = 7\n[[service]]\nkind = \"rpc\"\n\
                   udp = 2049\n";

#[test]
fn a_file_has_one_service_or_several_each_with_limits_of_its_own() {
    let config = load(&format!("{TWO}limits.connections = 10\nrpc.duplicates = 8\n"), None).unwrap();
    let [echo, rpc] = config.services.as_slice() else { panic!("{config:?}") };
    assert_eq!((echo.shown_name(), rpc.shown_name()), ("echo", "rpc"));
    assert_eq!((config.limits_of(echo).connections, config.limits_of(rpc).connections), (1024, 10));
    assert_eq!((config.rpc_of(rpc).duplicates, config.rpc_of(rpc).fragments), (8, None));
    let written = toml::to_string(&config).unwrap();
    assert_eq!(parse(&written).unwrap(), config, "{written}");
    // A key on the command line applies to all services.
    let mut config = config;
    let limits = LimitOverrides { connections: Some(5), ..LimitOverrides::default() };
    config.apply(&Overrides { limits, ..Overrides::default() });
    assert_eq!(config.limits_of(&config.services[1]).connections, 5);
}

#[test]
fn services_that_want_the_same_are_refused_with_both_names() {
    let fault = |rest: &str| load(&format!("{TWO}{rest}"), None).unwrap_err();
    assert_eq!(
        fault("[[service]]\nname = \"mine\"\nkind = \"echo\"\nudp = 7\naddresses = [\"192.0.2.1\"]\n"),
        "x.toml:13: service[2].udp: udp port 7 is served by `echo` already: give `mine` another port, or each of them addresses \
         of its own"
    );
    assert_eq!(
        fault("[[service]]\nkind = \"echo\"\nflows = [\"udp,192.0.2.9:5,192.0.2.1:2049\"]\n"),
        "x.toml:12: service[2].flows: udp port 2049 is served by `rpc` already: give `echo` another port, or each of them \
         addresses of its own\n\
         service[2].name: two services are called `echo`: give each a name of its own"
    );
    assert_eq!(
        fault("limits.drain_ms = 5\nlimits.idle_timeout_s = 90000\n"),
        "x.toml:10: service[1].limits.drain_ms: the whole instance stops at once: set it in [limits]\n\
         x.toml:11: service[1].limits.idle_timeout_s: 90000: give 1 to 86400, or 0 for none"
    );
    assert_eq!(
        fault("[[service]]\nname = \"no name\"\nkind = \"echo\"\ntcp = 70\nrpc.fragments = 5\n"),
        "x.toml:11: service[2].name: `no name`: give 1 to 32 letters, digits, `-`, `_` or `.`\n\
         x.toml:14: service[2].rpc: echo has no such keys: they are those of rpc and nfs"
    );
    assert_eq!(
        fault(
            "rpc.rpcbind = true\n[[service]]\nname = \"b\"\nkind = \"rpc\"\ntcp = 70\nrpc.rpcbind = true\n"
        ),
        "x.toml:15: service[2].rpc.rpcbind: `rpc` and `b` serve the same programs, and rpcbind names one port for each: let one of \
         them register"
    );
    // The same port at different addresses.
    let at = |text: &str, address| format!("{text}addresses = [\"192.0.2.{address}\"]\n");
    let apart = format!("{}[[service]]\nname = \"b\"\nkind = \"echo\"\nudp = 2049\n", at(TWO, 1));
    assert_eq!(load(&at(&apart, 2), None).unwrap().services.len(), 3);
    let many = "[[service]]\nkind = \"echo\"\n".repeat(17);
    assert_eq!(
        load(&format!("[interface]\nname = \"eth0\"\n{many}"), None).unwrap_err(),
        "service: 17 services: one instance serves at most 16"
    );
}

#[test]
fn a_command_for_one_kind_refuses_a_file_that_says_another_or_several() {
    let other =
        load("[service]\nkind = \"rpc\"\nudp = 7\n[interface]\nname = \"eth0\"\n", Some(ServiceKind::Echo));
    assert_eq!(
        other.unwrap_err(),
        "x.toml:2: service.kind: the file says rpc and the command line says echo: run `twinpath serve --config x.toml` for what \
         the file says"
    );
    assert_eq!(
        load(TWO, Some(ServiceKind::Rpc)).unwrap_err(),
        "x.toml has 2 services and `serve rpc` serves one: run `twinpath serve --config x.toml`"
    );
    let unsaid = load("[service]\nudp = 7\n[interface]\nname = \"eth0\"\n", None).unwrap_err();
    assert_eq!(
        unsaid,
        "service.kind: which service? Set kind to \"echo\", \"discard\", \"chargen\", \"reflect\", \"rpc\" or \"nfs\""
    );
}

#[test]
fn values_that_cannot_work_are_all_named_with_their_lines() {
    assert_eq!(
        faults(
            "[service]\nudp = 7\n[interface]\nname = \"eth0\"\n\n[worker]\ncount = 2\ncpus = [1]\nspin_us = 2000000\n\
             [limits]\npeers = 5000\n"
        ),
        "x.toml:8: worker.cpus: 1 CPUs for 2 workers: name one for each, or none\n\
         x.toml:9: worker.spin_us: 2000000 us is more than 1000000: for a worker that never sleeps set mode = \"poll\"\n\
         x.toml:11: limits.peers: 5000: give 1 to 4096"
    );
    assert_eq!(
        faults(""),
        "interface.name: which interface? Set it here or give --on IFACE\n\
         service.udp: no port: give --udp PORT, --tcp PORT or both, or set service.udp or service.tcp (7 is echo's)"
    );
    assert_eq!(
        faults(
            "[service]\ntcp = 7\n[interface]\nname = \"not/an/interface\"\nring_frames = 500\n[worker]\ncount = 2\ncpus = [3, 3]\n"
        ),
        "x.toml:4: interface.name: `not/an/interface` is no name of an interface: see `ip link`\n\
         x.toml:5: interface.ring_frames: 500: give a power of two, 64 to 8192\n\
         x.toml:8: worker.cpus: CPU 3 twice: two workers would take turns on it"
    );
}

#[test]
fn what_a_record_may_take_fits_what_a_connection_may_hold() {
    let fault = |rpc: &str| {
        faults(&format!("[interface]\nname = \"eth0\"\n[service]\nkind = \"rpc\"\ntcp = 2049\n[rpc]\n{rpc}"))
    };
    assert_eq!(
        fault("record_bytes = 262144\nfragments = 1\n"),
        "x.toml:7: rpc.record_bytes: a record of 262144 bytes in 1 fragments takes 262148 bytes with its marks, and \
         limits.connection_bytes are 262144: raise those, or lower this"
    );
    assert_eq!(
        fault("record_bytes = 100\nfragments = 0\nduplicates = 70000\nduplicate_age_s = 0\n"),
        "x.toml:7: rpc.record_bytes: 100: give 1024 to 16777216\n\
         x.toml:8: rpc.fragments: 0: give 1 to 1048576\n\
         x.toml:9: rpc.duplicates: 70000: give 8 to 65536\n\
         x.toml:10: rpc.duplicate_age_s: 0: give 1 to 86400"
    );
    let config = parse("[rpc]\nrpcbind = true\n").unwrap();
    assert_eq!(config.rpc, Rpc { rpcbind: true, ..Rpc::default() });
}

#[test]
fn a_service_is_refused_what_it_does_not_serve() {
    let fault = |service: &str| faults(&format!("[interface]\nname = \"eth0\"\n[service]\n{service}"));
    assert_eq!(
        fault("kind = \"reflect\"\n"),
        "service.ethertype: which frames? Set it, or give --ethertype 0x88b5 (IEEE 802 leaves that to local experiments)"
    );
    assert_eq!(
        fault("kind = \"reflect\"\nethertype = 0x0800\n"),
        "x.toml:5: service.ethertype: EtherType 0x0800 cannot be claimed: it is IPv4: IP is claimed by port; 0x88b5 \
         and 0x88b6 are for local experiments"
    );
    assert_eq!(
        fault("kind = \"reflect\"\nethertype = 0x88b5\nudp = 7\n"),
        "x.toml:6: service.udp: reflect serves frames of an EtherType: leave out udp and tcp"
    );
    assert_eq!(
        fault("kind = \"rpc\"\n"),
        "service.udp: no port: give --udp PORT, --tcp PORT or both, or set service.udp or service.tcp (2049 is NFS's; clients find others by rpcbind)"
    );
    for (line, key) in [("udp = 19", "udp"), ("flows = [\"udp,10.9.0.1:4444,10.9.0.2:19\"]", "flows")] {
        let said = fault(&format!("kind = \"chargen\"\ntcp = 19\n{line}\n"));
        let begins = format!("x.toml:6: service.{key}: chargen is served over TCP only: ");
        assert!(said.starts_with(&begins), "{said}");
    }
    assert_eq!(
        fault("kind = \"chargen\"\n"),
        "service.tcp: no port: give --tcp PORT, or set service.tcp (19 is chargen's)"
    );
    assert_eq!(
        fault("kind = \"discard\"\nudp = 9\nethertype = 0x88b5\n"),
        "x.toml:6: service.ethertype: discard serves ports: frames are served by reflect"
    );
    assert_eq!(
        fault("udp = 7\nethertype = 0x88b5\n"),
        "x.toml:5: service.ethertype: echo serves ports: frames are served by reflect"
    );
    let reflect =
        parse("service.kind = \"reflect\"\nservice.ethertype = 0x88b5\ninterface.name = \"eth0\"\n");
    assert_eq!(reflect.unwrap().validate(), []);
}

#[test]
fn claims_by_address_flow_and_sender_are_checked() {
    let fault =
        |service: &str| faults(&format!("[interface]\nname = \"eth0\"\n[service]\nudp = 7\n{service}"));
    assert_eq!(
        fault("addresses = [\"fe80::1\"]\n"),
        "x.toml:5: service.addresses: fe80::1 is not an address of its own to serve at: name an interface's, not a \
         link-local one"
    );
    assert_eq!(
        fault("addresses = [\"10.0.0.1\", \"10.0.0.1\"]\n"),
        "x.toml:5: service.addresses: 10.0.0.1 stands there twice"
    );
    let flow = fault("flows = [\"udp 10.9.0.1:4444\"]\n");
    assert!(flow.contains("no flow: write udp, the peer and our end"), "{flow}");
    assert_eq!(
        fault("flows = [\"tcp,10.9.0.1:4444,10.9.0.2:7\"]\n"),
        "x.toml:5: service.flows: tcp,10.9.0.1:4444,10.9.0.2:7: connections are claimed one by one as they begin: set service.tcp_path instead"
    );
    let mixed = fault("flows = [\"udp,[fd00::1]:4444,10.9.0.2:7\"]\n");
    assert!(mixed.contains("different IP families"), "{mixed}");
    let many: Vec<_> = (1..=65).map(|end| format!("\"udp,10.9.0.1:4444,10.9.0.{end}:9\"")).collect();
    assert!(fault(&format!("flows = [{}]\n", many.join(","))).contains("at most 64 have a socket"));
    assert!(fault("sources = [\"10.0.0.0/33\"]\n").contains("a prefix is an address"));
    let text = "service.udp = 7\nservice.flows = [\"udp, 10.9.0.1:4444, 10.9.0.2:7\"]\nservice.sources = [\"10.1.2.3/8\"]";
    let config = parse(text).unwrap();
    assert_eq!(String::from(config.services[0].flows[0]), "udp,10.9.0.1:4444,10.9.0.2:7");
    assert_eq!(String::from(config.services[0].sources[0]), "10.0.0.0/8");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error =
        Config::load(Some(FilePath::new("/nonesuch/x.toml")), &Overrides::default(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the configuration /nonesuch/x.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn the_command_line_wins_over_the_file() {
    let overrides = overrides(&[
        ("service.udp", "9"),
        ("interface.name", "veth0"),
        ("interface.path", "packet"),
        ("worker.count", "2"),
        ("worker.cpus", "2-3"),
        ("worker.mode", "poll"),
        ("worker.linger_ms", "5"),
    ]);
    let mut config = parse(EXAMPLE).unwrap();
    config.apply(&overrides);
    // The file's TCP port does not apply when the command line names ports.
    assert_eq!((config.services[0].udp, config.services[0].tcp), (port(9), None));
    assert_eq!(
        config.interface,
        Interface { name: Some("veth0".to_owned()), path: PathAsked::Packet, ..Interface::default() }
    );
    assert_eq!((config.worker.count, config.worker.cpus.as_slice()), (2, [2, 3].as_slice()));
    assert_eq!(
        (config.worker.mode, config.worker.spin_us, config.worker.linger_ms),
        (Mode::Poll, None, Some(5))
    );
    let before = config.clone();
    config.apply(&Overrides::default());
    assert_eq!(config, before);
}

#[test]
fn more_connections_than_open_files_are_refused_with_the_number_that_fits() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.check_open_files(20_000), None);
    assert_eq!(config.check_open_files(1120), None);
    assert_eq!(
        config.check_open_files(1024).unwrap().to_string(),
        "limits.connections: 1024 connections need 1120 open files and this process may have 1024: set it to 928 or \
         less, or raise the hard limit (ulimit -Hn, LimitNOFILE=)"
    );
}

#[test]
fn an_address_is_on_loopback_unless_told_otherwise() {
    let read = |text: &str| text.parse::<MetricsAddress>().map(|address| address.to_string());
    assert_eq!(read("9464").unwrap(), "127.0.0.1:9464");
    assert_eq!(read("0.0.0.0:80").unwrap(), "0.0.0.0:80");
    assert_eq!(read("[::1]:9464").unwrap(), "[::1]:9464");
    for wrong in ["", "localhost", "127.0.0.1", "70000", ":9464", "::1:9464x"] {
        assert!(read(wrong).unwrap_err().to_string().contains("ADDRESS:PORT"), "{wrong}");
    }
}

#[test]
fn every_key_is_a_setting_with_its_value_and_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    std::fs::write(&file, format!("{TWO}limits.connections = 10\n[worker]\nmode = \"adaptive\"\n")).unwrap();
    let overrides = overrides(&[("worker.latency", "20us"), ("limits.drain_ms", "7")]);
    let (mut config, given) = Config::load(Some(&file), &overrides, None).unwrap();
    config.interface.path = PathAsked::Packet;
    let mut settings = config.settings(&Config::default(), &given);
    let tables = ["service.limits", "service.rpc"];
    for key in keys().filter(|key| !tables.contains(&key.path) && !key.table.starts_with("switch")) {
        let path = key.path.replace("service.", "service[1].");
        assert!(settings.iter().any(|setting| setting.key == path), "{path}");
    }
    let of = |settings: &[Setting], path: &str| {
        let setting = settings.iter().find(|setting| setting.key == path).expect(path);
        let source = setting.source.clone();
        (setting.value_in_words(), source, setting.default_in_words(), setting.changed_by.clone())
    };
    for (path, expected) in [
        ("service[0].udp", ["7", "file", "none", "reload"]),
        ("service[0].ethertype", ["none", "default", "none", "reload"]),
        ("service[1].limits.connections", ["10", "file", "1024", "reload"]),
        ("interface.path", ["packet", "program", "auto", "restart"]),
        ("worker.mode", ["adaptive", "file", "adaptive", "set, reload"]),
        ("worker.latency", ["20us", "command line", "none", "set, reload"]),
        ("worker.spin_us", ["learnt", "command line", "learnt", "restart"]),
        ("limits.drain_ms", ["7", "command line", "5000", "reload"]),
        ("limits.peers", ["4096", "default", "4096", "restart"]),
    ] {
        let [value, source, default, by] = expected.map(str::to_owned);
        assert_eq!(of(&settings, path), (value, source, default, by), "{path}");
    }
    let configured = (Mode::Adaptive, goal(config.worker.latency, None));
    let before = settings.clone();
    mark_set(&mut settings, configured, &[configured, configured]);
    assert_eq!(settings, before);
    let polls = (Mode::Poll, goal(None, Some("5%".parse().unwrap())));
    mark_set(&mut settings, configured, &[polls, configured]);
    assert_eq!(of(&settings, "worker.mode").0, "poll, adaptive");
    assert_eq!(of(&settings, "worker.cpu").0, "5%, none");
    mark_set(&mut settings, configured, &[polls, polls]);
    assert_eq!(of(&settings, "worker.latency").0, "none");
    assert_eq!(of(&settings, "worker.cpu"), ("5%".into(), "set".into(), "none".into(), "set, reload".into()));
    let marked: Vec<_> = settings.iter().filter(|it| it.source == "set").map(|it| it.key.as_str()).collect();
    let settable: Vec<_> = keys().filter(|key| key.change == Change::Set).map(|key| key.path).collect();
    assert_eq!(marked, settable, "every key that set can change");
}

fn of_switch(text: &str) -> Vec<String> {
    let config = parse(text).unwrap();
    config.check_switch().iter().map(ToString::to_string).collect()
}

#[test]
fn a_switch_with_ports_of_all_kinds_is_valid() {
    let ports = ["veth1", "veth1@blue", "tap:vm0", "memory:app1"];
    let ports: String = ports.iter().map(|port| format!("[[switch.port]]\nname = \"{port}\"\n")).collect();
    assert_eq!(of_switch(&format!("[switch]\nname = \"sw0\"\nlocal = \"sw0-host\"\n{ports}")), [""; 0]);
    assert_eq!(of_switch(super::EXAMPLE_OF_SWITCH), [""; 0]);
}

#[test]
fn everything_that_is_wrong_with_a_switch_is_said() {
    let found = of_switch(
        "[switch]\nname = \"a b\"\nlocal = \"veth1\"\nstatic_entries = [\"02:00:00:00:00:01,veth9\"]\n\
         [[switch.port]]\nname = \"veth1\"\nvlan = 4095\n\
         [[switch.port]]\nname = \"veth2\"\nmode = \"trunk\"\nvlan = 7\nmirror_to = \"veth2\"\n",
    );
    let keys: Vec<&str> = found.iter().map(|fault| fault.split(": ").next().unwrap_or_default()).collect();
    let expected = [
        "switch.name",
        "switch.port[0].vlan",
        "switch.port[0].name",
        "switch.port[1].vlan",
        "switch.port[1].mirror_to",
        "switch.static_entries",
    ];
    assert_eq!(keys, expected, "{found:#?}");
}

#[test]
fn what_contradicts_controllers_is_said() {
    let of = "[switch]\nname = \"sw0\"\n";
    let ports =
        "[[switch.port]]\nname = \"veth1\"\nnumber = 7\n[[switch.port]]\nname = \"veth2\"\nnumber = 7\n";
    let found = of_switch(&format!(
        "{of}controller = [\"tcp:192.0.2.1\", \"tcp:192.0.2.1:6653\"]\non_exit = \"bridge\"\n\
         listen = [\"tls:[::]:6653\"]\ntls_key = \"key.pem\"\n{ports}"
    ));
    for part in [
        "switch.controller: tcp:192.0.2.1:6653 twice",
        "switch.tls_certificate: tls:[::]:6653 needs it",
        "switch.tls_ca: tls:[::]:6653 needs it",
        "switch.on_exit: with controllers, a bridge would pass what the flows deny",
        "switch.port[1].number: 7 is the number of port veth1 already (port veth2)",
    ] {
        assert!(found.iter().any(|fault| fault.starts_with(part)), "{part}: {found:#?}");
    }
    for may in ["on_exit = \"bridge\"\nfail_mode = \"standalone\"\n", "on_exit = \"keep=30\"\n"] {
        assert_eq!(of_switch(&format!("{of}listen = [\"unix:/run/of\"]\n{may}")), [""; 0]);
    }
    let found = of_switch(&format!("{of}on_exit = \"keep=30\"\n"));
    assert!(found[0].starts_with("switch.on_exit: only OpenFlow flows can go on"), "{found:#?}");
}

#[test]
fn a_port_is_read_as_the_command_line_has_it() {
    let port: SwitchPort = "veth1,mode=trunk,vlans=10+20-30,native=1".parse().unwrap();
    assert_eq!((port.shown_name().as_str(), port.vlans.to_string().as_str()), ("veth1", "10,20-30"));
    for (wrong, why) in [
        ("veth1,vlan", "is no key of a port with its value"),
        ("veth1,name=veth2", "a port has no key `name`"),
        ("veth1,mode=both", "unknown mode 'both'"),
        ("vhost:x", "there is no kind of port `vhost`"),
    ] {
        let said = wrong.parse::<SwitchPort>().unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}
