use super::*;

const MAC_A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
const MAC_B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);
const MAC_C: Mac = Mac([2, 0, 0, 0, 0, 0xc]);

const fn link(mtu: u32, mac: Mac, up: bool, running: bool) -> LinkState {
    LinkState { mtu, mac, up, running }
}

/// Two simulated links.
#[derive(Clone, Copy, Debug)]
struct World {
    port: Option<LinkState>,
    kernel: Option<LinkState>,
    /// Maximum MTU of the device.
    port_mtu_max: u32,
    /// Whether the device's cable is connected.
    cable: bool,
}

impl World {
    fn new() -> (Self, Sides) {
        let port = link(1500, MAC_A, true, true);
        let kernel = link(1500, MAC_C, false, false);
        (Self { port: Some(port), kernel: Some(kernel), port_mtu_max: 9000, cable: true }, Sides::default())
    }

    fn side(&mut self, side: Side) -> &mut LinkState {
        match side {
            Side::Port => self.port.as_mut(),
            Side::Kernel => self.kernel.as_mut(),
        }
        .expect("actions are for links that are there")
    }

    /// Applies one action; `false` if the link refuses.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Mtu(Side::Port, mtu) if mtu > self.port_mtu_max => return false,
            Action::Mtu(side, mtu) => self.side(side).mtu = mtu,
            Action::Address(side, mac) => self.side(side).mac = mac,
            Action::Up(side, up) => self.side(side).up = up,
            Action::Carrier(_) => {}
        }
        if let Some(port) = &mut self.port {
            port.running = port.up && self.cable;
        }
        true
    }

    /// Steps until nothing is left to do; returns every action applied.
    fn settle(&mut self, sides: &mut Sides) -> Vec<Action> {
        let mut taken = Vec::new();
        for _ in 0..8 {
            let actions = sides.step(self.port, self.kernel);
            if actions.is_empty() {
                return taken;
            }
            for action in actions {
                taken.push(action);
                if !self.act(action)
                    && let Some(back) = sides.refused(action, self.port)
                {
                    taken.push(back);
                    assert!(self.act(back));
                }
            }
        }
        panic!("still not settled: {taken:?}");
    }
}

#[test]
fn at_the_start_the_kernels_interface_takes_after_the_device_which_stays_as_it_is() {
    let (mut world, mut sides) = World::new();
    world.port = Some(link(1400, MAC_A, true, true));
    let taken = world.settle(&mut sides);
    assert_eq!(
        taken,
        [
            Action::Mtu(Side::Kernel, 1400),
            Action::Address(Side::Kernel, MAC_A),
            Action::Up(Side::Kernel, true),
            Action::Carrier(true)
        ]
    );
    let (mut down, mut sides) = World::new();
    down.port = Some(link(1500, MAC_A, false, false));
    let taken = down.settle(&mut sides);
    assert_eq!(taken, [Action::Address(Side::Kernel, MAC_A), Action::Carrier(false)]);
}

#[test]
fn a_change_on_either_side_goes_to_the_other_once() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    world.side(Side::Kernel).mtu = 1300;
    assert_eq!(world.settle(&mut sides), [Action::Mtu(Side::Port, 1300)]);
    world.side(Side::Port).mtu = 1400;
    assert_eq!(world.settle(&mut sides), [Action::Mtu(Side::Kernel, 1400)]);
    world.side(Side::Kernel).mac = MAC_B;
    assert_eq!(world.settle(&mut sides), [Action::Address(Side::Port, MAC_B)]);
    world.side(Side::Port).mac = MAC_A;
    assert_eq!(world.settle(&mut sides), [Action::Address(Side::Kernel, MAC_A)]);
}

#[test]
fn when_both_change_at_once_the_device_has_it() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    world.side(Side::Kernel).mtu = 1300;
    world.side(Side::Port).mtu = 1400;
    assert_eq!(world.settle(&mut sides), [Action::Mtu(Side::Kernel, 1400)]);
    world.side(Side::Kernel).mtu = 1280;
    world.side(Side::Port).mtu = 1280;
    assert_eq!(world.settle(&mut sides), []);
}

