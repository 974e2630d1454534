//! Tests of the port without a device.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use super::*;

#[test]
fn inserting_a_tag_adjusts_the_checksum_and_header_offsets() {
    let mut pool = Pool::new(1).unwrap();
    let mut frame = pool.take().unwrap();
    let untagged: Vec<u8> = (0..60).collect();
    frame.copy_from(&untagged).unwrap();
    let meta = frame.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset, meta.headers_len) =
        (Checksum::Partial, 34, 16, 54);
    assert!(insert_tag(&mut frame, [0x81, 0, 0x60, 0x64]));
    assert_eq!(frame.bytes()[..12], untagged[..12]);
    assert_eq!(frame.bytes()[12..16], [0x81, 0, 0x60, 0x64]);
    assert_eq!(frame.bytes()[16..], untagged[12..]);
    let meta = frame.meta();
    assert_eq!((meta.checksum_start, meta.checksum_offset, meta.headers_len), (38, 16, 58));
    pool.release(frame);
}
