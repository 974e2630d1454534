//! Two hosts and a switch, each a network namespace, joined by two veth pairs; and flows by which the kernel forwards what the
//! hosts send to each other.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{RecvFlags, SocketFlags, SocketType};
use twinpath_bpf::{PortPrograms, TcAttach, Unserved};
use twinpath_forwarding::openflow::pipeline::{Flow, FlowId, Ingress, Inserted, Pipeline, Port};
use twinpath_openflow_wire::{Action, Field, Instruction, Match, MatchField};
use twinpath_switch::offload::{KernelPort, Lifetime, NotOffloaded, Offloaded};
use twinpath_sys::Namespace;
use twinpath_sys::clock;
use twinpath_sys::packet_socket;
use twinpath_test_rig::{ifindex, name_of, quiet};
use twinpath_time::Duration;

const MARK: u32 = 0x7477_7377;

/// Of the hosts' interfaces.
pub(crate) const MTU: u32 = 1500;

pub(crate) use twinpath_test_rig::ip;

/// The address of a host, 1 or 2.
pub(crate) const fn mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, host]
}

/// Hosts 10.0.0.1 and 10.0.0.2, which know each other's address.
pub(crate) struct Hosts {
    pub(crate) switch: Namespace,
    pub(crate) hosts: [Namespace; 2],
    /// The ports that lead to them.
    pub(crate) ifindexes: [u32; 2],
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let namespace = || {
            let made = quiet();
            ip(&made, "link set lo up");
            made
        };
        let (switch, hosts) = (namespace(), [namespace(), namespace()]);
        for (own, host) in (1..).zip(&hosts) {
            let (other, there) = (3 - own, name_of(&switch));
            ip(
                host,
                &format!(
                    "link add eth0 address 02:00:00:00:00:0{own} mtu {MTU} type veth peer name port{own} mtu {MTU} netns {there}"
                ),
            );
            ip(host, "link set eth0 up");
            ip(host, &format!("addr add 10.0.0.{own}/24 dev eth0"));
            ip(
                host,
                &format!("neigh add 10.0.0.{other} lladdr 02:00:00:00:00:0{other} dev eth0 nud permanent"),
            );
            ip(&switch, &format!("link set port{own} up"));
        }
        let ifindexes = [ifindex(&switch, "port1"), ifindex(&switch, "port2")];
        Self { switch, hosts, ifindexes }
    }

    /// A UDP socket of a host.
    pub(crate) fn udp(&self, host: usize) -> UdpSocket {
        self.udp_on(host, 7000)
    }

    pub(crate) fn udp_on(&self, host: usize, port: u16) -> UdpSocket {
        let address = format!("10.0.0.{}:{port}", host + 1);
        let socket = self.hosts[host].run(|| UdpSocket::bind(&address).unwrap()).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        socket
    }

    /// A TCP connection from the first host to the second one.
    pub(crate) fn tcp(&self) -> (TcpStream, TcpStream) {
        let listener = self.hosts[1].run(|| TcpListener::bind("10.0.0.2:0").unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let client = self.hosts[0].run(|| TcpStream::connect(address).unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }
}

/// The ports of the switch, with the flows between them in the kernel.
pub(crate) struct Switch {
    _programs: PortPrograms,
    pub(crate) offloaded: Offloaded,
    pub(crate) pipeline: Pipeline,
    /// To the first host, and to the second one.
    pub(crate) flows: [FlowId; 2],
    /// The worker's.
    pub(crate) socket: OwnedFd,
}

impl Switch {
    /// `to_peer`: past the interface where that is possible.
    pub(crate) fn new(hosts: &Hosts, to_peer: bool) -> Self {
        Self::by(hosts, to_peer, false)
    }

    /// The same, and by XDP programs of the ports if `has_xdp`.
    pub(crate) fn by(hosts: &Hosts, to_peer: bool, has_xdp: bool) -> Self {
        let made = hosts.switch.run(|| {
            let mut programs = PortPrograms::load(MARK, 1, Duration::ZERO, 1024).unwrap();
            let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).unwrap();
            programs.attach_socket_filter(0, socket.as_fd()).unwrap();
            packet_socket::bind(&socket, 0, libc_all()).unwrap();
            for ifindex in hosts.ifindexes {
                programs.hold(ifindex, Unserved::Dropped, TcAttach::here()).unwrap();
                if has_xdp {
                    programs.attach_xdp(ifindex).unwrap();
                }
            }
            (programs, socket)
        });
        let (mut programs, socket) = made.unwrap();
        let mut offloaded = Offloaded::new(programs.take_offload().unwrap());
        let mut pipeline = Pipeline::new(1, [1, 2]);
        pipeline.set_ports(vec![Port::new(1), Port::new(2)]);
        let port = |host: u8| KernelPort {
            ifindex: hosts.ifindexes[usize::from(host) - 1],
            peer: to_peer.then_some(mac(host)),
            frame_len_max: MTU + 14,
            has_xdp,
            takes_xdp: has_xdp,
        };
        let ports = [port(1), port(2)];
        for (number, port) in (1..).zip(ports) {
            offloaded.set_port(number, Some(port)).unwrap();
        }
        let flows = [1, 2].map(|host: u8| {
            let [a, b, c, d, e, f] = mac(host);
            let station = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
            let fields = Match::new([MatchField::exact(Field::EthDst, station.into())]).unwrap();
            let output = Action::Output { port: host.into(), max_len: 0 };
            let instructions = [Instruction::ApplyActions([output].into())];
            let flow =
                Flow { table: 0, priority: 1, fields: &fields, instructions: &instructions, cookie: 0 };
            pipeline.add_flow(&flow).unwrap()
        });
        let mut switch = Self { _programs: programs, offloaded, pipeline, flows, socket };
        for host in 1..=2 {
            switch.offer(host).unwrap();
        }
        switch
    }

    /// Has the kernel forward frames to a host.
    pub(crate) fn offer(&mut self, host: u8) -> Result<Inserted, NotOffloaded> {
        let from = u32::from(3 - host);
        let mut head = [mac(host), mac(3 - host)].concat();
        head.extend([0x08, 0x00, 0x45]);
        head.resize(60, 0);
        let trace =
            self.pipeline.trace(&head, None, &Ingress { in_port: from, in_phy_port: from, tunnel_id: 0 });
        self.offloaded.offer(clock::now(), &trace, Lifetime::default())
    }

    /// Packets and bytes of the flow to a host.
    pub(crate) fn count(&mut self, host: u8) -> (u64, u64) {
        let flow = self.flows[usize::from(host) - 1];
        self.offloaded.record_flow(&mut self.pipeline, flow);
        let count = self.pipeline.flow_count(flow).unwrap().count;
        (count.packets, count.bytes)
    }

    /// A frame that the worker has got.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 2048];
        let (len, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()).ok()?;
        buffer.truncate(len);
        Some(buffer)
    }
}

/// ETH_P_ALL of linux/if_ether.h.
const fn libc_all() -> u16 {
    3
}