#[test]
fn what_the_device_refuses_the_kernel_does_not_keep() {
    let (mut world, mut sides) = World::new();
    world.port_mtu_max = 2000;
    world.settle(&mut sides);
    world.side(Side::Kernel).mtu = 9000;
    assert_eq!(world.settle(&mut sides), [Action::Mtu(Side::Port, 9000), Action::Mtu(Side::Kernel, 1500)]);
    assert_eq!((world.port.unwrap().mtu, world.kernel.unwrap().mtu), (1500, 1500));
}

#[test]
fn the_kernels_interface_down_is_a_device_going_dark_and_back() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    world.side(Side::Kernel).up = false;
    assert_eq!(world.settle(&mut sides), [Action::Up(Side::Port, false), Action::Carrier(false)]);
    world.side(Side::Kernel).up = true;
    assert_eq!(world.settle(&mut sides), [Action::Up(Side::Port, true), Action::Carrier(true)]);
}

#[test]
fn the_device_down_is_a_cable_pulled_and_plugged() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    *world.side(Side::Port) = link(1500, MAC_A, false, false);
    assert_eq!(world.settle(&mut sides), [Action::Carrier(false)]);
    assert!(world.kernel.unwrap().up, "addresses and routes stay");
    *world.side(Side::Port) = link(1500, MAC_A, true, true);
    assert_eq!(world.settle(&mut sides), [Action::Carrier(true)]);
    (world.cable, world.side(Side::Port).running) = (false, false);
    assert_eq!(world.settle(&mut sides), [Action::Carrier(false)]);
}

#[test]
fn a_device_that_comes_back_is_taken_as_it_is_but_for_being_up() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    world.port = None;
    assert_eq!(world.settle(&mut sides), [Action::Carrier(false)]);
    world.port = Some(link(1400, MAC_B, false, false));
    assert_eq!(
        world.settle(&mut sides),
        [
            Action::Mtu(Side::Kernel, 1400),
            Action::Address(Side::Kernel, MAC_B),
            Action::Up(Side::Port, true),
            Action::Carrier(true)
        ]
    );
}

#[test]
fn an_interface_made_anew_gets_everything_again() {
    let (mut world, mut sides) = World::new();
    world.settle(&mut sides);
    world.kernel = None;
    sides.kernel_is_new();
    assert_eq!(world.settle(&mut sides), [Action::Carrier(true)]);
    world.kernel = Some(link(1500, MAC_C, false, false));
    sides.kernel_is_new();
    assert_eq!(
        world.settle(&mut sides),
        [Action::Address(Side::Kernel, MAC_A), Action::Up(Side::Kernel, true), Action::Carrier(true)]
    );
}

#[test]
fn whatever_administrators_do_the_sides_settle_and_agree() {
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut world, mut sides) = World::new();
        world.port_mtu_max = 1_600;
        world.settle(&mut sides);
        for _ in 0..20 {
            for _ in 0..random.usize(1..4) {
                let side = if random.bool() { Side::Port } else { Side::Kernel };
                match random.u8(0..4) {
                    // The device's own limit also applies to its administrator.
                    0 if side == Side::Port => world.side(side).mtu = random.u32(1_280..1_600),
                    0 => world.side(side).mtu = random.u32(1_280..2_000),
                    1 => world.side(side).mac = [MAC_A, MAC_B, MAC_C][random.usize(0..3)],
                    2 => world.side(side).up = random.bool(),
                    _ => world.cable = random.bool(),
                }
                let port = world.side(Side::Port);
                port.running = port.up;
                let cable = world.cable;
                world.side(Side::Port).running &= cable;
            }
            world.settle(&mut sides);
            let (port, kernel) = (world.port.unwrap(), world.kernel.unwrap());
            assert_eq!((port.mtu, port.mac), (kernel.mtu, kernel.mac), "seed {seed}");
            assert_eq!(sides.carrier, Some(port.up && port.running), "seed {seed}");
        }
    }
}
