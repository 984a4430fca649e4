#!/usr/bin/env python3
"""Throughput of gpubufd-peer over loopback, beside the throughput of its parts in the same run:
OpenSSL's cipher on one core, sendfile from a memory file into mapped memory, a bare stream of TLS, iperf3 where it is
installed, and, where ucx_perftest (ucx-utils) is, UCX's own messages beside what comes by UCX. Both ends are here, so that
the cores are shared by them. Prints a line of JSON, in which "rounds" are pairs of a fetch and its bound.

    tests/bench/bench_peer.py [MIB [DEVICE]]

An object of MIB MiB (256) on that device (host; or cuda:0, at both ends), on the build in $GPUBUF_BUILD.
"""

import contextlib
import json
import mmap
import os
import pathlib
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import etcds  # noqa: E402
from certificates import Authority  # noqa: E402
from peer import Peer, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build")).resolve()
ROUNDS, SMALL = 5, 500
LANE = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"}


def cipher():
    """Bytes a second of AES-128-GCM, in records as TLS has them."""
    told = subprocess.run(["openssl", "speed", "-evp", "aes-128-gcm", "-bytes", "16384", "-seconds", "2"],
                          check=True, capture_output=True, text=True).stdout
    return float(re.search(r"AES-128-GCM +([\d.]+)k", told, re.I).group(1)) * 1000


def sent(size):
    """Bytes a second of sendfile over loopback into shared memory."""
    source, target = os.memfd_create("source"), mmap.mmap(-1, size)
    os.ftruncate(source, size)
    with mmap.mmap(source, size) as memory:
        memory[:] = b"x" * size
    listener = socket.create_server(("127.0.0.1", 0))

    def send():
        with socket.create_connection(listener.getsockname()) as sink:
            done = 0
            while done < size:
                done += os.sendfile(sink.fileno(), source, done, size - done)

    begin = time.perf_counter()
    thread = threading.Thread(target=send)
    thread.start()
    stream, _ = listener.accept()
    with stream, memoryview(target) as view:
        got = 0
        while got < size:
            got += stream.recv_into(view[got:])
    thread.join()
    listener.close()
    os.close(source)
    return size / (time.perf_counter() - begin)


def carried(seconds=2):
    """Bytes a second of iperf3's one stream over loopback; None without iperf3."""
    if not shutil.which("iperf3"):
        return None
    port = str(free_port())
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(seconds), "-J"],
                                  capture_output=True, text=True)
            if told := json.loads(done.stdout or "{}").get("end", {}).get("sum_received"):
                return told["bits_per_second"] / 8
            time.sleep(0.05)  # it does not listen yet
    finally:
        server.kill()
        server.wait()
    return None


def pumped(directory, size):
    """Bytes a second of a bare stream of TLS over loopback, of OpenSSL's own cipher, into memory."""
    certificate, key = Authority(directory).sign("pump")
    context, block, room = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), bytes(1 << 20), bytearray(1 << 20)
    context.load_cert_chain(certificate, key)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    listener = socket.create_server(("127.0.0.1", 0))

    def send():
        with asking.wrap_socket(socket.create_connection(listener.getsockname())) as sink:
            for _ in range(0, size, len(block)):
                sink.sendall(block)
            sink.recv(1)  # a close with unread session tickets would reset what is on its way

    thread = threading.Thread(target=send)
    thread.start()
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as stream:
        begin, got = time.perf_counter(), 0
        while got < size:
            more = stream.recv_into(room)
            if not more:
                raise RuntimeError(f"the bare stream of TLS ended after {got} of {size} bytes")
            got += more
        stream.send(b".")
    thread.join()
    listener.close()
    return size / (time.perf_counter() - begin)


