//! Datagrams whose sender is doubtful: a program gets those that the kernel lets in, and no others.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use twinpath_leases::rules::{OWNER_VARIABLE, Rule};
use twinpath_sys::PacketSocket;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_rig::{ip, root_or_skip};
use twinpath_worker::idle::Mode;

use crate::link::{Link, PATIENCE, run};
use crate::{own, received, rule, with_library};

/// A program that tells 10.9.0.2:9001 who has sent what it receives. An empty datagram ends it.
const SERVER: &str = "\
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7095) }, from, to = own;
	char buffer[64];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	to.sin_port = htons(9001);
	to.sin_addr.s_addr = inet_addr(\"10.9.0.2\");
	if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0)
		return 1;
	puts(\"ready\");
	fflush(stdout);
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t got = recvfrom(fd, buffer + 4, sizeof buffer - 4, 0, (struct sockaddr *)&from, &len);
		if (got <= 0)
			return got < 0;
		memcpy(buffer, &from.sin_addr, 4);
		sendto(fd, buffer, got + 4, 0, (struct sockaddr *)&to, sizeof to);
	}
}
";

/// The sources of a round, the last of which the kernel lets in.
const SOURCES: [Ipv4Addr; 12] = [
    Ipv4Addr::new(240, 0, 0, 1),
    Ipv4Addr::new(0, 1, 2, 3),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(127, 0, 0, 9),
    Ipv4Addr::new(224, 0, 0, 9),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(10, 9, 0, 1),
    Ipv4Addr::new(10, 9, 0, 255),
    Ipv4Addr::new(10, 8, 0, 1),
    Ipv4Addr::new(10, 8, 0, 2),
    Ipv4Addr::new(10, 8, 0, 3),
    Ipv4Addr::new(203, 0, 113, 7),
];

struct Forger {
    socket: PacketSocket,
    mac: [u8; 6],
    told: UdpSocket,
    number: u32,
}

impl Forger {
    fn new(link: &Link) -> Self {
        let mac =
            link.ours.run(|| PacketSocket::open(interface_index("in0").unwrap(), 0).unwrap().mac()).unwrap();
        let (socket, told) = link
            .peers
            .run(|| {
                let socket = PacketSocket::open(interface_index("out0").unwrap(), 0).unwrap();
                (socket, UdpSocket::bind("10.9.0.2:9001").unwrap())
            })
            .unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, mac: mac.unwrap().unwrap(), told, number: 0 }
    }

    fn send(&mut self, source: Ipv4Addr) {
        self.number += 1;
        let mut frame = [&self.mac[..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
        frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend(source.octets().into_iter().chain([10, 9, 0, 1]));
        frame.extend([5000u16.to_be_bytes(), 7095u16.to_be_bytes(), 12u16.to_be_bytes(), [0, 0]].concat());
        frame.extend(self.number.to_be_bytes());
        let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = (sum >> 16) + (sum & 0xffff);
        frame[24..26].copy_from_slice(&(!(sum as u16).wrapping_add((sum >> 16) as u16)).to_be_bytes());
        self.socket.send(&frame).unwrap();
    }

    /// The next one that the program has received.
    fn told(&self) -> (Ipv4Addr, u32) {
        let mut buffer = [0; 8];
        assert_eq!(self.told.recv(&mut buffer).unwrap(), 8);
        let [source, number] = [buffer[..4].try_into().unwrap(), buffer[4..].try_into().unwrap()];
        (<[u8; 4]>::into(source), u32::from_be_bytes(number))
    }

    /// Which of the sources the program has datagrams from, in order.
    fn round(&mut self) -> Vec<Ipv4Addr> {
        SOURCES.into_iter().for_each(|source| self.send(source));
        let mut came = Vec::new();
        loop {
            let (source, number) = self.told();
            came.push(source);
            if number == self.number {
                return came;
            }
        }
    }

    /// Until something comes by the ring, if there is one.
    fn warm_up(&mut self) {
        for _ in 0..300 {
            self.send(SOURCES[11]);
            assert_eq!(self.told().1, self.number);
        }
    }
}

fn started(link: &Link, command: &mut Command) -> Child {
    let mut child = link.within(command.stdout(Stdio::piped())).spawn().unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(ready, "ready");
    child
}

/// What a program receives before an address of another interface is there, while it is, and after it has gone.
fn come(
    link: &Link,
    forger: &mut Forger,
    command: &mut Command,
    wanted: Option<&[Vec<Ipv4Addr>; 3]>,
) -> [Vec<Ipv4Addr>; 3] {
    let mut child = started(link, command);
    let mut at = 0;
    let come = ["", "addr add 10.8.0.3/24 dev d0", "addr del 10.8.0.3/24 dev d0"].map(|change| {
        if !change.is_empty() {
            ip(&link.ours, change);
        }
        let begun = Instant::now();
        // The owner hears of the change.
        loop {
            forger.warm_up();
            let came = forger.round();
            if wanted.is_none_or(|wanted| wanted[at] == came || begun.elapsed() > PATIENCE / 10) {
                at += 1;
                return came;
            }
        }
    });
    let peer = link.peers.run(|| UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap();
    peer.send_to(&[], "10.9.0.1:7095").unwrap();
    assert!(child.wait().unwrap().success());
    come
}

#[test]
fn a_program_has_what_the_kernel_lets_in_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    for arguments in
        ["link add d0 type veth peer name d1", "addr add 10.8.0.1/24 dev d0", "addr add 10.8.0.2/32 dev d1"]
    {
        ip(&link.ours, arguments);
    }
    ip(&link.ours, "link set d0 up");
    ip(&link.ours, "link set d1 up");
    let (source, program) = (folder.path().join("server.c"), folder.path().join("server"));
    std::fs::write(&source, SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let (explain, listen) = (folder.path().join("explain"), folder.path().join("programs"));
    let mut forger = Forger::new(&link);
    let plain = come(&link, &mut forger, &mut Command::new(&program), None);
    println!("{plain:?}");
    assert!(
        plain[0].contains(&SOURCES[0]) && plain[0].contains(&SOURCES[1]) && !plain[0].contains(&SOURCES[8])
    );
    assert_ne!(plain[0], plain[1], "an address of this host");
    assert_eq!(plain[0], plain[2]);
    own(&link, &listen);
    let mut command = Command::new(&program);
    let on_link = Rule { interface: Some("in0".to_owned()), ..rule(Mode::Poll) };
    with_library(&mut command, on_link, &explain).env(OWNER_VARIABLE, &listen);
    assert_eq!(come(&link, &mut forger, &mut command, Some(&plain)), plain);
    let (by_ring, by_kernel) = received(&explain);
    println!("{by_ring} by the ring, {by_kernel} by the kernel");
    assert!(by_ring > 0, "{}", std::fs::read_to_string(&explain).unwrap());
}
