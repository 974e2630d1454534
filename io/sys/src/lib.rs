//! What the kernel offers a process besides packets: clocks, CPUs, wake-ups, requests, sockets, settings.
//!
//! Thin and typed: each module wraps one kernel interface, its errors naming the call that failed. It never decides
//! when to use what; that is the business of `runtime/`.

pub mod affinity;
pub mod alive;
pub mod allocations;
pub mod child;
pub mod clock;
pub mod cpu_request;
pub mod cpuidle;
pub mod descriptors;
pub mod ethtool;
pub mod eventfd;
pub mod fd_passing;
pub mod frame_claim;
pub mod frame_tap;
pub mod latency_request;
pub mod mounts;
pub mod netns;
pub mod packet_socket;
pub mod scheduling;
pub mod stamp;
pub mod stopped_thread;
pub mod tcp_listener;
pub mod trusted_dir;
pub mod udp_socket;

pub use alive::Alive;
pub use cpu_request::CpuRequest;
pub use eventfd::EventFd;
pub use frame_claim::FrameClaim;
pub use frame_tap::FrameTap;
pub use latency_request::LatencyRequest;
pub use netns::Namespace;
pub use packet_socket::PacketSocket;
pub use stopped_thread::StoppedThread;
pub use trusted_dir::TrustedDir;
pub use udp_socket::UdpSocket;