def by_ucx(size):
    """Bytes a second of UCX's own messages of that size, over its TCP; None without ucx_perftest."""
    if not shutil.which("ucx_perftest"):
        return None
    port, words = str(free_port()), ["-t", "tag_bw", "-s", str(size), "-n", "6", "-w", "1"]
    server = subprocess.Popen(["ucx_perftest", "-p", port], env={**os.environ}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            done = subprocess.run(["ucx_perftest", "127.0.0.1", "-p", port, *words], env={**os.environ},
                                  capture_output=True, text=True)
            if told := re.search(r"^Final:.*", done.stdout, re.M):
                return float(told.group(0).split()[6]) * (1 << 20)
            time.sleep(0.05)  # it does not listen yet
    finally:
        server.kill()
        server.wait()
    return None


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def seconds(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(stack, *argv):
    process = stack.enter_context(subprocess.Popen([str(word) for word in argv], stderr=subprocess.DEVNULL))
    stack.callback(process.terminate)
    return process


def machines(stack, directory, size, device, options=()):
    """Two machines: the paths of their sockets, and their peers, with those options. `device`: of both, or a pair."""
    devices = device if isinstance(device, tuple) else (device, device)
    authority = Authority(directory)
    ports = {node: free_port() for node in "ab"}
    paths, peers = [], []
    etcd = stack.enter_context(contextlib.closing(etcds.Etcd()))
    for node, device in zip("ab", devices):
        path = os.path.join(directory, f"{node}.sock")
        start(stack, BUILD / "bin/gpubufd", "--socket", path, "--device", f"{device}:{2 * size + (64 << 20)}")
        wait_until(lambda path=path: os.path.exists(path))
        certificate, key = authority.sign(node)
        peers.append(start(
            stack, BUILD / "bin/gpubufd-peer", "--socket", path, "--listen", f"127.0.0.1:{ports[node]}",
            "--authority", authority.certificate, "--certificate", certificate, "--key", key,
            "--etcd", etcd.url, "--advertise", f"127.0.0.1:{ports[node]}", *options,
            *(["--gpu", device] if device != "host" else [])))
        paths.append(path)
    for port in ports.values():
        wait_until(lambda port=port: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    return paths, peers


def publish(path, size, device):
    """Publishes the object, and many small ones; the session that holds them."""
    session = Peer(path)
    layout = {"kind": "bytes", "bytes": size}
    made = session.create("large", layout, scope="cluster", mode="0644")
    place = made["object"]["layout"]["data"]
    if device == "host":
        memory, block = session.segment(place["segment"]).map(), os.urandom(1 << 20)
        for at in range(0, size, 1 << 20):
            memory[place["offset"] + at:place["offset"] + at + (1 << 20)] = block
    session.call("seal", lease=made["lease"])
    for i in range(SMALL):
        session.create_object(f"small{i}", {"kind": "bytes", "bytes": 1}, scope="cluster", mode="0644")
    return session


def fetch(path, name):
    """Seconds until the object is fetched; then it is deleted."""
    with contextlib.closing(Peer(path)) as session:
        begin = time.perf_counter()
        session.call("open", name=name, wait_ms=60000)
        took = time.perf_counter() - begin
        session.call("delete", name=name)
    return took


def over_ucx(size, device):
    """Fetches by UCX's TCP, beside UCX alone."""
    with contextlib.ExitStack() as stack:
        paths, _ = machines(stack, stack.enter_context(tempfile.TemporaryDirectory()), size, device,
                            ["--ucx=trusted-network"])
        stack.enter_context(contextlib.closing(publish(paths[0], size, device)))
        fetch(paths[1], "large")  # which makes the lane
        rounds, floors = [], []
        for _ in range(ROUNDS):
            rounds.append(size / fetch(paths[1], "large"))
            floors.append(by_ucx(size))
    best, floor = max(rounds), max(filter(None, floors), default=None)
    both = [(one, other) for one, other in zip(rounds, floors) if other]
    return {"ucx_rounds": both, "ucx_fetch_gb_s": round(best / 1e9, 2), "ucx_tag_gb_s": floor and round(floor / 1e9, 2),
            "of_ucx": floor and round(best / floor, 2)}


def beside(best, link, pump):
    return {"iperf3_gb_s": link and round(link / 1e9, 2), "of_iperf3": link and round(best / link, 2),
            "tls_stream_gb_s": round(pump / 1e9, 2), "of_tls_stream": round(best / pump, 2)}


def main():
    size = int(sys.argv[1] if len(sys.argv) > 1 else 256) << 20
    device = sys.argv[2] if len(sys.argv) > 2 else "host"
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.environ.update(LANE)  # of the peers, which read it where they use UCX
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        paths, peers = machines(stack, directory, size, device)
        stack.enter_context(contextlib.closing(publish(paths[0], size, device)))
        fetch(paths[1], "small0")
        rounds, floors, ciphers = [], [], []
        before = [seconds(one) for one in peers]
        for _ in range(ROUNDS):
            rounds.append(size / fetch(paths[1], "large"))
            floors.append(sent(size))
        spent = [(seconds(one) - was) / (ROUNDS * size / 1e9) for one, was in zip(peers, before)]
        ciphers.append(cipher())
        links, pumps = zip(*((carried(), pumped(directory, size)) for _ in range(2)))
        small = sorted(fetch(paths[1], f"small{i}") for i in range(1, SMALL))
    best, floor = max(rounds), max(floors)
    # Each byte is enciphered at one end, sent, and deciphered at the other: the slowest of the three bounds it.
    bound = min(ciphers[0], floor)
    print(json.dumps({
        "device": device, "mib": size >> 20, "rounds": [(one, min(ciphers[0], other)) for one, other in zip(rounds, floors)],
        "fetch_gb_s": round(best / 1e9, 2), "sendfile_gb_s": round(floor / 1e9, 2),
        "cipher_gb_s": round(ciphers[0] / 1e9, 2), "of_the_bound": round(best / bound, 2),
        **beside(best, max(filter(None, links), default=None), max(pumps)),
        "seconds_a_gb": [round(one, 2) for one in spent],
        **over_ucx(size, device),
        "small_us": [round(1e6 * small[len(small) * part // 100]) for part in (50, 99)],
    }))


if __name__ == "__main__":
    main()
