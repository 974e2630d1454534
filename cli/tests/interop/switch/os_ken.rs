//! Tests of a switch with a controller of another project: an application of os-ken that learns addresses, alone, and as the
//! remote controller of a network of mininet.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Site, terminate};
use crate::rig::{kill, until};
use crate::root_or_skip;

/// As the book on Ryu has it, of which os-ken is a fork: what has no flow goes to the controller, which learns the sender's port,
/// sends the frame on, and puts a flow in once it knows where the receiver is.
const LEARNING_SWITCH: &str = "
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3

class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    def add(self, datapath, priority, match, actions):
        parser = datapath.ofproto_parser
        apply = parser.OFPInstructionActions(datapath.ofproto.OFPIT_APPLY_ACTIONS, actions)
        datapath.send_msg(parser.OFPFlowMod(
            datapath=datapath, priority=priority, match=match, instructions=[apply]))

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        datapath = event.msg.datapath
        ofproto, parser = datapath.ofproto, datapath.ofproto_parser
        to_us = parser.OFPActionOutput(ofproto.OFPP_CONTROLLER, ofproto.OFPCML_NO_BUFFER)
        self.add(datapath, 0, parser.OFPMatch(), [to_us])

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def came(self, event):
        message = event.msg
        datapath, in_port = message.datapath, message.match['in_port']
        ofproto, parser = datapath.ofproto, datapath.ofproto_parser
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        ports = self.ports.setdefault(datapath.id, {})
        ports[frame.src] = in_port
        to = ports.get(frame.dst, ofproto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(to)]
        if to != ofproto.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=in_port, eth_dst=frame.dst, eth_src=frame.src)
            self.add(datapath, 1, match, actions)
        datapath.send_msg(parser.OFPPacketOut(
            datapath=datapath, buffer_id=ofproto.OFP_NO_BUFFER, in_port=in_port, actions=actions, data=message.data))
";

/// Runs os-ken with the arguments that follow.
const MANAGER: &str = "from os_ken.cmd.manager import main; main()";
const LISTEN: &str = "--ofp-listen-host=127.0.0.1";

/// A Python that has os-ken: the system's, or that of the environment. Later releases than 3 have no program.
fn python() -> Option<&'static str> {
    if !root_or_skip() {
        return None;
    }
    let found =
        ["/usr/bin/python3", "python3"].into_iter().find(|python| has(python, "import os_ken.cmd.manager"));
    if found.is_none() {
        twinpath_test_rig::skip("needs os-ken before 4.0 (Debian's package python3-os-ken)");
    }
    found
}

/// Whether a Python has modules, by a statement that fails otherwise.
fn has(python: &str, needed: &str) -> bool {
    let found = Command::new(python).args(["-c", needed]).output();
    found.is_ok_and(|found| found.status.success())
}

/// Writes the application into a folder.
fn application(folder: &Path) -> PathBuf {
    let file = folder.join("learning_switch.py");
    std::fs::write(&file, LEARNING_SWITCH).expect("written");
    file
}

#[test]
fn a_learning_switch_of_os_ken_rules_and_its_flows_go_into_the_kernel() {
    let Some(python) = python() else { return };
    let site = Site::new(3);
    let file = application(site.rig.directory.path()).display().to_string();
    // It ends with the first process of a namespace, whatever becomes of the test.
    let alone = ["--pid", "--fork", "--kill-child", "timeout", "300", python, "-c", MANAGER];
    let arguments = [&alone[..], &[LISTEN, "--ofp-tcp-listen-port=6653", &file]].concat();
    let manager = site.rig.run(&site.rig.server, "unshare", &arguments);
    let ports = ["--port", "p1", "--port", "p2", "--port", "p3"];
    let server = site.switch(&[&["sw0"], &ports[..], &["--controller", "tcp:127.0.0.1:6653"]].concat());
    until("the controller has put its flow in", || {
        server.show("flows").as_array().is_some_and(|flows| !flows.is_empty())
    });
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        site.passes(from, to);
    }
    // From each host to each other one, beside the one for what is not known.
    until("a flow each way has come", || {
        server.show("flows").as_array().is_some_and(|flows| flows.len() == 7)
    });
    until("the kernel forwards them", || {
        site.passes(1, 2);
        let flows = server.show("flows");
        let in_kernel = flows.as_array().expect("a list").iter().filter(|flow| flow["place"] == "kernel");
        in_kernel.count() >= 2
    });
    assert_eq!(terminate(server), Some(0));
    kill(manager);
}

/// Two switches of mininet's, each with a host, and the application as their controller.
const MININET: &str = "
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from mininet.net import Mininet
from mininet.node import RemoteController
from mininet.topo import LinearTopo
from mininet_twinpath import TwinpathSwitch
manager = subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[3], '--ofp-tcp-listen-port=6653', sys.argv[4]])
controller = lambda name: RemoteController(name, ip='127.0.0.1', port=6653)
net = Mininet(topo=LinearTopo(2), switch=TwinpathSwitch, controller=controller)
net.start()
assert net.waitConnected(timeout=30)
print('lost', net.pingAll(timeout='5'))
net.stop()
manager.kill()
";

#[test]
fn a_network_of_mininet_with_a_learning_switch_as_its_remote_controller() {
    let Some(python) = python() else { return };
    if !has(python, "import mininet, shutil; assert shutil.which('mnexec') and shutil.which('ping')") {
        return twinpath_test_rig::skip("needs mininet and ping (Debian's packages mininet, iputils-ping)");
    }
    let site = Site::new(0);
    let file = application(site.rig.directory.path()).display().to_string();
    let (examples, program) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples"), Path::new(env!("CARGO_BIN_EXE_twinpath")));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().expect("a directory").display());
    // Its hosts and switches end with the first process of a namespace, whatever becomes of the test.
    let script = "mount -t tmpfs tmpfs /run && ip link set lo up && exec \"$0\" -c \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, python]);
    command.args([MININET, examples, MANAGER, LISTEN, &file]).env("PATH", path).stdin(Stdio::null());
    let output = site.rig.server.run(|| command.output()).expect("entered").expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("lost 0.0"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
