/* Coalesced datagrams, which a worker takes apart: those that a peer on a virtual device has sent by one call, and those that the
 * kernel has joined for a device (GRO).
 *
 * The kernel describes them to a packet socket as one datagram with a segment size (VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2). Their
 * checksum is left to hardware (net/ipv4/udp_offload.c). A list of datagrams (SKB_GSO_FRAGLIST) looks the same to programs, but
 * has the checksum of its first datagram. So the checksum decides, and lists are the kernel's. One list in 65,536 has a checksum
 * that looks left to hardware; the worker drops and counts it. */
#ifndef TWINPATH_DATAGRAMS_H
#define TWINPATH_DATAGRAMS_H

/* In one frame. */
enum { DATAGRAMS_MAX = 128 };

/* Whether the checksum of a datagram holds the sum of the pseudo-header alone (RFC 768, RFC 8200 section 8.1). */
INLINE int is_left_to_hardware(const struct frame *frame, const struct packet *packet)
{
	__u64 sum = be16(UDP) + AT16(frame, packet->transport_at + 4);

#pragma unroll
	for (int word = 0; word < 4; word++) {
		if (word < packet->words) {
			sum += AT32(frame, packet->source_at + 4 * word);
			sum += AT32(frame, packet->destination_at + 4 * word);
		}
	}
	return fold(sum) == AT16(frame, packet->transport_at + 6);
}

/* The checks that apply to coalesced datagrams, in place of those of check_frame(); 0 if all pass. */
INLINE verdict_t check_datagrams(const struct frame *frame, const struct packet *packet)
{
	const struct config *config = config_of(frame);
	const __u32 payload_at = packet->transport_at + UDP_LEN, segment = frame->segment_len;
	__u32 payload;

	if (frame->bytes[0] & 1)
		return MULTICAST;
	if (AT16(frame, 0) != config->mac[0] || AT16(frame, 2) != config->mac[1] || AT16(frame, 4) != config->mac[2])
		return NOT_FOR_THIS_HOST;
	if (packet->transport_len < UDP_LEN || !HAS(frame, payload_at) || frame->len <= payload_at)
		return BAD_LENGTH;
	/* Whatever its lengths leave open, the kernel decides. */
	if (packet->transport_at + packet->transport_len != frame->len ||
	    be16(AT16(frame, packet->transport_at + 4)) != packet->transport_len)
		return COALESCED;
	if (!segment || payload_at + segment > config->frame_len_max)
		return COALESCED;
	/* A packet in a tunnel has an outer datagram like these, but the kernel counts the segments within. There is one less than the
	 * outer datagram would be cut into, if the last leaves no room for the inner headers. */
	payload = frame->len - payload_at;
	if (payload > (__u64)frame->segments * segment || payload + segment <= (__u64)frame->segments * segment)
		return COALESCED;
	if (payload > DATAGRAMS_MAX * segment || !is_left_to_hardware(frame, packet))
		return COALESCED;
	return 0;
}

#endif
