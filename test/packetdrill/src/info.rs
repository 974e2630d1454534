//! `struct tcp_info` (include/uapi/linux/tcp.h), with the fields that packetdrill's `struct _tcp_info` has.

use twinpath_tcp::{Info, TcpState};

const CLOSE: u8 = TcpState::Close as u8;
const LISTEN: u8 = TcpState::Listen as u8;
/// All fields, with padding.
const LEN: usize = 288;

/// Of a socket without a connection.
pub(crate) fn without_connection(is_listening: bool) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = if is_listening { LISTEN } else { CLOSE };
    bytes
}

/// Of a connection.
pub(crate) fn to_c(info: &Info) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN);
    let options = u8::from(info.has_timestamps)
        | u8::from(info.has_sack) << 1
        | u8::from(info.has_scale) << 2
        | u8::from(info.has_ecn) << 3;
    let scales = info.send_scale & 15 | info.receive_scale << 4;
    let network = info.network as u8;
    bytes.extend([info.state as u8, network, info.retries, info.probes, info.backoff, options, scales, 0]);
    let ms = |since: twinpath_time::Duration| u32::try_from(since.as_millis()).unwrap_or(u32::MAX);
    let short =
        |bytes: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|it| bytes.extend(it.to_ne_bytes()));
    let long =
        |bytes: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|it| bytes.extend(it.to_ne_bytes()));
    short(
        &mut bytes,
        &[
            info.rto_us,
            0,
            u32::from(info.mss),
            u32::from(info.receive_mss),
            info.unacked,
            info.sacked,
            info.lost,
            info.retransmitting,
            0,
            ms(info.since_sent),
            0,
            ms(info.since_received),
            0,
            u32::from(info.mtu),
            0,
            info.srtt_us,
            info.rttvar_us,
            info.ssthresh,
            info.cwnd,
            u32::from(info.advertised_mss),
            info.reordering,
            info.receive_rtt_us,
            0,
            info.retransmitted,
        ],
    );
    long(&mut bytes, &[u64::MAX, u64::MAX, info.bytes_acked, info.bytes_received]);
    short(
        &mut bytes,
        &[
            info.segments_out,
            info.segments_in,
            info.unsent,
            info.min_rtt_us,
            info.data_segments_in,
            info.data_segments_out,
        ],
    );
    // The delivery rate, and the times for which something limited the sender.
    let us = |time: twinpath_time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    long(&mut bytes, &[0, us(info.busy), us(info.receiver_limited), us(info.buffer_limited)]);
    short(&mut bytes, &[info.delivered, info.delivered_ce]);
    long(&mut bytes, &[info.bytes_sent + info.bytes_retransmitted, info.bytes_retransmitted]);
    short(
        &mut bytes,
        &[info.duplicates, info.reorderings, info.out_of_order, info.send_window, info.receive_window],
    );
    bytes.resize(LEN, 0);
    bytes
}
