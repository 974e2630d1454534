//! A switch whose frames OpenFlow's tables judge.

use twinpath_pipeline::Pipeline;

use super::*;

/// A switch with access ports of VLAN 1 of these numbers, and control's end of its tables.
fn tables(ports: usize) -> (Pipeline, Rig) {
    let mut pipeline = Pipeline::new(1, [3, 4]);
    pipeline.set_ports((1..=ports as u32).map(twinpath_pipeline::Port::new).collect());
    let worker = pipeline.worker(0).expect("one worker");
    let rig = rig_with(&vec![access(1); ports], &vec![true; ports], Some(worker));
    (pipeline, rig)
}

#[test]
fn a_version_is_in_force_at_once_and_the_former_one_goes_back() {
    let (mut pipeline, mut rig) = tables(2);
    let first = pipeline.publish().expect("ports were set");
    let first_number = first.number();
    rig.tell(SwitchCommand::Tables(first));
    let [SwitchEvent::TablesAdopted { version, former }] = &rig.told()[..] else { panic!("one event") };
    assert_eq!((*version, former.number()), (first_number, first_number - 1));
}
