use super::*;

fn read(text: &str) -> Result<Filter, FilterError> {
    text.parse()
}

/// What is said of a filter, and the word that is pointed at.
fn fault(text: &str) -> (String, String) {
    let error = read(text).unwrap_err();
    (error.what.clone(), error.text[error.at..error.at + error.len].to_owned())
}

#[test]
fn an_error_points_at_the_word() {
    for (text, what, word) in [
        ("udp dst prt 53", "`host`, `port`, `net` or an address expected", "prt"),
        ("port 70000", "`70000` is no port", "70000"),
        ("host example.org", "`example.org` is no address", "example.org"),
        ("net 10.7.0.0/33", "`10.7.0.0/33` is no net", "10.7.0.0/33"),
        ("net 10.7.0.1/24", "`10.7.0.1/24` has bits beyond its prefix", "10.7.0.1/24"),
        ("arp port 7", "arp has no ports", "port"),
        ("ip6 host 10.0.0.1", "an IPv6 address expected", "10.0.0.1"),
        ("udp host 10.0.0.1", "no addresses belong to udp", "10.0.0.1"),
        ("ether proto 0x5", "`0x5` is no EtherType", "0x5"),
        ("ether src 1", "`proto` expected, not `src`", "src"),
        ("udp tcp", "`and`, `or` or the end expected", "tcp"),
        ("(udp or tcp", "`)`, `and` or `or` expected at the end", ""),
        ("udp and", "a condition (udp", ""),
        ("udp) or tcp", "`and`, `or` or the end expected", ")"),
        ("not", "a condition (udp", ""),
        ("grüße", "a condition (udp", "grüße"),
    ] {
        let (said, pointed) = fault(text);
        assert!(said.starts_with(what), "{text}: {said}");
        assert_eq!(pointed, word, "{text}");
    }
    let shown = read("udp dst prt 53").unwrap_err().to_string();
    assert!(shown.ends_with("\n  udp dst prt 53\n          ^^^"), "{shown}");
}

#[test]
fn size_and_depth_are_bounded() {
    let many = |count| vec!["udp"; count].join(" or ");
    assert!(read(&many(CONDITIONS_MAX)).is_ok());
    assert!(fault(&many(CONDITIONS_MAX + 1)).0.contains("more than 64 conditions"));
    assert!(fault(&"(".repeat(4000)).0.contains("within each other"));
    assert!(fault(&"not ".repeat(1000)).0.contains("within each other"));
    assert!(fault(&"ü".repeat(4000)).0.contains("longer than 4096"));
}

#[test]
fn nothing_wants_everything() {
    assert!(read("").unwrap().is_everything() && read("  ").unwrap().wants(&[]));
    assert!(!read("not udp").unwrap().wants(&[]), "as in tcpdump: what ends early is not wanted");
}
