//! Why a reply is not kept, and why a request has no kept reply. Both lists are closed; names are stable, for `show` and
//! metrics.

/// Why a request was not answered by a kept reply. If several reasons apply, for several shapes, the last one in
/// this order is reported: it is the closest to a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WhyNot {
    /// The request is longer than any that has an entry.
    RequestTooLong,
    /// There is no entry for it.
    Unknown,
    /// There is an entry, but it has been kept for as long as it may be.
    Expired,
    /// There is an entry, but what it was made from has changed.
    Withdrawn,
}

impl WhyNot {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::RequestTooLong, Self::Unknown, Self::Expired, Self::Withdrawn];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestTooLong => "request_too_long",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// Why a reply was not kept. Its request is answered as any other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum NotKept {
    /// The service has not named this shape.
    #[error("the service has not named this shape at its start: it can only use those")]
    Shape,
    /// The request has more bytes than an entry can have.
    #[error("the request has more than {} bytes", crate::REQUEST_MAX)]
    RequestTooLong,
    /// The request has fewer bytes than its shape speaks of.
    #[error("the request ends before the bytes that vary do")]
    RequestTooShort,
    /// The reply has more bytes than an entry can have.
    #[error("the reply has more than {} bytes", crate::REPLY_MAX)]
    ReplyTooLong,
    /// The reply does not repeat what its shape says.
    #[error("the reply does not have the request's bytes where the shape says that they are copied")]
    Copy,
    /// It would hold for no time.
    #[error("it is to be kept for no time")]
    Expired,
    /// What it was made from has changed meanwhile.
    #[error("what the reply was made from has changed meanwhile")]
    Withdrawn,
    /// The service has written to the request, which is what the reply would be found by.
    #[error("the service may have changed the request before it answered: Datagram::buffer() was called")]
    RequestChanged,
    /// Another worker is writing to the same part of the table.
    #[error("another worker is writing to the same part of the table")]
    Busy,
}

impl NotKept {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::Shape,
        Self::RequestTooLong,
        Self::RequestTooShort,
        Self::ReplyTooLong,
        Self::Copy,
        Self::Expired,
        Self::Withdrawn,
        Self::RequestChanged,
        Self::Busy,
    ];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::RequestTooLong => "request_too_long",
            Self::RequestTooShort => "request_too_short",
            Self::ReplyTooLong => "reply_too_long",
            Self::Copy => "copy",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::RequestChanged => "request_changed",
            Self::Busy => "busy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_the_lists_and_names_differ() {
        assert!(WhyNot::ALL.iter().enumerate().all(|(place, why)| *why as usize == place));
        assert!(NotKept::ALL.iter().enumerate().all(|(place, why)| *why as usize == place));
        let names: std::collections::BTreeSet<_> = NotKept::ALL.iter().map(|why| why.name()).collect();
        assert_eq!(names.len(), NotKept::ALL.len());
        let names: std::collections::BTreeSet<_> = WhyNot::ALL.iter().map(|why| why.name()).collect();
        assert_eq!(names.len(), WhyNot::ALL.len());
    }
}
