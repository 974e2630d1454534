use super::*;

fn read(bytes: &[u8], beside: Option<u16>) -> Option<(Key, Layout)> {
    let (mut key, mut layout) = (Key::default(), Layout::default());
    parse(bytes, beside, &Ingress::default(), &mut key, &mut layout)?;
    Some((key, layout))
}

/// Addresses, two tags, and an IPv4 packet with TCP.
fn frame() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0xa8, 0x20, 5, 0x81, 0, 0x40, 6, 8, 0];
    bytes.extend([0x45, 0x28, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 1, 0]);
    bytes.extend([0; 16]);
    bytes
}

#[test]
fn the_outer_tag_is_the_one_beside_the_bytes() {
    let of = |key: Key, place: key::Place, mask: u64| key.0[place.word] >> place.shift & mask;
    let (among, _) = read(&frame(), None).expect("whole");
    assert_eq!((of(among, key::VLAN_VID, 0x1fff), of(among, key::VLAN_PCP, 7)), (0x1005, 1));
    let (beside, layout) = read(&frame(), Some(0xe007)).expect("whole");
    assert_eq!((of(beside, key::VLAN_VID, 0x1fff), of(beside, key::VLAN_PCP, 7)), (0x1007, 7));
    assert_eq!((layout.type_at, layout.l3_at, layout.l4_at, layout.ip_end), (20, 22, 42, 62));
    assert_eq!(of(beside, key::L4_FIRST, 0xffff), 80);
}

#[test]
fn a_header_that_is_cut_off_is_not_there() {
    let bytes = frame();
    for len in 0..bytes.len() {
        let layers = read(&bytes[..len], None).map(|(_, layout)| layout.layers);
        match len {
            0..14 => assert_eq!(layers, None),
            14..18 => assert_eq!(layers, Some(Layers::NONE), "{len}"),
            18..42 => assert!(!layers.expect("an Ethernet header").has(Layers::IP), "{len}"),
            _ => assert!(!layers.expect("an Ethernet header").has(Layers::TCP), "{len}"),
        }
    }
}

#[test]
fn only_the_first_fragment_has_ports() {
    let mut bytes = frame();
    bytes[28] = 0x20;
    let (_, first) = read(&bytes, None).expect("whole");
    assert!(first.is_fragment && first.has(Layers::TCP));
    bytes[29] = 1;
    let (_, later) = read(&bytes, None).expect("whole");
    assert!(later.is_fragment && later.has(Layers::IPV4) && !later.has(Layers::TCP));
}

#[test]
fn frames_with_a_length_have_the_type_of_snap_or_else_none() {
    let of = |bytes: &[u8]| {
        let (key, layout) = read(bytes, None).expect("whole");
        (key.0[0] >> key::ETH_TYPE.shift, layout.layers)
    };
    let snap = |length: u16, snap: &[u8]| {
        let mut bytes = frame();
        let ip = bytes.split_off(22);
        bytes.truncate(20);
        bytes.extend(length.to_be_bytes());
        bytes.extend(snap);
        bytes.extend(ip);
        bytes
    };
    let ipv4 = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let (ethertype, layers) = of(&snap(48, &ipv4));
    assert!(
        ethertype == 0x800 && layers.has(Layers::IPV4) && layers.has(Layers::TCP) && layers.has(Layers::TAG)
    );
    assert_eq!(of(&snap(0x5ff, &ipv4)).0, 0x800);
    // Spanning tree, another organisation's SNAP, and one whose type is none.
    for llc in
        [&[0x42, 0x42, 3][..], &[0xaa, 0xaa, 3, 0, 0, 0xc, 0x20, 0], &[0xaa, 0xaa, 3, 0, 0, 0, 5, 0xff]]
    {
        assert_eq!(of(&snap(48, llc)), (0x5ff, Layers::TAG), "{llc:x?}");
    }
    assert_eq!(of(&snap(48, &[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0x47])), (0x8847, Layers::TAG));
    let cut = snap(48, &ipv4);
    assert_eq!(of(&cut[..29]).0, 0x5ff, "SNAP's type is cut off");
}
