//! Replaces the rpcbind client in a program built without the feature `rpcbind`, which has no ONC RPC
//! service to register.

use crate::rpcbind::Registration;

/// No registrations.
#[derive(Debug, Default)]
pub struct Registered(());

impl Registered {
    /// Registers nothing.
    pub async fn set(_: &[Registration]) -> Self {
        Self(())
    }

    /// Looks for nothing.
    pub const fn look_again(&self) {}

    /// Removes nothing.
    pub async fn unset(self) {}
}
