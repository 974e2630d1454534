//! Several threads change one entry at the same time.

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use super::*;

#[test]
fn a_decision_for_the_kernel_never_takes_the_place_of_a_lease() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let descriptor = socket.as_raw_fd();
    let value = || entry(descriptor).map(|entry| entry.load(Ordering::SeqCst));
    set_undecided(descriptor);
    set_port_named(descriptor);
    // Another thread gives it a lease at this moment: no third one decides.
    set(descriptor, CLAIMED);
    assert!(!is_undecided(descriptor) && !is_leased(descriptor));
    assert!(matches!(lend(descriptor, "lo", &Access::Own, Mode::Poll), Ok(None)));
    set_kernel(descriptor);
    set_port_named(descriptor);
    assert_eq!(value(), Some(CLAIMED));
    // It has one by now.
    set(descriptor, FIRST);
    set_kernel(descriptor);
    set_port_named(descriptor);
    assert_eq!(value(), Some(FIRST));
    // A duplicate that is made while it is decided leaves both to the kernel.
    set(descriptor, CLAIMED);
    let other = socket.try_clone().expect("a duplicate");
    duplicate(descriptor, other.as_raw_fd());
    assert_eq!(value(), Some(KERNEL));
    assert!(!is_known(other.as_raw_fd()));
    set_undecided(descriptor);
    set_kernel(descriptor);
    assert_eq!(value(), Some(KERNEL));
}
