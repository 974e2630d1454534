//! Groups (sections 5.6 and 7.3.4.2).

use crate::action::Action;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Which buckets of a group a frame goes to (section 5.6.1).
    GroupType: u8 {
        /// All.
        All = 0,
        /// One, chosen by weights.
        Select = 1,
        /// The only one.
        Indirect = 2,
        /// The first whose watched port or group is live.
        FastFailover = 3,
    }
}

/// A bucket of a group (section 7.3.4.2, `ofp_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its share, in a group of type [`GroupType::Select`]; 0 otherwise.
    pub weight: u16,
    /// The port whose state makes it live; [`crate::number::port::ANY`]: none.
    pub watch_port: u32,
    /// The group whose state makes it live; [`crate::number::group::ANY`]: none.
    pub watch_group: u32,
    /// Its actions, as an action set.
    pub actions: Box<[Action]>,
}
