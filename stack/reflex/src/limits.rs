//! Limits of the programs in the kernel.

use twinpath_time::Duration;

/// The longest request that has an entry, bytes of UDP payload.
pub const REQUEST_MAX: usize = 256;

/// The longest reply that is kept, bytes of UDP payload.
pub const REPLY_MAX: usize = 1024;

/// The longest time for which a reply is kept.
pub const HOLD_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of shapes of a service.
pub const SHAPES_MAX: usize = 4;

/// Maximum number of varying byte ranges of a request.
pub const VARYING_MAX: usize = 4;

/// Words of 8 bytes of the longest request that has an entry.
pub const REQUEST_WORDS: usize = REQUEST_MAX / 8;
