"""The directory of names in etcd (docs/CLUSTER.md), by the code that gpubufd-peer runs: tests/peer/directory
with a real etcd, which is stopped, killed, compacted, and parted from its nodes by a proxy."""

import shutil
import subprocess
import time

import pytest

import etcds
from device import ROOT
from etcds import UNAVAILABLE, Etcd, Node
from relay import Proxy

pytestmark = [
    pytest.mark.skipif(not etcds.ETCD, reason="needs etcd"),
    pytest.mark.host_only("it has no memory of devices"),
]

NOT_FOUND = -32001


@pytest.fixture
def run():
    """`run(class, ...)`: made, and ended after the test, the last first."""
    made = []

    def make(what, *args, **options):
        made.append(what(*args, **options))
        return made[-1]

    yield make
    for one in reversed(made):
        one.close()


def wait_until(condition):
    end = time.monotonic() + etcds.PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- what it is for ----


# RELIABILITY.md: Other machines 12
def test_a_published_name_is_found_by_others(run, etcd):
    a = run(Node, "a", etcd.url, port=7001).joined()
    b = run(Node, "b", etcd.url, port=7002).joined()
    for i in range(50):  # also where the watch has not told b yet
        published = a.publish(f"cols/{i}", version=i + 1, size=1000 + i)
        assert published["status"] == 0
        assert b.find(f"cols/{i}")["places"] == [
            {"node": "a", "host": "127.0.0.1", "port": 7001, "origin": "a", "revision": published["revision"],
             "version": i + 1, "bytes": 1000 + i}
        ]
    assert b.list() == sorted(f"cols/{i}" for i in range(50))
    assert b.list("cols/4") == ["cols/4"] + [f"cols/4{i}" for i in range(10)]
    absent = b.find("none")
    assert absent["status"] == NOT_FOUND and '"none"' in absent["message"]
    assert b.ask("knows a", event="knows")["knows"] and not b.ask("knows c", event="knows", name="c")["knows"]


def test_the_address_of_a_machine_that_the_watch_has_not_told_yet(run, etcd):
    proxy = run(Proxy, etcd)
    b = run(Node, "b", proxy.url, port=7002, timeout_ms=30000).joined()
    proxy.set(blind=True)
    a = run(Node, "a", etcd.url, port=7001).joined()
    assert a.publish("x")["status"] == 0
    found = b.find("x", once=True)
    assert found["status"] == 0, found
    assert [place["port"] for place in found["places"]] == [7001]
    assert b.list() == ["x"] and proxy.watching


def test_a_name_is_withdrawn_and_a_newer_version_replaces(run, etcd):
    a = run(Node, "a", etcd.url).joined()
    b = run(Node, "b", etcd.url).joined()
    first = a.publish("x", version=1)["revision"]
    second = a.publish("x", version=2, seen=first)["revision"]
    assert second > first
    b.wait(event="changed", name="x", revision=second)
    a.send(f"withdraw x {first}")  # an old one: nothing happens
    assert b.find("x")["places"][0]["version"] == 2
    a.send(f"withdraw x {second}")
    b.wait(event="changed", name="x", revision=0)
    assert b.find("x")["status"] == NOT_FOUND


def test_a_word_ends_with_its_revision(run, etcd):
    def words():
        return [key for key in etcd.keys() if "/words/" in key]

    a = run(Node, "a", etcd.url).joined()
    revision = 0
    for version in range(1, 4):
        revision = a.publish("x", version=version, seen=revision)["revision"]
        a.send(f"word x {version}")
        wait_until(lambda: words() == [f"/gpubufd/words/x@{revision}"])
    a.send(f"withdraw x {revision}")
    wait_until(lambda: not words())


