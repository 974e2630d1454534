//! A reply that is to be kept, and the request that it answers.

use std::sync::atomic::AtomicU64;

use twinpath_time::Instant;

use crate::limits::{REPLY_MAX, REQUEST_MAX, SHAPES_MAX};
use crate::name::{GENERATIONS, Version};
use crate::shape::Shape;
use crate::why_not::NotKept;

/// A reply that may be repeated for requests of the same shape.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The request that it answers.
    pub request: &'a [u8],
    /// The reply to that request.
    pub reply: &'a [u8],
    /// Which bytes of the request do not matter.
    pub shape: &'a Shape,
    /// The version of the state from which the reply was made, read before the state.
    pub version: Version,
    /// The time from which it must not be repeated.
    pub until: Instant,
}

impl Publication<'_> {
    /// Checks all conditions that do not depend on where it is kept; returns the number of the shape among those of
    /// the service.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub fn check(
        &self,
        now: Instant,
        shapes: &[Shape],
        words: &[AtomicU64; GENERATIONS],
    ) -> Result<u8, NotKept> {
        let number = shapes.iter().take(SHAPES_MAX).position(|shape| shape == self.shape);
        let number = number.ok_or(NotKept::Shape)?;
        if self.request.len() > REQUEST_MAX {
            return Err(NotKept::RequestTooLong);
        }
        if self.request.len() < self.shape.request_min() {
            return Err(NotKept::RequestTooShort);
        }
        if self.reply.len() > REPLY_MAX {
            return Err(NotKept::ReplyTooLong);
        }
        let mut copies = self.shape.copies(self.request);
        if !copies.all(|(bytes, to)| self.reply.get(to..to + bytes.len()) == Some(bytes)) {
            return Err(NotKept::Copy);
        }
        if self.until <= now {
            return Err(NotKept::Expired);
        }
        if !self.version.is_current(words) {
            return Err(NotKept::Withdrawn);
        }
        Ok(number as u8)
    }

    /// Whether an existing entry for the same request is good enough: it has the same version, and so the same
    /// reply, and is valid for at least half of this one's time but not longer. Otherwise, if many requests come to
    /// workers anyway, each of them would rewrite the entry.
    #[must_use]
    pub fn is_covered_by(&self, now: Instant, version: Version, until: Instant) -> bool {
        let left = |until: Instant| until.as_nanos().saturating_sub(now.as_nanos());
        version == self.version
            && left(until) > 0
            && until <= self.until
            && left(until) >= left(self.until) / 2
    }
}
