//! What a change on one side of an exception port means for the other: a function of what both are now.
//!
//! The interface of the kernel's side stands for the device: it has its address, its MTU and its carrier, and whether it is
//! up is the device's business too. Nothing here is an echo of a notification: both links are read afresh at each step, and
//! what this module itself asked for is what it expects to see next. So mirrors can't chase each other.

use twinpath_bridge::Side;
use twinpath_wire::Mac;

/// What is mirrored of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// MTU in bytes.
    pub mtu: u32,
    /// Link-layer address.
    pub mac: Mac,
    /// Set up by the administrator.
    pub up: bool,
    /// Has carrier, and is up.
    pub running: bool,
}

/// What is to be done about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `ip link set SIDE mtu N`.
    Mtu(Side, u32),
    /// `ip link set SIDE address MAC`.
    Address(Side, Mac),
    /// `ip link set SIDE up`, or `down`.
    Up(Side, bool),
    /// The kernel's interface gets carrier, or loses it.
    Carrier(bool),
}

/// Both sides, as they were when they last agreed, or were found not to.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    port: Option<LinkState>,
    kernel: Option<LinkState>,
    carrier: Option<bool>,
}

impl Sides {
    /// What to do now that the two sides are so; `None` for one that is gone, or out of sight.
    ///
    /// On the side that changed since the last step the administrator has spoken, and the other follows; if both did, the
    /// device has it. A side seen for the first time follows the other, the device's excepted: it is what it is.
    #[must_use]
    pub fn step(&mut self, port: Option<LinkState>, kernel: Option<LinkState>) -> Vec<Action> {
        let mut actions = Vec::new();
        let (mut port_then, mut kernel_then) = (port, kernel);
        if let (Some(port_then), Some(kernel_then)) = (&mut port_then, &mut kernel_then) {
            let (port_seen, kernel_seen) = (self.port, self.kernel);
            let mtu = follow(
                (port_then.mtu, port_seen.map(|seen| seen.mtu)),
                (kernel_then.mtu, kernel_seen.map(|seen| seen.mtu)),
            );
            if let Some((side, mtu)) = mtu {
                actions.push(Action::Mtu(side, mtu));
                (port_then.mtu, kernel_then.mtu) = (mtu, mtu);
            }
            let mac = follow(
                (port_then.mac, port_seen.map(|seen| seen.mac)),
                (kernel_then.mac, kernel_seen.map(|seen| seen.mac)),
            );
            if let Some((side, mac)) = mac {
                actions.push(Action::Address(side, mac));
                (port_then.mac, kernel_then.mac) = (mac, mac);
            }
            match (kernel_seen, port_seen) {
                // A new interface of the kernel's: as the device is.
                (None, _) if kernel_then.up != port_then.up => {
                    actions.push(Action::Up(Side::Kernel, port_then.up));
                    kernel_then.up = port_then.up;
                }
                (None, _) => {}
                // The device is new, or the administrator has set the kernel's interface up or down.
                (Some(seen), seen_port)
                    if (seen.up != kernel_then.up || seen_port.is_none())
                        && kernel_then.up != port_then.up =>
                {
                    actions.push(Action::Up(Side::Port, kernel_then.up));
                    port_then.up = kernel_then.up;
                }
                // The administrator has set the device down or up: that shows as carrier.
                (Some(_), _) => {}
            }
        }
        // Of the device as it is, not as it is to be: what it becomes is seen at the next step.
        let carrier = port.is_some_and(|port| port.up && port.running);
        if self.carrier != Some(carrier) {
            actions.push(Action::Carrier(carrier));
            self.carrier = Some(carrier);
        }
        (self.port, self.kernel) = (port_then, kernel_then);
        actions
    }

    /// The kernel's interface was made anew: nothing is known of it.
    pub const fn kernel_is_new(&mut self) {
        (self.kernel, self.carrier) = (None, None);
    }

    /// An action was refused; `now` is what the link on that side is. Says what follows.
    #[must_use]
    pub const fn refused(&mut self, action: Action, now: Option<LinkState>) -> Option<Action> {
        let Some(now) = now else { return None };
        match action {
            // The device can't: then the kernel must not believe it.
            Action::Mtu(Side::Port, _) => {
                self.port = Some(now);
                if let Some(kernel) = &mut self.kernel {
                    kernel.mtu = now.mtu;
                }
                Some(Action::Mtu(Side::Kernel, now.mtu))
            }
            // The two differ from here on, until one of them changes. Frames pass all the same: the device listens to every
            // address.
            Action::Address(Side::Port, _) | Action::Up(Side::Port, _) => {
                self.port = Some(now);
                None
            }
            Action::Mtu(Side::Kernel, _) | Action::Address(Side::Kernel, _) | Action::Up(Side::Kernel, _) => {
                self.kernel = Some(now);
                None
            }
            Action::Carrier(_) => {
                self.carrier = None;
                None
            }
        }
    }
}

/// Who follows whom, and where to: each side as `(now, when last seen)`.
fn follow<T: PartialEq + Copy>(port: (T, Option<T>), kernel: (T, Option<T>)) -> Option<(Side, T)> {
    if port.0 == kernel.0 {
        return None;
    }
    let changed = |(now, seen): (T, Option<T>)| seen != Some(now);
    let kernel_is_new = kernel.1.is_none();
    if changed(port) || kernel_is_new {
        Some((Side::Kernel, port.0))
    } else if changed(kernel) {
        Some((Side::Port, kernel.0))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
