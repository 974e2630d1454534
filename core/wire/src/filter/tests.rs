use super::*;

fn read(text: &str) -> Result<Filter, FilterError> {
    text.parse()
}

/// The message of the error, and the word it points at.
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
        ("vlan 4096", "`4096` is no VLAN", "4096"),
        ("vlan of 7", "`and`, `or` or the end expected", "of"),
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
fn arbitrary_texts_and_frames_cause_no_panic() {
    let words = [
        "udp",
        "tcp",
        "ip6",
        "arp",
        "ether",
        "proto",
        "vlan",
        "src",
        "dst",
        "host",
        "port",
        "net",
        "and",
        "or",
        "not",
        "(",
        ")",
        "!",
        "&&",
        "||",
        "7",
        "0x88b5",
        "10.0.0.1",
        "10.0.0.0/8",
        "fd00::1",
        "::/0",
        "ä",
        "/",
        "\u{85}",
        "99999",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut understood = 0;
    for _ in 0..50_000 {
        let count = rng.usize(0..9);
        let text: Vec<_> = (0..count).map(|_| words[rng.usize(0..words.len())]).collect();
        let text = text.join(if rng.u8(..) < 200 { " " } else { "" });
        match read(&text) {
            Ok(filter) => {
                understood += 1;
                let frame: Vec<u8> = (0..rng.usize(0..70)).map(|_| rng.u8(..)).collect();
                let _ = filter.wants(&frame, rng.bool().then(|| rng.u16(..)));
            }
            // The carets, too, start at a character boundary.
            Err(error) => assert!(error.to_string().contains('^'), "{text}"),
        }
    }
    assert!(understood > 1_000, "{understood}");
}

#[test]
fn an_empty_filter_matches_everything() {
    assert!(read("").unwrap().is_everything() && read("  ").unwrap().wants(&[], None));
    assert!(!read("not udp").unwrap().wants(&[], None), "as in tcpdump: what ends early is not wanted");
}

#[test]
fn tests_see_what_is_behind_the_outermost_tag_wherever_it_is() {
    const UDP: [u8; 26] =
        [8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 7];
    let behind = |tags: &[[u8; 4]]| [&[0; 12][..], tags.as_flattened(), &UDP].concat();
    let (customer, service, early) = ([0x81, 0, 0, 5], [0x88, 0xa8, 0x20, 6], [0x91, 0, 0, 7]);
    for (tags, wanted, unwanted) in [
        (vec![], vec!["udp", "not vlan", "udp and not vlan"], vec!["vlan", "vlan 0"]),
        (
            vec![customer],
            vec!["udp", "vlan", "vlan 5", "vlan 5 and udp port 7"],
            vec!["vlan 6", "vlan and vlan"],
        ),
        (vec![service], vec!["udp", "vlan", "vlan 6", "vlan and udp"], vec!["vlan 5", "ether proto 0x88a8"]),
        (
            vec![service, customer],
            vec![
                "ether proto 0x8100",
                "vlan 6 and vlan 5",
                "vlan 6 and vlan 5 and udp",
                "vlan and ether proto 0x8100",
            ],
            vec!["udp", "vlan 5", "vlan 6 and udp"],
        ),
        (vec![early], vec!["vlan 7", "vlan and udp", "ether proto 0x9100"], vec!["udp", "vlan 5"]),
        (vec![customer, early], vec!["vlan 5 and vlan 7 and port 7"], vec!["vlan and udp", "vlan 7"]),
    ] {
        let frame = behind(&tags);
        let (rest, beside) = outermost_beside(&frame);
        for (texts, is_wanted) in [(wanted, true), (unwanted, false)] {
            for text in texts {
                let filter = read(text).unwrap();
                assert_eq!(filter.wants(rest, beside), is_wanted, "`{text}`, {tags:02x?}");
            }
        }
    }
    // A tag that is cut off stays where it is.
    for len in 0..16 {
        let frame = behind(&[customer]);
        assert_eq!(outermost_beside(&frame[..len]), (&frame[..len], None));
    }
}
