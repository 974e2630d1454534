//! Which configurations are refused, and what is listed for each VLAN.

use twinpath_wire::Mac;

use super::*;

const STATION: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn access(number: u16, vlan: u16) -> PortConfig {
    PortConfig { mode: Mode::Access { vlan }, ..PortConfig::new(number) }
}

fn trunk(number: u16, native: Option<u16>, vlans: impl IntoIterator<Item = u16>) -> PortConfig {
    PortConfig { mode: Mode::Trunk { native, vlans: vlans.into_iter().collect() }, ..PortConfig::new(number) }
}

fn of(ports: Vec<PortConfig>) -> SwitchConfig {
    SwitchConfig { vlans: true, ports, ..SwitchConfig::default() }
}

fn refused(config: SwitchConfig) -> ConfigError {
    Snapshot::compile(config).expect_err("refused")
}

#[test]
fn what_is_wrong_is_said_with_its_port() {
    assert_eq!(refused(of(vec![access(4095, 1)])), ConfigError::PortNumber(4095));
    assert_eq!(refused(of(vec![access(3, 1), access(3, 2)])), ConfigError::PortTwice(3));
    for vlan in [0, 4095] {
        assert_eq!(refused(of(vec![access(3, vlan)])), ConfigError::Vlan { port: 3, vlan });
        assert_eq!(refused(of(vec![trunk(3, Some(vlan), [1])])), ConfigError::Vlan { port: 3, vlan });
    }
    assert_eq!(refused(of(vec![trunk(3, None, [0, 4095])])), ConfigError::EmptyTrunk(3));
    let mirror = |target| PortConfig { mirror_egress: Some(target), ..access(3, 1) };
    for target in [3, 4] {
        assert_eq!(refused(of(vec![mirror(target)])), ConfigError::Mirror { port: 3, target });
    }
    let ageing = Duration::from_secs(9);
    assert_eq!(refused(SwitchConfig { ageing, ..of(Vec::new()) }), ConfigError::Ageing(ageing));
    let guard = LoopGuard { moves_per_s: 0, ..LoopGuard::default() };
    assert_eq!(
        refused(SwitchConfig { loop_guard: Some(guard), ..of(Vec::new()) }),
        ConfigError::LoopMoves(0)
    );
}

#[test]
fn a_static_entry_is_of_one_station_on_a_port_of_its_vlan() {
    let with = |vlans, entries: &[(Mac, u16, u16)]| {
        let entry = |(mac, vlan, port): &(Mac, u16, u16)| StaticEntry { mac: *mac, vlan: *vlan, port: *port };
        let static_entries = entries.iter().map(entry).collect();
        Snapshot::compile(SwitchConfig { vlans, static_entries, ..of(vec![access(3, 7)]) }).map(|_| ())
    };
    assert_eq!(with(true, &[(STATION, 7, 3)]), Ok(()));
    assert_eq!(with(false, &[(STATION, 0, 3)]), Ok(()));
    for (vlans, vlan, port) in [(true, 8, 3), (true, 7, 4), (true, 0, 3), (false, 7, 3), (false, 0, 4)] {
        let wrong = ConfigError::StaticPort { mac: STATION, vlan, port };
        assert_eq!(with(vlans, &[(STATION, vlan, port)]), Err(wrong));
    }
    for mac in [Mac::BROADCAST, Mac([0; 6])] {
        assert_eq!(with(true, &[(mac, 7, 3)]), Err(ConfigError::StaticAddress(mac)));
    }
    let twice = ConfigError::StaticTwice { mac: STATION, vlan: 7 };
    assert_eq!(with(true, &[(STATION, 7, 3), (STATION, 7, 3)]), Err(twice));
}

#[test]
fn each_vlan_has_its_ports_and_equal_ones_share_a_list() {
    let ports = vec![
        access(1, 10),
        trunk(2, Some(10), [20, 30]),
        PortConfig { flood: false, ..trunk(4094, None, 1..=4094) },
        PortConfig { mode: Mode::Monitor, ..PortConfig::new(5) },
    ];
    let snapshot = Snapshot::compile(of(ports.clone())).expect("right");
    let group = |vlan| snapshot.flood(vlan).group.iter().map(|member| member.port).collect::<Vec<_>>();
    let unknown = |vlan| snapshot.flood(vlan).unknown.iter().map(|member| member.port).collect::<Vec<_>>();
    assert_eq!((group(10), unknown(10)), (vec![1, 2, 4094], vec![1, 2]));
    assert_eq!((group(20), unknown(20)), (vec![2, 4094], vec![2]));
    assert_eq!((group(30), group(40), group(0)), (vec![2, 4094], vec![4094], vec![]));
    assert_eq!(snapshot.floods.len(), 4);

    let without = Snapshot::compile(SwitchConfig { vlans: false, ..of(ports) }).expect("right");
    let all: Vec<_> = without.flood(0).group.iter().map(|member| member.port).collect();
    assert_eq!(all, [1, 2, 4094]);
    assert!(
        without.member(1, 0).is_some() && without.member(5, 0).is_none() && without.member(6, 0).is_none()
    );
}
