"""twinpath's switch in mininet:

    mn --custom docs/examples/mininet_twinpath.py --switch twinpath --controller remote,ip=127.0.0.1

needs `twinpath` in PATH, mininet, and root. The controller has to speak OpenFlow 1.3. With `--controller none` the switch
forwards by learned addresses; with `--switch twinpath,fail_mode=standalone` it does while its controllers are away. What the switch says of itself: `sh twinpath show --socket /run/twinpath/mininet-s1.sock`
at mininet's prompt.
"""

import json
import os
import signal
import subprocess

from mininet.log import error, info
from mininet.node import Switch
from mininet.util import quietRun

# What it takes to start, measuring the machine included.
READY_S = 30
RUN = "/run/twinpath"


class TwinpathSwitch(Switch):
    """`twinpath switch` with mininet's interfaces as its ports, numbered as mininet does.

    fail_mode: what holds while no controller is connected: "secure" (its flows) or "standalone" (learned addresses)
    Further options of `twinpath switch` go into `opts`.
    """

    def __init__(self, name, fail_mode="secure", **params):
        Switch.__init__(self, name, **params)
        self.fail_mode = fail_mode
        self.process = None
        self.controllers = []
        self.socket = f"{RUN}/mininet-{name}.sock"

    @classmethod
    def setup(cls):
        "Says what is missing before a network is built."
        if not quietRun("which twinpath"):
            error("mininet: twinpath is not in PATH: build it (make build), and add target/release to PATH\n")
            raise SystemExit(1)

    def start(self, controllers):
        "Starts the switch, and returns when it forwards."
        os.makedirs(RUN, mode=0o755, exist_ok=True)
        command = ["twinpath", "switch", self.name, "--socket", self.socket]
        for port in sorted(port for port in self.intfs if port >= self.portBase):
            command += ["--port", self.intfs[port].name]
        self.controllers = controllers
        for controller in controllers:
            command += ["--controller", f"tcp:{controller.IP()}:{controller.port}"]
        # Without controllers it is a switch that learns, from its first frame on.
        if controllers:
            command += ["--datapath-id", self.dpid, "--fail-mode", self.fail_mode]
            if self.listenPort:
                command += ["--listen", f"tcp:127.0.0.1:{self.listenPort}"]
        command += self.opts.split()
        info(" ".join(command) + "\n")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: twinpath switch ended with exit code {self.process.wait()}: see above")

    def connected(self):
        "Whether a controller is connected, if there is any."
        if not self.controllers:
            return True
        said = subprocess.run(
            ["twinpath", "show", "controllers", "--json", "--socket", self.socket],
            capture_output=True, text=True, check=True,
        )
        return any(controller["state"] == "connected" for controller in json.loads(said.stdout)["controllers"])

    def stop(self, deleteIntfs=True):
        "Ends the switch, and waits for it."
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(READY_S)
            self.process = None
        Switch.stop(self, deleteIntfs)


switches = {"twinpath": TwinpathSwitch}
