"""Machines with a network each: namespaces that are joined by cables, which a test may pull."""

import os
import subprocess

from peer import wait_until


def refusal():
    """Why there can be none here; "": there can."""
    script = "ip link add one type veth peer name two"
    try:
        run = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return "" if run.returncode == 0 else f"network namespaces are not permitted: {run.stderr.strip()}"


class Network:
    """Machines 1 to `count`, at 10.77.0.1 and so on, each with a cable to each other one."""

    def __init__(self, count):
        # Of a process that sleeps: a namespace lives as long as somebody is in it.
        self.machines = {i: subprocess.Popen(["unshare", "--net", "sleep", "1000000"]) for i in range(1, count + 1)}
        own = os.readlink("/proc/self/ns/net")
        for i, machine in self.machines.items():
            wait_until(lambda pid=machine.pid: os.readlink(f"/proc/{pid}/ns/net") != own)
            self.ip(i, "link", "set", "lo", "up")
            self.ip(i, "address", "add", f"{self.address(i)}/32", "dev", "lo")
        for one in self.machines:
            for two in range(one + 1, count + 1):
                self.ip(one, "link", "add", f"to{two}", "type", "veth", "peer", "name", f"to{one}",
                        "netns", self.machines[two].pid)
                self.plug(one, two)

    @staticmethod
    def address(number):
        return f"10.77.0.{number}"

    def inside(self, number):
        """The words that a command begins with to run there."""
        return ["nsenter", f"--net=/proc/{self.machines[number].pid}/ns/net"]

    def ip(self, number, *command):
        subprocess.run([*self.inside(number), "ip", *map(str, command)], check=True)

    def plug(self, one, two):
        """Routes go with a link that is down."""
        for near, far in ((one, two), (two, one)):
            self.ip(near, "link", "set", f"to{far}", "up")
        for near, far in ((one, two), (two, one)):
            self.ip(near, "route", "replace", f"{self.address(far)}/32", "dev", f"to{far}", "src", self.address(near))

    def pull(self, one, two):
        self.ip(one, "link", "set", f"to{two}", "down")

    def close(self):
        for machine in self.machines.values():
            machine.kill()
            machine.wait()
