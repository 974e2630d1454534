use twinpath_service::Echo;
use twinpath_wire::{FlowKey, Protocol};

use super::*;

fn served(port: u16, addresses: &[&str]) -> Served {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Served::new().with_port(Protocol::Udp, port, &addresses)
}

/// The headers of a datagram to the address and port `to`.
fn datagram(to: &str) -> Vec<u8> {
    let to: std::net::SocketAddr = to.parse().unwrap();
    let mut frame = vec![0; 14];
    match to.ip() {
        IpAddr::V4(v4) => {
            frame[12..].copy_from_slice(&[8, 0]);
            // An IPv4 header with one word of options, so that the UDP ports come later.
            frame.extend([0x46, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
            frame.extend(v4.octets());
            frame.extend([1; 4]);
        }
        IpAddr::V6(v6) => {
            frame[12..].copy_from_slice(&[0x86, 0xdd]);
            frame.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
            frame.extend([0; 16]);
            frame.extend(v6.octets());
        }
    }
    frame.extend([0x12, 0x34]);
    frame.extend(to.port().to_be_bytes());
    frame
}

#[test]
fn frames_go_to_the_service_whose_port_address_flow_or_type_they_are_for() {
    let flow = |to: &str| FlowKey::new(Protocol::Udp, "192.0.2.9:5".parse().unwrap(), to.parse().unwrap());
    let (echo, here, there) =
        (served(7, &[]), served(9, &["192.0.2.1"]), served(9, &["192.0.2.2", "2001:db8::2"]));
    let flows = Served::new().with_flows(&[flow("192.0.2.3:9"), flow("192.0.2.3:10")]);
    let frames = Served::new().with_ethertype(Some(0x88b5));
    let routes = Routes::of([(0, &echo), (1, &here), (2, &there), (3, &flows), (5, &frames)]);
    let part = |to: &str| routes.part_for(&datagram(to));
    assert_eq!((part("192.0.2.1:7"), part("[2001:db8::2]:7")), (Some(0), Some(0)));
    assert_eq!(
        (part("192.0.2.1:9"), part("192.0.2.2:9"), part("[2001:db8::2]:9")),
        (Some(1), Some(2), Some(2))
    );
    assert_eq!((part("192.0.2.3:9"), part("192.0.2.3:10"), part("192.0.2.4:9")), (Some(3), Some(3), None));
    assert_eq!(part("192.0.2.1:8"), None);
    let mut segment = datagram("192.0.2.1:7");
    segment[23] = Protocol::Tcp.number();
    assert_eq!(routes.part_for(&segment), None, "the port is served over UDP only");
    // While one service replaces another, the one named first gets what both serve.
    let both = Routes::of([(0, &echo), (1, &here), (6, &echo), (7, &here), (8, &served(8, &[]))]);
    let part = |to: &str| both.part_for(&datagram(to));
    assert_eq!((part("192.0.2.1:7"), part("192.0.2.1:9"), part("192.0.2.1:8")), (Some(0), Some(1), Some(8)));
    let mut bare = datagram("192.0.2.1:7");
    bare[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(routes.part_for(&bare), Some(5));
    // A truncated frame causes no panic.
    for whole in [datagram("192.0.2.2:9"), datagram("[2001:db8::2]:9")] {
        assert!((0..whole.len()).all(|len| routes.part_for(&whole[..len]).is_none()));
    }
}

#[test]
fn a_single_service_needs_no_tokens_of_its_own() {
    let engine = || {
        let config = crate::ServeConfig {
            served: Arc::default(),
            addresses: [].into(),
            reply_rate: 0,
            any_source_port: false,
            keeper: None,
            fast_tcp: None,
            kernel: crate::KernelSide::default(),
        };
        ServicePart::new(ServeEngine::new(Echo, config, Arc::default()), Arc::default())
    };
    let demux = Demux::new(Routes::of([])).with(0, engine());
    assert!(demux.is_single(0));
    let demux = demux.with(3, engine());
    assert_eq!(demux.used, [0, 3]);
    assert!(!demux.is_single(0));
}
