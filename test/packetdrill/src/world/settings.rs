//! The commands that a script runs, each by the name of the program that it means.

use twinpath_tcp::TcpState;

use crate::commands::Said;
use crate::engine::Listed;
use crate::world::World;

impl World {
    pub(crate) fn run(&mut self, words: &[String]) -> Said {
        let Some((name, words)) = words.split_first() else { return Said::default() };
        match name.as_str() {
            "sysctl" => self.sysctl(words),
            "set_sysctls.py" => {
                for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
                    let name = name.trim_start_matches("/proc/sys/").replace('/', ".");
                    self.set(&name, value);
                }
                Said::default()
            }
            "ip" => {
                if words.iter().any(|word| word == "route") {
                    self.knobs.route(words);
                    self.reconfigure();
                }
                Said::default()
            }
            "nstat" => {
                let counted = core::mem::take(&mut self.strange_icmp);
                let text = format!("#kernel\nTcpExtOutOfWindowIcmps {counted} 0.0\n");
                Said { code: 0, text }
            }
            "sockstat" => self.sockstat(words),
            "tcpdrop" => {
                // Only `-s TIME_WAIT` is asked for.
                self.engine().forget_time_wait();
                Said::default()
            }
            // Queues, offloads, keys and modules of the kernel: nothing of them is here. What TCP sends as one leaves in
            // segments whatever the interface can (`packet::build`).
            _ => Said::default(),
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.knobs.set(name, value.trim());
        self.reconfigure();
    }

    fn reconfigure(&mut self) {
        let config = self.knobs.config();
        if let Some(engine) = &mut self.engine {
            engine.configure(config);
        }
    }

    fn sysctl(&mut self, words: &[String]) -> Said {
        let mut said = Said::default();
        for word in words.iter().filter(|word| !word.starts_with('-')) {
            match word.split_once('=') {
                Some((name, value)) => self.set(name, value),
                None => match self.knobs.get(word) {
                    Some(value) => said.text += &format!("{value}\n"),
                    None => said.code = 1,
                },
            }
        }
        said
    }

    /// FreeBSD's list of sockets: those of the script's descriptors, and what has none, with the states' names.
    fn sockstat(&mut self, words: &[String]) -> Said {
        let is_ipv4 = words.iter().any(|word| word == "-4");
        let is_ipv6 = words.iter().any(|word| word == "-6");
        let owned: Vec<_> =
            self.sockets.values().map(|it| (it.local, it.remote, it.is_listening())).collect();
        let mut text = String::from("USER COMMAND PID FD PROTO LOCAL REMOTE STATE\n");
        let mut engine_list: Vec<Listed> = self.engine().list();
        for (local, remote, is_listening) in owned {
            let Some(local) = local.filter(|it| if it.is_ipv4() { is_ipv4 } else { is_ipv6 }) else {
                continue;
            };
            let place = engine_list.iter().position(|it| it.local == local && Some(it.remote) == remote);
            let state = match place {
                Some(place) => name(engine_list.swap_remove(place).state),
                None if is_listening => "LISTEN",
                None => "CLOSED",
            };
            text += &format!("root packetdrill 1 3 tcp {local} {remote:?} {state}\n");
        }
        for Listed { local, remote, state } in engine_list {
            if if local.is_ipv4() { is_ipv4 } else { is_ipv6 } {
                text += &format!("? ? ? ? tcp {local} {remote} {}\n", name(state));
            }
        }
        Said { code: 0, text }
    }
}

/// FreeBSD's names of the states (`tcpstates` in its tcp_fsm.h).
fn name(state: TcpState) -> &'static str {
    match state {
        TcpState::Established => "ESTABLISHED",
        TcpState::SynSent => "SYN_SENT",
        TcpState::SynRecv => "SYN_RCVD",
        TcpState::FinWait1 => "FIN_WAIT_1",
        TcpState::FinWait2 => "FIN_WAIT_2",
        TcpState::TimeWait => "TIME_WAIT",
        TcpState::Close => "CLOSED",
        TcpState::CloseWait => "CLOSE_WAIT",
        TcpState::LastAck => "LAST_ACK",
        TcpState::Listen => "LISTEN",
        TcpState::Closing => "CLOSING",
    }
}
