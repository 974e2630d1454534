//! The numbers of ports: those that are configured, and for the others the next that are free.

use std::collections::HashMap;

use twinpath_config::{PortName, SwitchPort};
use twinpath_forwarding::learning::PORT_MAX;

use super::Switching;
use crate::kinds::OpenError;

impl Switching {
    /// A number for each of these ports, which are to be made: the one that is configured, or one that no port has, nor
    /// any of these. Numbers are not used again soon, so that a frame under way is not taken for another port's.
    pub(super) fn numbers_for(&mut self, wanted: &[(PortName, SwitchPort)]) -> Vec<Result<u16, OpenError>> {
        let mut used: HashMap<u16, PortName> =
            self.ports.iter().map(|port| (port.number, port.name.clone())).collect();
        let mut numbers = Vec::with_capacity(wanted.len());
        for (name, config) in wanted {
            let number = config.number.map(|number| number as u16);
            numbers.push(number.map(|number| match used.get(&number) {
                Some(by) => Err(OpenError::NumberTaken { number, by: by.clone() }),
                None => Ok(*used.entry(number).insert_entry(name.clone()).key()),
            }));
        }
        // OpenFlow has no port 0.
        let least = if self.openflow.is_some() { 1 } else { 0 };
        let each = numbers.into_iter().zip(wanted);
        each.map(|(number, (name, _))| {
            number.unwrap_or_else(|| {
                let next = (1..=PORT_MAX + 1).map(|next| (self.last_number + next) % (PORT_MAX + 1));
                let free = next.filter(|next| *next >= least).find(|next| !used.contains_key(next));
                let free = free.ok_or(OpenError::Numbers)?;
                used.insert(free, name.clone());
                self.last_number = free;
                Ok(free)
            })
        })
        .collect()
    }
}
