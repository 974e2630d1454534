//! What a driver says of its XDP abilities: the `netdev` generic netlink family (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml). Nothing is attached to find out.

use futures_util::stream::StreamExt as _;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _, NlasIterator,
    ParseableParametrized, parse_u32, parse_u64,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};

// linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_REDIRECT: u64 = 2;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
const NETDEV_XDP_ACT_RX_SG: u64 = 32;

/// XDP features of a device, as its driver reports them (`netdev` family, `enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// `XDP_PASS`, `XDP_DROP`, `XDP_TX` in the driver.
    pub basic: bool,
    /// `XDP_REDIRECT` in the driver.
    pub redirect: bool,
    /// Takes frames redirected to it.
    pub transmit: bool,
    /// AF_XDP zero-copy.
    pub zero_copy: bool,
    /// Frames in several buffers on receive.
    pub multi_buffer: bool,
    /// Most buffers of one frame in zero-copy mode.
    pub zero_copy_segments: u32,
}

/// One NETDEV_CMD_DEV_GET, question or answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Device {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        NETDEV_CMD_DEV_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Device {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Device {
    fn parse_with_param(buffer: &[u8], _header: GenlHeader) -> Result<Self, DecodeError> {
        use netlink_packet_core::Parseable as _;
        let attributes = NlasIterator::new(buffer)
            .map(|attribute| DefaultNla::parse(&attribute?))
            .collect::<Result<_, DecodeError>>()?;
        Ok(Self { attributes })
    }
}

/// What the driver of that interface reports; `None` if the kernel has no such family or interface.
pub(crate) async fn query(ifindex: u32) -> Option<XdpFeatures> {
    let (connection, mut handle, _) = genetlink::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let attribute = DefaultNla::new(NETDEV_A_DEV_IFINDEX, ifindex.to_ne_bytes().to_vec());
    let mut request = NetlinkMessage::from(GenlMessage::from_payload(Device { attributes: vec![attribute] }));
    request.header.flags = NLM_F_REQUEST;
    let answer = async {
        let mut answers = Box::pin(handle.request(request).await.ok()?);
        match answers.next().await?.ok()?.payload {
            NetlinkPayload::InnerMessage(message) => Some(features(&message.payload)),
            _ => None,
        }
    }
    .await;
    connection.abort();
    answer
}

fn features(device: &Device) -> XdpFeatures {
    let value = |kind: u16| {
        let attribute = device.attributes.iter().find(|attribute| attribute.kind() == kind)?;
        let mut bytes = vec![0; attribute.value_len()];
        attribute.emit_value(&mut bytes);
        Some(bytes)
    };
    let bits = value(NETDEV_A_DEV_XDP_FEATURES).and_then(|bytes| parse_u64(&bytes).ok()).unwrap_or(0);
    let segments = value(NETDEV_A_DEV_XDP_ZC_MAX_SEGS).and_then(|bytes| parse_u32(&bytes).ok()).unwrap_or(0);
    XdpFeatures {
        basic: bits & NETDEV_XDP_ACT_BASIC != 0,
        redirect: bits & NETDEV_XDP_ACT_REDIRECT != 0,
        transmit: bits & NETDEV_XDP_ACT_NDO_XMIT != 0,
        zero_copy: bits & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
        multi_buffer: bits & NETDEV_XDP_ACT_RX_SG != 0,
        zero_copy_segments: segments,
    }
}
