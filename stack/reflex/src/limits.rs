//! What a program in the kernel can take.

use twinpath_time::Duration;

/// The longest request that has an entry, bytes of UDP payload.
pub const REQUEST_MAX: usize = 256;

/// The longest reply that is kept, bytes of UDP payload.
pub const REPLY_MAX: usize = 1024;

/// The longest that a reply is kept.
pub const HOLD_MAX: Duration = Duration::from_secs(3600);

/// Most shapes of a service.
pub const SHAPES_MAX: usize = 4;

/// Most ranges of bytes of a request that vary.
pub const VARYING_MAX: usize = 4;

/// Words of 8 bytes of the longest request that has an entry.
pub const REQUEST_WORDS: usize = REQUEST_MAX / 8;
