//! A frame on its way through the tables.

use twinpath_frame::Frame;

use crate::openflow::pipeline::key::{self, Key, Layers};
use crate::openflow::pipeline::parse::{self, Ingress, Layout};

/// A frame and what is known of it.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) frame: Frame,
    pub(crate) ingress: Ingress,
    pub(crate) metadata: u64,
    key: Key,
    layout: Layout,
    /// Whether the key is that of the frame's present bytes.
    key_holds: bool,
    layout_holds: bool,
}

impl Packet {
    /// A frame that is not read yet.
    #[inline]
    pub(crate) fn new(frame: Frame, ingress: Ingress) -> Self {
        let (key, layout) = (Key::ZERO, Layout::default());
        Self { frame, ingress, metadata: 0, key, layout, key_holds: true, layout_holds: true }
    }

    /// Reads the frame's fields. Returns whether it has any: a frame may be shorter than an Ethernet header.
    #[inline]
    pub(crate) fn read(&mut self) -> bool {
        let (head, beside) = (self.frame.bytes(), self.frame.meta().vlan);
        parse::parse(head, beside, &self.ingress, &mut self.key, &mut self.layout).is_some()
    }

    /// The same, of a frame with the same bytes.
    pub(crate) fn twin(&self, frame: Frame) -> Self {
        let Self { ingress, metadata, key, layout, key_holds, layout_holds, frame: _ } = *self;
        Self { frame, ingress, metadata, key, layout, key_holds, layout_holds }
    }

    /// The fields as they are now.
    #[inline]
    pub(crate) fn key(&mut self) -> &Key {
        if !self.key_holds {
            self.read_again();
        }
        self.key.0[key::METADATA] = self.metadata;
        &self.key
    }

    /// Where the headers are now.
    #[inline]
    pub(crate) fn layout(&mut self) -> Layout {
        if !self.layout_holds {
            self.read_again();
        }
        self.layout
    }

    #[cold]
    fn read_again(&mut self) {
        (self.key, self.layout) = (Key::ZERO, Layout::default());
        // No rewrite makes a frame shorter than an Ethernet header.
        let _ = self.read();
        (self.key_holds, self.layout_holds) = (true, true);
    }

    /// The DSCP of IPv4 or IPv6.
    pub(crate) fn dscp(&mut self) -> Option<u8> {
        self.layout()
            .has(Layers::IP)
            .then(|| (self.key().0[key::IP_DSCP.word] >> key::IP_DSCP.shift) as u8 & 0x3f)
    }

    /// A field has changed, and no header has moved.
    #[inline]
    pub(crate) const fn field_changed(&mut self) {
        self.key_holds = false;
    }

    /// Headers may have moved, or have become others.
    #[inline]
    pub(crate) const fn headers_changed(&mut self) {
        (self.key_holds, self.layout_holds) = (false, false);
    }
}
