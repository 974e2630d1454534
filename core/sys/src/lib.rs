//! Thin, typed wrappers of the kernel's interfaces other than packet I/O: clocks, CPUs, wake-ups, latency requests,
//! sockets, settings.
//!
//! Each module wraps one kernel interface; its errors name the call that failed. Deciding when to use which belongs
//! to the tier runtime.

pub mod affinity;
pub mod alive;
pub mod allocations;
pub mod capabilities;
pub mod child;
pub mod clock;
pub mod cpu_request;
pub mod cpuidle;
pub mod descriptors;
pub mod errno;
pub mod ethtool;
pub mod event_loop;
pub mod eventfd;
pub mod fd_passing;
pub mod file_data;
pub mod file_handle;
pub mod file_rights;
pub mod fork;
pub mod frame_claim;
pub mod frame_tap;
pub mod freed_memory;
pub mod landlock;
pub mod latency_request;
pub mod mounts;
pub mod netns;
pub mod packet_socket;
pub mod path_messages;
pub mod process_signals;
pub mod run_delay;
pub mod scheduling;
pub mod send_queue;
pub mod signals;
pub mod socket_file;
pub mod socket_filter;
pub mod socket_kind;
pub mod stamp;
pub mod stopped_thread;
pub mod stream_stamp;
pub mod tcp_held;
pub mod tcp_info;
pub mod tcp_listener;
pub mod tcp_repair;
pub mod trusted_dir;
pub mod udp_socket;

pub use alive::Alive;
pub use cpu_request::CpuRequest;
pub use errno::last_errno;
pub use eventfd::EventFd;
pub use frame_claim::FrameClaim;
pub use frame_tap::FrameTap;
pub use latency_request::LatencyRequest;
pub use netns::Namespace;
pub use packet_socket::PacketSocket;
pub use path_messages::PathMessages;
pub use process_signals::{ProcessSignal, ProcessSignals};
pub use run_delay::RunDelay;
pub use socket_file::SocketFile;
pub use stopped_thread::StoppedThread;
pub use trusted_dir::TrustedDir;
pub use udp_socket::UdpSocket;
