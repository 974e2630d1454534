//! Who calls: the flavours of authentication served, and their limits (RFC 5531, section 8.2 and appendix A).

/// Bytes of a credential's or verifier's body, at most (RFC 5531, 8.2).
pub const BODY_MAX: u32 = 400;
/// Bytes of the caller's machine name in AUTH_SYS, at most (RFC 5531, appendix A).
pub const MACHINE_NAME_MAX: u32 = 255;
/// Further groups in AUTH_SYS, at most (RFC 5531, appendix A).
pub const GIDS_MAX: u32 = 16;