def publish_waves(nodes, names, wave=40):
    """All nodes publish all names, a few at a time as the peer does; [(node, what it was told), ...]."""
    told = []
    for begin in range(0, len(names), wave):
        part = names[begin:begin + wave]
        since = [node.count() for node in nodes]
        for turn, node in enumerate(nodes):  # not all in the same order, or the first would always win
            first = turn * len(part) // len(nodes)
            node.send(*(f"publish {name} 1 1 0" for name in part[first:] + part[:first]))
        for node, at in zip(nodes, since):
            first = [node.wait(at, event="published", name=name) for name in part]
            told.append((node, [node.publish(one["name"]) if one["status"] == UNAVAILABLE else one for one in first]))
    return told


@pytest.mark.hunt
# RELIABILITY.md: Other machines 11
def test_1000_races_have_one_winner_each(run, etcd):
    nodes = [run(Node, f"n{i}", etcd.url).joined() for i in range(4)]
    winners = {}
    for node, told in publish_waves(nodes, [f"race/{i}" for i in range(1000)]):
        for one in told:
            if one["status"] == 0:
                assert one["name"] not in winners
                winners[one["name"]] = (node.name, one["revision"])
            else:
                assert "was published by n" in one["message"]
    assert len(winners) == 1000
    assert len({name for name, _ in winners.values()}) > 1
    reader = run(Node, "reader", etcd.url).joined()
    found = [reader.find(f"race/{i}") for i in range(1000)]
    assert {one["name"]: (one["places"][0]["node"], one["places"][0]["revision"]) for one in found} == winners


def test_many_names_are_few_transactions_and_a_loser_fails_alone(run, etcd):
    a = run(Node, "a", etcd.url).joined()
    b = run(Node, "b", etcd.url).joined()
    taken = b.publish("many/250")["revision"]
    before, since = etcd.revision(), a.count()
    a.send(*(f"publish many/{i} {i + 1} 1 0" for i in range(500)))
    told = {one["name"]: one for one in a.wait(since, many=500, event="published")}
    refused = told.pop("many/250")
    assert "was published by b meanwhile" in refused["message"]
    assert all(one["status"] == 0 for one in told.values())
    assert etcd.revision() - before < 250
    c = run(Node, "c", etcd.url).joined()
    places = {name: c.find(name)["places"][0] for name in ("many/0", "many/250", "many/499")}
    assert {name: place["revision"] for name, place in places.items()} == {
        "many/0": told["many/0"]["revision"], "many/250": taken, "many/499": told["many/499"]["revision"]}
    before = etcd.revision()
    a.send(*(f"withdraw {name} {one['revision']}" for name, one in told.items()))
    wait_until(lambda: c.list("many/") == ["many/250"])
    assert etcd.revision() - before < 250


def test_the_same_name_twice_at_once(run, etcd):
    """Transactions with a key that is put twice are refused."""
    a = run(Node, "a", etcd.url).joined()
    since = a.count()
    a.send("publish first 1 1 0", *(f"publish {name} {version} 1 0" for version in (1, 2) for name in "xy"))
    told = a.wait(since, many=5, event="published")
    assert [one["status"] for one in told] == [0] * 5
    found = {name: a.ask(f"find {name}", event="found", name=name) for name in "xy"}
    assert all("this machine's own" in one["message"] for one in found.values())
    assert run(Node, "b", etcd.url).joined().find("x")["places"][0]["version"] == 2


def test_copies_are_places_too_until_their_node_ends(run, etcd):
    a, b, c = (run(Node, name, etcd.url, port=7000 + i).joined() for i, name in enumerate("abc"))
    revision = a.publish("x@1/y")["revision"]
    b.send(f"copied x@1/y {revision} 77", "copied x@1/y 1 5")
    wait_until(lambda: len(c.find("x@1/y")["places"]) == 2)
    places = {one["node"]: one for one in c.find("x@1/y")["places"]}
    assert places["b"]["version"] == 77 and places["b"]["origin"] == "a" and places["b"]["revision"] == revision
    assert len(b.find("x@1/y")["places"]) == 1  # not b itself
    b.close()
    wait_until(lambda: [one["node"] for one in c.find("x@1/y")["places"]] == ["a"])


