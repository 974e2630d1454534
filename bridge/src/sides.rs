//! Decides which changes the other side of an exception port needs, as a function of both links' present state.
//!
//! The kernel's interface represents the device: it has the device's address, MTU and carrier, and both are up or down
//! together. Decisions are not based on notifications: both links are read at each step, and compared with what this
//! module asked for. So the two sides cannot start an endless exchange of changes.

use twinpath_wire::Mac;

use crate::engine::Side;

/// The mirrored properties of a link.
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

/// A change to one side.
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

/// Both sides as they were when they last agreed, or were last seen to differ.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    port: Option<LinkState>,
    kernel: Option<LinkState>,
    carrier: Option<bool>,
}

impl Sides {
    /// Returns the changes that are needed now; `None` for a side that is gone, or not visible.
    ///
    /// If one side has changed since the last step, its administrator changed it, and the other side follows; if both
    /// have changed, the device has priority. A side that is seen for the first time follows the other, except for the
    /// device, which is not changed.
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
                // A new kernel's interface gets the device's state.
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
                // The administrator has set the device up or down: that is mirrored as carrier.
                (Some(_), _) => {}
            }
        }
        // From the device's present state, not the requested one, which is seen at the next step.
        let carrier = port.is_some_and(|port| port.up && port.running);
        if self.carrier != Some(carrier) {
            actions.push(Action::Carrier(carrier));
            self.carrier = Some(carrier);
        }
        (self.port, self.kernel) = (port_then, kernel_then);
        actions
    }

    /// The kernel's interface was created again: its former state is forgotten.
    pub const fn kernel_is_new(&mut self) {
        (self.kernel, self.carrier) = (None, None);
    }

    /// An action was refused; `now` is the state of that link. Returns the change that follows.
    #[must_use]
    pub const fn refused(&mut self, action: Action, now: Option<LinkState>) -> Option<Action> {
        let Some(now) = now else { return None };
        match action {
            // The device cannot do it, so the kernel's interface must not pretend it.
            Action::Mtu(Side::Port, _) => {
                self.port = Some(now);
                if let Some(kernel) = &mut self.kernel {
                    kernel.mtu = now.mtu;
                }
                Some(Action::Mtu(Side::Kernel, now.mtu))
            }
            // The two differ from here on, until one of them changes. Frames pass anyway, because the
            // device accepts every address.
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

/// Decides which side follows, and the value: each side as `(now, when last seen)`.
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
