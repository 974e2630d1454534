//! Users with their groups, as credentials name them.

use twinpath_rpc::auth::{Credential, GIDS_MAX};

/// A number that is no user or group: for system calls it means "no change".
pub const NOBODY_AT_ALL: u32 = u32::MAX;

/// A user, a group, and further groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    groups: [u32; GIDS_MAX as usize],
    count: u8,
}

impl Caller {
    /// A caller without further groups.
    #[must_use]
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: [0; GIDS_MAX as usize], count: 0 }
    }

    /// A caller with further groups; what is beyond 16 is left out.
    #[must_use]
    pub fn with_groups(uid: u32, gid: u32, groups: impl Iterator<Item = u32>) -> Self {
        let mut caller = Self::new(uid, gid);
        for (place, group) in caller.groups.iter_mut().zip(groups) {
            *place = group;
            caller.count += 1;
        }
        caller
    }

    /// Who a credential says that its caller is; `None`: it does not say.
    #[must_use]
    pub fn claimed(credential: &Credential<'_>) -> Option<Self> {
        let Credential::Sys(sys) = credential else { return None };
        Some(Self::with_groups(sys.uid, sys.gid, sys.gids()))
    }

    /// The further groups.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups[..usize::from(self.count)]
    }

    /// Whether it is in a group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }
}