def test_a_copy_that_goes_while_etcd_is_told_of_it_is_told_of_no_more(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", etcd.url).joined()
    b = run(Node, "b", proxy.url, timeout_ms=60_000).joined()
    revision = a.publish("x")["revision"]
    b.find("x")
    proxy.set(slow=b"request_put")
    before = etcd.revision()
    b.send(f"copied x {revision} 77", f"copied x {revision} 0")
    wait_until(proxy.holds_any)
    b.find("other")  # by another connection: what was asked for before it has come
    proxy.set()
    wait_until(lambda: etcd.revision() == before + 2)
    assert not [key for key in etcd.keys() if "/copies/" in key]


def test_a_copy_that_went_while_etcd_was_away_is_told_of_no_more(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", etcd.url).joined()
    b = run(Node, "b", proxy.url, timeout_ms=2000).joined()
    revision = a.publish("x")["revision"]
    b.find("x")

    def told():  # a request that etcd does not answer in time is not done again
        b.send(f"copied x {revision} 77")
        return [key for key in etcd.keys() if "/copies/" in key]

    wait_until(told)
    proxy.set(cut=True)
    b.send(f"copied x {revision} 0")
    b.find("other", once=True)
    proxy.reset()  # what it holds never comes
    proxy.set()
    wait_until(lambda: not [key for key in etcd.keys() if "/copies/" in key])


# RELIABILITY.md: Other machines 9
def test_a_node_that_ends_takes_its_names_along_at_once(run, etcd):
    a = run(Node, "a", etcd.url, ttl=600).joined()
    b = run(Node, "b", etcd.url).joined()
    a.publish("x")
    b.wait(event="changed", name="x")
    a.close()
    b.wait(event="changed", name="x", revision=0)
    assert b.list() == []


# RELIABILITY.md: Other machines 9
def test_a_node_that_is_killed_takes_its_names_along_with_its_lease(run, etcd):
    a = run(Node, "a", etcd.url, ttl=3).joined()
    b = run(Node, "b", etcd.url).joined()
    revision = a.publish("x")["revision"]
    b.wait(event="changed", name="x", revision=revision)
    a.kill()
    again = run(Node, "a", etcd.url, ttl=3)  # waits for that lease, too
    b.wait(event="changed", name="x", revision=0)
    again.joined()
    assert again.publish("x")["revision"] > revision


def test_a_node_name_is_one_machines(run, etcd):
    first = run(Node, "a", etcd.url).joined()
    second = run(Node, "a", etcd.url)
    wait_until(lambda: [one for one in list(second.told) if '"a" is in use' in one["why"]])  # before it etcd may be busy
    assert not [one for one in second.told if one["forgot"]]
    assert second.publish("x", once=True)["status"] == UNAVAILABLE
    first.close()
    second.joined()
    assert second.publish("x")["status"] == 0


# RELIABILITY.md: Other machines 15
def test_a_node_is_known_to_have_ended_before_its_many_names_are(run):
    """Their end comes in several messages, in the order of keys; copies of a node that has ended stay. Whoever comes
    meanwhile lists them in two pages."""
    etcd = run(Etcd, "--max-request-bytes", "4096")  # a message has at most these, and 512 KiB
    a = run(Node, "a", etcd.url, ttl=600).joined()
    b = run(Node, "b", etcd.url, options=["--witness", "zz"]).joined()
    z = run(Node, "zz", etcd.url, ttl=600).joined()
    names = [f"{'n' * 700}/{i:04}" for i in range(1200)]
    assert all(one["status"] == 0 for _, told in publish_waves([z], names, 100) for one in told)
    b.wait(event="changed", name=names[-1])
    told = run(Node, "c", etcd.url).joined().ask("list", event="listed", many=len(names) // 256 + 1)
    assert [name for one in told for name in one["names"]] == names
    since = b.count()
    z.close()
    lost = b.wait(since, many=len(names), event="changed", revision=0)
    assert {one["name"] for one in lost} == set(names) and not any(one["known"] for one in lost)
    assert a.publish("later")["status"] == 0
    b.wait(event="changed", name="later")


def test_a_node_ends_soon_where_etcd_is_dead(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", *[proxy.url] * 8, ttl=600, timeout_ms=60000).joined()
    proxy.set(cut=True)
    begun = time.monotonic()
    a.close()
    assert time.monotonic() - begun < 50  # five seconds, and not 60 for each endpoint


# ---- etcd goes ----


# RELIABILITY.md: Other machines 14
def test_without_etcd_nothing_is_found_or_published_and_it_says_why(run):
    node = run(Node, "a", "http://127.0.0.1:1", ttl=2)
    node.wait(event="state")
    for answer in (node.publish("x", once=True), node.find("x", once=True), node.ask("list", event="listed")):
        assert answer["status"] == UNAVAILABLE
        assert "etcd at http://127.0.0.1:1" in answer["message"]


def test_etcd_is_killed_and_comes_back_with_all_names(run, etcd):
    a = run(Node, "a", etcd.url, ttl=120).joined()
    b = run(Node, "b", etcd.url, ttl=120).joined()
    revision = a.publish("x")["revision"]
    b.wait(event="changed", name="x", revision=revision)
    etcd.kill()
    assert a.publish("y", once=True)["status"] == UNAVAILABLE
    assert b.find("x")["places"][0]["revision"] == revision  # within the lease it is known
    etcd.start()
    assert a.publish("z")["status"] == 0
    b.wait(event="changed", name="z")  # the watch goes on, too
    for node in (a, b):
        assert not [one for one in node.told if one["event"] == "state" and one["why"]]
    assert b.list() == ["x", "z"]


def test_another_endpoint_is_asked(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", "http://127.0.0.1:1", proxy.url, etcd.url, ttl=30, timeout_ms=500).joined()
    b = run(Node, "b", etcd.url).joined()
    assert a.publish("x")["status"] == 0
    proxy.set(cut=True)
    assert a.publish("y")["status"] == 0
    b.publish("z")
    a.wait(event="changed", name="z")  # by a watch at the other endpoint
    assert not [one for one in a.told if one["event"] == "state" and one["forgot"]]


# ---- answers that are lost ----


def test_a_publish_whose_answer_is_lost_is_known_for_its_own(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", proxy.url, etcd.url, timeout_ms=2000).joined()
    b = run(Node, "b", etcd.url).joined()
    proxy.set(deaf=True)
    published = a.publish("x")
    assert published["status"] == 0
    assert b.find("x")["places"][0]["revision"] == published["revision"]
    assert len([one for one in b.told if one["event"] == "changed"]) == 1  # written once


# RELIABILITY.md: Other machines 10
def test_what_nobody_knows_to_be_published_is_withdrawn(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", proxy.url, timeout_ms=2000).joined()
    b = run(Node, "b", etcd.url).joined()
    proxy.set(deaf=True)
    assert a.publish("x", once=True)["status"] == UNAVAILABLE
    b.wait(event="changed", name="x")
    proxy.set()
    b.wait(event="changed", name="x", revision=0)


# ---- a network that is parted ----


# RELIABILITY.md: Other machines 10
def test_no_old_name_comes_back_after_a_partition(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", proxy.url, ttl=10).joined()
    b = run(Node, "b", etcd.url).joined()
    c = run(Node, "c", etcd.url).joined()
    old = {name: a.publish(name)["revision"] for name in ("x", "y")}
    for name, revision in old.items():
        b.wait(event="changed", name=name, revision=revision)
        c.wait(event="changed", name=name, revision=revision)
    since = a.count()
    proxy.set(cut=True)
    a.send("publish late 1 1 0")  # is held in the network, and comes to etcd when all is over
    assert "could not be renewed" in a.wait(since, event="state", forgot=True)["why"]
    assert a.ask("knows b", event="knows")["knows"]  # what was known goes on
    for name in old:
        b.wait(event="changed", name=name, revision=0)
        c.wait(event="changed", name=name, revision=0)
    assert a.find("x", once=True)["status"] == UNAVAILABLE
    newer = b.publish("x", version=9)
    assert newer["status"] == 0
    since_a, since_c = a.count(), c.count()
    proxy.set()
    a.joined(since_a)
    refused = a.publish("x", seen=old["x"])
    assert refused["status"] != 0 and "was published by b" in refused["message"]
    assert a.find("x")["places"][0]["node"] == "b"
    b.publish("mark")
    c.wait(event="changed", name="mark")
    assert c.list() == ["mark", "x"]
    after = [one for one in c.told[since_c:] if one["event"] == "changed" and one["revision"]]
    assert {one["name"] for one in after} <= {"x", "mark"}
    assert a.publish("y")["revision"] > old["y"]  # under the new epoch


# RELIABILITY.md: Other machines 12
def test_changes_that_etcd_has_compacted_are_listed_anew(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", etcd.url, ttl=120).joined()
    c = run(Node, "c", proxy.url, ttl=120).joined()
    gone = a.publish("gone")["revision"]
    c.wait(event="changed", name="gone", revision=gone)
    proxy.set(cut=True)
    a.send(f"withdraw gone {gone}")
    for i in range(20):
        a.publish(f"new/{i:02}")
    etcd.compact()
    proxy.reset()
    proxy.set()
    c.wait(event="changed", name="gone", revision=0)
    c.wait(event="changed", name="new/19")
    wait_until(lambda: c.list() == [f"new/{i:02}" for i in range(20)])
    assert a.publish("later")["status"] == 0
    c.wait(event="changed", name="later")


# RELIABILITY.md: Other machines 15
def test_what_goes_while_names_are_listed_anew_is_withdrawn(run, etcd):
    proxy = run(Proxy, etcd)
    a = run(Node, "a", etcd.url).joined()
    b = run(Node, "b", proxy.url, timeout_ms=60_000).joined()
    own, other = b.publish("own")["revision"], a.publish("other")["revision"]
    a.wait(event="changed", name="own", revision=own)
    b.send(f"copied other {other} 77")
    wait_until(lambda: [key for key in etcd.keys() if "/copies/" in key])
    proxy.set(cut=True)
    for i in range(3):
        a.publish(f"news/{i}")
    etcd.compact()
    proxy.reset()
    since = b.count()
    proxy.set(slow=b"POST /v3/kv/range")
    assert "compacted" in b.wait(since, event="state")["why"]
    b.send(f"withdraw own {own}", f"copied other {other} 0")
    b.ask("knows a", event="knows")
    proxy.set()
    a.wait(event="changed", name="own", revision=0)
    wait_until(lambda: not [key for key in etcd.keys() if "/copies/" in key])


# ---- TLS ----


def make_certificates(directory, *machines):
    return subprocess.run([ROOT / "scripts" / "make-certificates", directory, *machines], check=True,
                          capture_output=True, text=True)


def test_certificates_are_valid_where_a_clock_is_behind(tmp_path):
    """By almost an hour; verified strictly, as newer programs do."""
    make_certificates(tmp_path, "a,192.0.2.1")
    files = [tmp_path / "authority.pem", tmp_path / "a.pem"]
    behind = str(int(time.time()) - 3500)
    for strict in ([], ["-x509_strict"]):
        subprocess.run(["openssl", "verify", "-attime", behind, *strict, "-CAfile", *files], check=True, capture_output=True)
    for file, days in zip(files, (3650, 825)):
        told = subprocess.run(["openssl", "x509", "-noout", "-checkend", str((days - 1) * 86400), "-in", file],
                              check=False, capture_output=True)
        assert told.returncode == 0, (file, told)


def test_etcd_by_tls_with_certificates_of_the_cluster(run, tmp_path):
    ours, others = str(tmp_path / "ours"), str(tmp_path / "others")
    address = etcds.fresh_address()[0]
    make_certificates(ours, f"server,{address}", "a", "b")
    make_certificates(others, "a")

    def files(directory, node):
        return ["--ca", f"{ours}/authority.pem", "--certificate", f"{directory}/{node}.pem",
                "--key", f"{directory}/{node}.key"]

    etcd = run(Etcd, "--client-cert-auth", "--trusted-ca-file", f"{ours}/authority.pem",
               "--cert-file", f"{ours}/server.pem", "--key-file", f"{ours}/server.key", scheme="https")

    def refusal(node):
        answer = node.find("x", once=True)
        assert answer["status"] == UNAVAILABLE, answer
        return answer["message"]

    a = run(Node, "a", etcd.url, options=files(ours, "a")).joined()
    b = run(Node, "b", etcd.url, options=files(ours, "b")).joined()
    assert a.publish("x")["status"] == 0
    assert b.find("x")["status"] == 0
    for options in (files(others, "a"), files(ours, "a")[:2], []):
        stranger = run(Node, "c", etcd.url, options=options)
        wait_until(lambda stranger=stranger: etcd.url in refusal(stranger))
    deceived = ["--ca", f"{others}/authority.pem", *files(ours, "a")[2:]]
    stranger = run(Node, "d", etcd.url, options=deceived)
    wait_until(lambda: "certificate" in refusal(stranger))  # docs/CLUSTER.md says so


def test_certificates_are_made_once_and_refused_names_leave_none(tmp_path):
    directory = str(tmp_path / "pki")
    make_certificates(directory, "node1,node1.example.org,192.0.2.1,2001:db8::1")
    before = {path.name: path.read_bytes() for path in (tmp_path / "pki").iterdir()}
    assert set(before) == {"authority.pem", "authority.key", "node1.pem", "node1.key"}
    again = "node1,node1.example.org,192.0.2.1,2001:DB8:0::1"
    said = make_certificates(directory, again, "node2").stdout
    assert "node1.pem is kept: it is for DNS:node1, DNS:node1.example.org, IP" in said and "node2.pem node2.key" in said
    after = {path.name: path.read_bytes() for path in (tmp_path / "pki").iterdir()}
    assert {name: after[name] for name in before} == before and set(after) - set(before) == {"node2.pem", "node2.key"}
    assert all((tmp_path / "pki" / name).stat().st_mode & 0o77 == 0 for name in after if name.endswith(".key"))
    text = subprocess.run(["openssl", "x509", "-in", f"{directory}/node1.pem", "-noout", "-ext", "subjectAltName"],
                          check=True, capture_output=True, text=True).stdout
    assert "DNS:node1, DNS:node1.example.org, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1" in text
    with pytest.raises(subprocess.CalledProcessError) as other:
        make_certificates(directory, "node1,192.0.2.7", "node2")
    assert "node1.pem is for DNS:node1, DNS:node1.example.org" in other.value.stderr
    assert "and not for DNS:node1, IP Address:192.0.2.7: remove it" in other.value.stderr
    assert "node2.pem is kept" in other.value.stdout
    shutil.copytree(directory, tmp_path / "others")
    (tmp_path / "others" / "authority.pem").unlink()
    with pytest.raises(subprocess.CalledProcessError) as other:  # a new authority, and certificates of the old one
        make_certificates(str(tmp_path / "others"), "node2")
    assert "node2.pem is of no use" in other.value.stderr
    for bad in ("a/b", "", "authority", "node3,x,DNS:y z", "node3,a=b"):
        with pytest.raises(subprocess.CalledProcessError):
            make_certificates(directory, bad)
    assert {path.name for path in (tmp_path / "pki").iterdir()} == set(after)
