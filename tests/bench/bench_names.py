#!/usr/bin/env python3
"""How fast the names of a machine come into etcd and go, and what a name costs. etcd is one server, by TLS as on a
cluster, with its data in memory, so that no disk is measured. Prints a line of JSON.

    tests/bench/bench_names.py [NAMES]

Of two machines one publishes NAMES (20000) objects, on the build in $GPUBUF_BUILD.
"""

import contextlib
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

from etcds import Etcd, fresh_address  # noqa: E402
from peer import Peer, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build")).resolve()
NAMES = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
CLOCK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Process(subprocess.Popen):
    def seconds(self):
        return seconds(self.pid)

    def bytes(self):
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE


def seconds(pid):
    """Of processors, that it has used."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / CLOCK


def start_etcd(stack, directory):
    """A server that peers reach by TLS at `by_tls`, and this program at `url`."""
    address, port = fresh_address()
    subprocess.run([ROOT / "scripts/make-certificates", directory, f"etcd,{address}", "a", "b"], check=True,
                   stdout=subprocess.DEVNULL)
    etcd = stack.enter_context(contextlib.closing(Etcd(
        "--listen-client-urls", f"{{url}},https://{address}:{port}", "--cert-file", f"{directory}/etcd.pem", "--key-file",
        f"{directory}/etcd.key", "--trusted-ca-file", f"{directory}/authority.pem", "--client-cert-auth")))
    etcd.by_tls = f"https://{address}:{port}"
    return etcd


def start(stack, program, *options):
    return stack.enter_context(ended(Process([str(BUILD / "bin" / program), *options], stderr=subprocess.DEVNULL)))


def start_daemon(stack, path):
    start(stack, "gpubufd", "--socket", path, "--device", "host:1G")
    wait_until(lambda: os.path.exists(path))
    return path


def start_peer(stack, directory, node, daemon, etcd):
    """The peer, and the path of its socket."""
    query = f"{directory}/{node}.peer"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = [word for kind, file in (("authority", "authority.pem"), ("certificate", f"{node}.pem"), ("key", f"{node}.key"))
             for word in (f"--{kind}", f"{directory}/{file}", f"--etcd-{kind}", f"{directory}/{file}")]
    peer = start(stack, "gpubufd-peer", "--socket", daemon, "--listen", f"127.0.0.1:{port}", "--query", query,
                 "--advertise", f"127.0.0.1:{port}", "--etcd", etcd.by_tls, *files)
    wait_until(lambda: os.path.exists(query))
    return peer, query


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def figure(query, name):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(query)
        asked.sendall(b'{"method":"metrics"}\n')
        families = json.loads(asked.makefile("rb").readline())["families"]
    return next(one["samples"][0]["value"] for one in families if one["name"] == f"gpubufd_peer_{name}")


def count(etcd):
    """Keys that etcd has; with no name they are those of the two machines."""
    return int(etcd.post("kv/range", {"key": "AA==", "range_end": "AA==", "count_only": True}).get("count", 0))


def wait(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.02)


def measure(processes, act, condition):
    """Names a second from the act until the condition holds, and each process's time for one. `processes`: name and pid."""
    before = [seconds(pid) for _, pid in processes]
    begin = time.perf_counter()
    act()
    wait(condition)
    took = time.perf_counter() - begin
    spent = {f"{who}_us": round(1e6 * (seconds(pid) - was) / NAMES) for (who, pid), was in zip(processes, before)}
    return {"a_second": round(NAMES / took), **spent}


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    names = [f"cols/{i:06}" for i in range(NAMES)]
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        etcd = start_etcd(stack, directory)
        here, there = (start_daemon(stack, f"{directory}/{node}.daemon") for node in "ab")
        session = stack.enter_context(contextlib.closing(Peer(here)))
        for name in names:  # before there is a peer: how fast a daemon makes them is not the matter
            session.create_object(name, {"kind": "bytes", "bytes": 1}, scope="cluster", mode="0644")
        other, _ = start_peer(stack, directory, "b", there, etcd)
        wait(lambda: count(etcd) == 1)
        empty = other.bytes()
        made = []
        processes = [("etcd", etcd.process.pid), ("other", other.pid)]
        put = measure(processes, lambda: made.extend(start_peer(stack, directory, "a", here, etcd)),
                      lambda: figure(made[1], "names_published") == NAMES)
        publisher, query = made
        memory = {"publisher": publisher.bytes() - empty, "other": other.bytes() - empty}
        processes.append(("publisher", publisher.pid))
        gone = measure(processes, lambda: session.delete(names), lambda: count(etcd) == 2)
        print(json.dumps({"names": NAMES, "published": put, "withdrawn": gone,
                          **{f"{who}_bytes": round(grown / NAMES) for who, grown in memory.items()}}))


if __name__ == "__main__":
    main()
