//! Names that people give to services and switches.

/// Maximum length of such a name, bytes: it is part of the names of sockets, and a label of metrics.
pub const NAME_MAX: usize = 32;

/// Whether it is a valid name: 1 to [`NAME_MAX`] letters, digits, `-`, `_` or `.`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain)
}
