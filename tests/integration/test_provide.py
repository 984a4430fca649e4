"""provide, wanted, unwanted, decline: sessions that make objects for which others wait."""

import os
import random
import signal

import pytest

import device
from child import Child
from ctl import FAILED, Ctl
from peer import RpcError, bytes_layout, wait_until

LONG = 600_000


@pytest.fixture
def provider(daemon):
    return providing(daemon, "cols/")


def providing(daemon, *prefixes):
    peer = daemon.connect()
    peer.call("hello", protocol=1, client="loader")
    for prefix in prefixes:
        assert peer.call("provide", prefix=prefix) == {}
    return peer


def wanted(provider):
    return provider.notification("wanted")["params"]


def nothing_wanted(*peers):
    """Nobody is told anything; names are asked for at the end of a turn, so in the next at the latest."""
    for peer in peers:
        for _ in range(2):
            peer.no_notification()


def waiting(daemon, name, peer=None):
    """A session with an `open` of the name that waits, and the request."""
    peer = peer or daemon.connect()
    request = peer.request("open", name=name, wait_ms=LONG)
    peer.call("stats")
    return peer, request


def failure(peer, request):
    with pytest.raises(RpcError) as caught:
        peer.reply(request)
    return caught.value


def test_a_name_is_made_for_whoever_waits(daemon, provider):
    reader, request = waiting(daemon, "cols/a")
    params = wanted(provider)
    assert params == {"request": params["request"], "prefix": "cols/", "name": "cols/a", "uid": os.geteuid(),
                      "gid": os.getegid()}
    daemon.connect().error("timeout", "open", name="cols/a", wait_ms=20)
    provider.put("cols/a", b"made")
    assert reader.reply(request)["object"]["name"] == "cols/a"
    nothing_wanted(provider)
    stats = provider.call("stats")
    assert (stats["wanted"], stats["provided"], stats["declined"]) == (1, 1, 0)
    counted = {family["name"]: family["samples"][0]["value"] for family in provider.call("stats", families=True)["families"]
               if family["name"].startswith("gpubufd_names_")}
    assert [counted[f"gpubufd_names_{what}_total"] for what in ("wanted", "provided", "declined")] == [1, 1, 0]
    assert 0.02 <= counted["gpubufd_names_provided_seconds_total"]


def loads(peer):
    """The figures by prefix and result, without a result that of the names made and of their seconds."""
    return {
        (family["name"].split("_")[2], *sample["labels"].values()): sample["value"]
        for family in peer.call("stats", families=True)["families"]
        if family["name"].startswith("gpubufd_provider_")
        for sample in family["samples"]
    }


def test_what_a_prefix_brings_is_counted(daemon, provider):
    """The longest prefix counts; names of a request that waits are counted when it comes, each."""
    other = daemon.connect()
    other.call("provide", prefix='cols/"deep"/')
    reader = daemon.connect()
    ident = reader.request("open", names=["cols/a", "cols/b", 'cols/"deep"/c', "elsewhere"], wait_ms=60000)
    for one, name in ((provider, "cols/a"), (provider, "cols/b"), (other, 'cols/"deep"/c')):
        wanted(one)
        one.put(name)
    provider.put("elsewhere")
    reader.reply(ident)
    reader.call("open", name="cols/a")
    counted = loads(reader)
    assert counted.pop(("seconds", "cols/")) >= 0 and counted.pop(("seconds", 'cols/"deep"/')) >= 0
    assert counted == {
        ("opened", "cols/", "hit"): 1, ("opened", "cols/", "miss"): 2, ("names", "cols/"): 2,
        ("opened", 'cols/"deep"/', "hit"): 0, ("opened", 'cols/"deep"/', "miss"): 1, ("names", 'cols/"deep"/'): 1,
    }


def test_prefixes_that_are_counted_are_few(daemon, provider):
    """32, with those that are provided in the places of those that are no more."""
    for i in range(40):
        provider.call("provide", prefix=f"p/{i}/")
    for i in range(40):
        provider.call("provide", prefix=f"p/{i}/", end=True)
    assert len([key for key in loads(provider) if key[0] == "names"]) == 32
    provider.call("provide", prefix="new/")
    assert ("names", "new/") in loads(provider) and ("names", "cols/") in loads(provider)


def test_who_does_not_wait_asks_nobody(daemon, provider):
    reader = daemon.connect()
    assert "an open that waits" in reader.error("not_found", "open", name="cols/a").message
    assert "waits" not in reader.error("not_found", "open", name="other/a").message
    reader.error("timeout", "open", name="other/a", wait_ms=1)
    for which in ({"version": 7}, {"label": "x"}):
        reader.error("timeout", "open", name="cols/a", wait_ms=1, **which)
    nothing_wanted(provider)


def test_a_refusal_ends_the_opens(daemon, provider):
    waits = [waiting(daemon, "cols/a") for _ in range(3)]
    sentence = "no column \"a\" in \u00e4 file"
    assert provider.call("decline", request=wanted(provider)["request"], message=sentence) == {}
    for reader, request in waits:
        error = failure(reader, request)
        assert error.kind == "not_found" and error.data["name"] == "cols/a"
        assert error.message == f'"cols/a": {sentence}'
    assert provider.call("stats")["declined"] == 1
    # Nothing is remembered of it: the next open asks again.
    reader, request = waiting(daemon, "cols/a")
    provider.call("decline", request=wanted(provider)["request"], kind="unavailable", message="m" * 500)
    error = failure(reader, request)
    assert error.kind == "unavailable" and error.message == f'"cols/a": {"m" * 500}'
    reader, request = waiting(daemon, "cols/" + "\u00e4" * 125)
    provider.call("decline", request=wanted(provider)["request"], message="\u00e4" * 250)
    assert failure(reader, request).message == f'"cols/{"ä" * 125}": {"ä" * 250}'
    reader, request = waiting(daemon, "cols/a")
    provider.call("decline", request=wanted(provider)["request"])
    assert failure(reader, request).message == '"cols/a": its provider has declined'


# RELIABILITY.md: A provider 4
def test_a_refusal_that_is_none(daemon, provider):
    reader, request = waiting(daemon, "cols/a")
    number = wanted(provider)["request"]
    for params in ({"kind": "busy"}, {"message": "m" * 501}, {"message": 1}):
        provider.error("invalid", "decline", request=number, **params)
    other = providing(daemon, "cols/b")
    for peer, which in ((provider, number + 1), (provider, 0), (other, number), (reader, number)):
        assert "no request" in peer.error("not_found", "decline", request=which).message
    provider.call("decline", request=number)
    assert failure(reader, request).kind == "not_found"
    provider.error("not_found", "decline", request=number)  # said twice


def test_a_sentence_for_those_whose_time_ends(daemon, provider):
    waiting(daemon, "cols/a")
    request = wanted(provider)["request"]
    for sentence in ("nobody has it", "nobody has it yet"):  # the last one counts
        provider.call("decline", request=request, kind="timeout", message=sentence)
    reader = daemon.connect()
    told = reader.error("timeout", "open", name="cols/a", wait_ms=1).message
    assert told == f'"cols/a" did not appear within 1 ms: its provider, loader (pid {os.getpid()}): nobody has it yet'
    other = providing(daemon, "cols/")
    provider.close()
    assert wanted(other)["name"] == "cols/a"  # which has said nothing so far
    assert "was asked" in reader.error("timeout", "open", name="cols/a", wait_ms=1).message
    late, opened = waiting(daemon, "cols/a")
    other.put("cols/a", b"x")
    assert late.reply(opened)["object"]["name"] == "cols/a"
    assert other.call("stats")["declined"] == 0


def test_many_names_each_on_its_own(daemon, provider):
    provider.put("cols/there")
    names = ["cols/a", "cols/there", "cols/b", "cols/a"]
    reader = daemon.connect()
    request = reader.request("open", names=names, wait_ms=LONG)
    first, second = wanted(provider), wanted(provider)
    assert [first["name"], second["name"]] == ["cols/a", "cols/b"]
    provider.call("decline", request=second["request"], message="no")
    assert not reader.replies
    provider.put("cols/a")
    entries = reader.reply(request)["objects"]
    assert [e.get("object", {}).get("name") for e in entries] == ["cols/a", "cols/there", None, "cols/a"]
    assert entries[2]["error"]["message"] == '"cols/b": no'
    nothing_wanted(provider)


def test_what_a_provider_says_is_cleaned(daemon, provider):
    """Clients print the sentence."""
    reader, request = waiting(daemon, "cols/a")
    provider.call("decline", request=wanted(provider)["request"],
                  message='\x1b[31mno\n\u202efile\u2028 "é"\x9b\\')
    assert failure(reader, request).message == '"cols/a": ?[31mno??file? "é"?\\'


def test_what_waits_for_room_is_the_providers_own(daemon, provider, peer):
    """It is not told that another session has made what it makes itself, however long that waits for room."""
    lease = peer.create("full", bytes_layout(48 << 20), b"x")["lease"]
    reader, request = waiting(daemon, "cols/a")
    wanted(provider)
    fd, size = device.own_memory(bytes(32 << 20))
    layout = {**bytes_layout(size), "data": {"handle": 0, "offset": 0, "bytes": size}}
    registering = provider.request("register", fds=[fd], name="cols/a", wait_ms=LONG, handles=[device.handle(size)],
                                   layout=layout)
    os.close(fd)
    provider.wait_until_read()
    peer.call("release", lease=lease)
    peer.close()
    assert provider.reply(registering)["version"] == reader.reply(request)["object"]["version"]
    nothing_wanted(provider)


# RELIABILITY.md: A provider 3
def test_a_provider_that_does_not_answer_is_named(daemon, provider):
    waiting(daemon, "cols/a")  # so that it has been asked before the others' time is over
    wanted(provider)
    reader = daemon.connect()
    error = reader.error("timeout", "open", name="cols/a", wait_ms=1)
    assert f"its provider, loader (pid {os.getpid()}), was asked" in error.message
    assert "ms ago, and has not answered" in error.message
    waiting(daemon, "cols/b")
    wanted(provider)
    assert "ms ago after 1 other, and has not answered" in reader.error("timeout", "open", name="cols/b", wait_ms=1).message
    entry, = reader.call("open", names=["cols/a"], wait_ms=1)["objects"]
    assert "was asked" in entry["error"]["message"]
    assert "loader" not in reader.error("timeout", "open", name="other", wait_ms=1).message


# RELIABILITY.md: A provider 3
def test_a_stopped_provider(daemon):
    def work(peer):
        peer.call("hello", protocol=1, client="stopped")
        peer.call("provide", prefix="cols/")

    child = Child(daemon.path, work)
    os.kill(child.pid, signal.SIGSTOP)
    try:
        reader = daemon.connect()
        # More than it is told while it does not read, in names that are as long as they may be.
        for i in range(4):
            requests = [
                reader.request("open", name=f"cols/{i}-{k:02}-" + "x" * 230, wait_ms=500) for k in range(250)
            ]
            for request in requests:
                error = failure(reader, request)
                assert error.kind == "timeout" and "its provider" in error.message
        assert "provides" in [s for s in reader.call("sessions")["sessions"] if s["client"] == "stopped"][0]
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.kill()


# RELIABILITY.md: A provider 2
def test_a_provider_that_is_killed(daemon):
    def work(peer):
        peer.call("hello", protocol=1, client="killed")
        peer.call("provide", prefix="cols/")

    child = Child(daemon.path, work)
    reader, request = waiting(daemon, "cols/a")
    child.kill()
    nobody = "nobody who is here provides it"
    wait_until(lambda: nobody in reader.error("not_found", "stat", why=True, name="cols/a").message)
    late = providing(daemon, "cols/")
    assert wanted(late)["name"] == "cols/a"
    late.put("cols/a")
    assert reader.reply(request)["object"]["name"] == "cols/a"


@pytest.mark.root
def test_a_name_that_one_may_not_open(daemon, provider):
    """It is there, so nobody is asked, until it is deleted."""
    reader = daemon.connect_as(1001, 1001)
    request = reader.request("open", name="cols/a", wait_ms=LONG)
    params = wanted(provider)
    assert (params["uid"], params["gid"]) == (1001, 1001)
    provider.put("cols/a", mode="0600")
    second = reader.request("open", name="cols/a", wait_ms=LONG)
    reader.call("stats")
    nothing_wanted(provider)
    provider.call("delete", name="cols/a")
    provider.call("decline", request=wanted(provider)["request"], message="not for you")
    for ident in (request, second):
        assert failure(reader, ident).message == '"cols/a": not for you'


def test_limits(daemon_factory):
    daemon = daemon_factory("--limit", "user_provides=70", "--limit", "session_wanted=5")
    peer = providing(daemon, *(f"p{i}/" for i in range(64)))
    assert peer.error("limit", "provide", prefix="p64/").data["limit"] == "session_provides"
    peer.call("provide", prefix="p63/")
    other = providing(daemon, *(f"p{i}/" for i in range(6)))
    assert other.error("limit", "provide", prefix="p6/").data["limit"] == "user_provides"
    reader = daemon.connect()
    for i in range(12):
        reader.request("open", name=f"p9/{i}", wait_ms=LONG)
    requests = [wanted(peer) for _ in range(5)]
    nothing_wanted(peer)
    for i in range(5, 12):
        peer.notify("decline", request=requests.pop()["request"])
        requests.append(wanted(peer))
        assert requests[-1]["name"] == f"p9/{i}"
    peer.close()  # with all 64
    wait_until(lambda: not [s for s in reader.call("sessions")["sessions"] if len(s.get("provides", ())) == 64])
    for i in range(6, 64):
        other.call("provide", prefix=f"p{i}/")
    assert [wanted(other)["name"] for _ in range(5)]


def test_who_waits_is_asked_for_before_who_came_later(daemon_factory):
    """With one request at a time; a name that nobody waits for any more is passed over."""
    daemon = daemon_factory("--limit", "session_wanted=1")
    peer = providing(daemon, "")
    waits = [waiting(daemon, name) for name in ("a", "b", "c")]
    first = wanted(peer)
    waits[1][0].close()
    wait_until(lambda: "waiting" not in peer.error("not_found", "stat", why=True, name="b").message)
    peer.call("decline", request=first["request"])
    assert wanted(peer)["name"] == "c"


@pytest.mark.root
# RELIABILITY.md: Hostile clients 8
def test_users_take_turns(daemon_factory):
    """One user waits for 64 000 names: another's name is asked for at once, and next if the provider is full."""
    daemon = daemon_factory("--limit", "session_wanted=65")
    os.chmod(daemon.path, 0o666)
    crowd = [daemon.connect_as(1001, 1001) for _ in range(4)]
    for n in range(1000):
        crowd[n % 4].request("open", names=[f"cols/{n}/{i}" for i in range(64)], wait_ms=LONG)
    for peer in crowd:
        peer.call("stats")
    provider = providing(daemon, "cols/")
    asked = [wanted(provider) for _ in range(64)]  # user_wanted
    assert {one["uid"] for one in asked} == {1001}
    nothing_wanted(provider)
    wait_until(lambda: "is behind" in provider.error("not_found", "stat", why=True, name="cols/999/63").message)
    good = daemon.connect_as(1002, 1002)
    request = good.request("open", names=["cols/good", "cols/999/63"], wait_ms=LONG)
    told = [wanted(provider)]
    nothing_wanted(provider)
    (left,) = {"cols/good", "cols/999/63"} - {told[0]["name"]}
    wait_until(lambda: "is behind" in provider.error("not_found", "stat", why=True, name=left).message)
    provider.call("decline", request=asked[0]["request"])
    told.append(wanted(provider))
    assert {(one["name"], one["uid"]) for one in told} == {("cols/good", 1002), ("cols/999/63", 1002)}, \
        "a name that both wait for has the turn of the user with fewer names"
    provider.call("decline", request=asked[1]["request"])
    assert wanted(provider)["uid"] == 1001
    for name in ("cols/good", "cols/999/63"):
        provider.put(name, mode="0644")
    assert len(good.reply(request)["objects"]) == 2
    for peer in crowd:
        peer.close()
    assert daemon.connect().call("stats")


def looks(daemon, often):
    """The daemon's processor time for a provider with many prefixes that waits for a name which it says so `often`
    in each request, and says another prefix again and again."""
    name = "x" * 100
    peer = providing(daemon, *(name[:i] for i in range(63)))
    for _ in range(256):
        peer.request("open", names=[name] * often, wait_ms=LONG)
    peer.call("stats")
    begun = processor_ns(daemon)
    for end in [False, True] * 50:
        peer.call("provide", prefix=name[:63], end=end)
    took = processor_ns(daemon) - begun
    peer.close()
    return took


def processor_ns(daemon):
    with open(f"/proc/{daemon.process.pid}/schedstat") as file:
        return int(file.read().split()[0])


# RELIABILITY.md: Hostile clients 12
def test_a_name_that_is_said_often(daemon):
    """A request waits for it once, so who looks for a provider of it looks at each request once."""
    assert looks(daemon, 64) < 6 * looks(daemon, 1)


@pytest.mark.parametrize("prefix", ["rows/", "cols/"])
def test_a_provider_that_is_not_looked_for_in_time(daemon, prefix):
    """A wait of 1 ms may be over before; only a provider of the name can be behind with it."""
    providing(daemon, prefix)
    reader = daemon.connect()
    for n in range(50):
        message = reader.error("timeout", "open", name=f"cols/{n}", wait_ms=1).message
        assert "is behind" not in message, message


@pytest.mark.root
# RELIABILITY.md: A provider 6
def test_who_may_provide(daemon_factory):
    daemon = daemon_factory("--provider", "1001:cols/", "--provider", "1001:x", "--provider=1002:")
    allowed, all_names, other = (daemon.connect_as(uid, uid) for uid in (1001, 1002, 1003))
    for prefix in ("cols/", "cols/a/", "x", "xyz"):
        allowed.call("provide", prefix=prefix)
    for prefix in ("", "cols", "col", "y", "Cols/"):
        assert "--provider" in allowed.error("denied", "provide", prefix=prefix).message
    all_names.call("provide", prefix="")
    for prefix in ("", "cols/"):
        error = other.error("denied", "provide", prefix=prefix)
        assert "uid 1003" in error.message and "--provider 1003:PREFIX" in error.message
    reader = daemon.connect_as(1003, 1003)
    request = reader.request("open", name="cols/a", wait_ms=LONG)
    assert wanted(allowed)["uid"] == 1003
    allowed.put("cols/a", mode="0644")
    assert reader.reply(request)["object"]["uid"] == 1001


def test_sessions_says_what_is_provided(daemon):
    peer = providing(daemon, "a/", "ä\"/")
    waiting(daemon, "a/1")
    wanted(peer)
    told, = (s for s in peer.call("sessions")["sessions"] if "provides" in s)
    assert told["provides"] == ["a/", "ä\"/"] and told["wanted"] == 1 and told["client"] == "loader"


def test_the_command_line(daemon, directory):
    ctl = Ctl(daemon.path, directory)
    assert ctl("ps") == "nobody holds anything\n" and ctl.json("ps")["providers"] == []
    peer = providing(daemon, "cols/", "")
    waiting(daemon, "cols/a")
    wanted(peer)
    said = ctl("ps").splitlines()
    assert said[0].split() == ["session", "pid", "user", "client", "wanted", "provides"]
    assert [line.split()[3:] for line in said[1:3]] == [["loader", "1", "cols/"], ["loader", "1", "(all", "names)"]]
    (told,) = ctl.json("ps")["providers"]
    assert told["provides"] == ["cols/", ""] and told["pid"] == os.getpid()
    assert "1 waiting, and its provider" in ctl.fails(FAILED, "why", "cols/a")


@pytest.mark.root
def test_why_a_name_is_not_there(daemon, provider):
    reader = daemon.connect_as(1001, 1001)
    reader.request("open", name="cols/a", wait_ms=LONG)
    wanted(provider)
    for peer in (provider, reader):
        message = peer.error("not_found", "stat", why=True, name="cols/a").message
        assert "1 waiting" in message and f"(loader, pid {os.getpid()}), was asked" in message
    stranger = daemon.connect_as(1002, 1002)
    assert "waiting" not in stranger.error("not_found", "stat", why=True, name="cols/a").message
    reader.request("open", name="other", wait_ms=LONG)
    wait_until(lambda: "nobody" in reader.error("not_found", "stat", why=True, name="other").message)


# RELIABILITY.md: A provider 4
def test_opens_that_end_before_the_answer(daemon, provider):
    """Some so soon that nobody is asked; each of the others has a request that is over before the next."""
    reader = daemon.connect()
    for i in range(100):
        reader.error("timeout", "open", name=f"cols/{i % 3}", wait_ms=1)
    asked = provider.call("stats")["wanted"]
    told = [provider.notification() for _ in range(2 * asked)]
    for first, last in zip(told[::2], told[1::2]):
        assert (first["method"], last["method"]) == ("wanted", "unwanted")
        assert first["params"]["request"] == last["params"]["request"]
        assert set(last["params"]) == {"request", "prefix"}
    requests = [one["params"]["request"] for one in told[::2]]
    assert requests == sorted(set(requests)), "a number is used once"
    for request in requests[-1:]:
        provider.error("not_found", "decline", request=request)
    nothing_wanted(provider)


def test_a_provider_that_hangs_up_half_way(daemon):
    """Its last requests are carried out."""
    peer = providing(daemon, "")
    reader, request = waiting(daemon, "a")
    peer.notify("decline", request=wanted(peer)["request"], message="good-bye")
    peer.close()
    assert failure(reader, request).message == '"a": good-bye'


class Model:
    """The notifications of sessions, by docs/PROTOCOL.md: each name that is waited for is asked of one of them at most."""

    def __init__(self):
        self.prefixes = []  # (session, prefix), in the order in which they were said
        self.waits = {}  # name: [(session, request)]
        self.asked = {}  # name: (session, prefix)
        self.there = set()
        self.told = []  # (session, method, name or prefix)

    def ask(self):
        for name, waits in self.waits.items():
            if name in self.asked or name in self.there:
                continue
            fits = [(s, p) for s, p in self.prefixes if name.startswith(p) and any(w[0] != s for w in waits)]
            if fits:
                self.asked[name] = max(fits, key=lambda one: len(one[1]))  # the first of the longest
                self.told.append((self.asked[name][0], "wanted", name))

    def over(self, name, tell):
        if name in self.asked:
            session, prefix = self.asked.pop(name)
            if tell:
                self.told.append((session, "unwanted", prefix))

    def end(self, session, prefix=None):
        """Ends the providing of one prefix, or the session with all its waits."""
        if prefix is None:
            for name in list(self.waits):
                self.waits[name] = [w for w in self.waits[name] if w[0] != session]
                if not self.waits[name]:
                    del self.waits[name]
                    self.over(name, True)
        gone = [one for one in self.prefixes if one[0] == session and prefix in (None, one[1])]
        self.prefixes = [one for one in self.prefixes if one not in gone]
        for name in [name for name, one in self.asked.items() if one in gone]:
            del self.asked[name]
        self.told = [one for one in self.told if prefix is not None or one[0] != session]
        self.ask()


class Program:
    """Random requests of five sessions, each checked against the model."""

    NAMES = ("a", "a/b", "a/b/c", "b", "ab")
    PREFIXES = ("", "a", "a/", "a/b", "b")

    def __init__(self, daemon, seed):
        self.daemon, self.random, self.model = daemon, random.Random(seed), Model()
        self.peers, self.requests = {}, {}
        self.sessions = 0

    def session(self):
        if len(self.peers) < 5:
            self.sessions += 1
            self.peers[self.sessions] = self.daemon.connect()
            return self.sessions
        return self.random.choice(list(self.peers))

    def provide(self, session):
        prefix = self.random.choice(self.PREFIXES)
        self.peers[session].call("provide", prefix=prefix)
        if (session, prefix) not in self.model.prefixes:
            self.model.prefixes.append((session, prefix))

    def end(self, session):
        prefix = self.random.choice(self.PREFIXES)
        self.peers[session].call("provide", prefix=prefix, end=True)
        self.model.end(session, prefix)

    def open(self, session):
        name = self.random.choice(self.NAMES)
        if name not in self.model.there:
            request = self.peers[session].request("open", name=name, wait_ms=LONG)
            self.peers[session].call("stats")
            self.model.waits.setdefault(name, []).append((session, request))

    def put(self, session):
        name = self.random.choice(self.NAMES)
        self.peers[session].put(name, replace=True)
        self.model.there.add(name)
        if name in self.model.asked:
            self.model.over(name, self.model.asked[name][0] != session)
        for waiter, request in self.model.waits.pop(name, ()):
            assert self.peers[waiter].reply(request)["object"]["name"] == name

    def delete(self, session):
        if self.model.there:
            name = self.random.choice(sorted(self.model.there))
            self.peers[session].call("delete", name=name)
            self.model.there.remove(name)

    def decline(self, session):
        names = [name for name, (asked, _) in self.model.asked.items() if asked == session]
        if names:
            name = self.random.choice(names)
            self.peers[session].call("decline", request=self.requests[name], message=name.upper())
            self.model.over(name, False)
            for waiter, request in self.model.waits.pop(name):
                assert failure(self.peers[waiter], request).message == f'"{name}": {name.upper()}'

    def close(self, session):
        count = len(self.daemon.connect().call("sessions")["sessions"])
        self.peers.pop(session).close()
        self.daemon.peers[-1].call("stats")
        wait_until(lambda: len(self.daemon.peers[-1].call("sessions")["sessions"]) < count)
        self.daemon.peers.pop().close()
        self.model.end(session)

    def check(self):
        """All that is to be told comes; and nothing else."""
        self.model.ask()
        expected = {}
        for session, method, what in self.model.told:
            expected.setdefault(session, []).append((method, what))
        for session, told in expected.items():
            got = []
            for _ in told:
                message = self.peers[session].notification()
                params = message["params"]
                got.append((message["method"], params.get("name", params["prefix"])))
                if message["method"] == "wanted":
                    self.requests[params["name"]] = params["request"]
            assert sorted(got) == sorted(told), session
        self.model.told = []
        nothing_wanted(*self.peers.values())

    def run(self, steps):
        whats = [self.provide, self.open, self.open, self.open, self.put, self.delete, self.decline, self.decline,
                 self.end, self.close]
        for _ in range(steps):
            self.random.choice(whats)(self.session())
            self.check()


@pytest.mark.parametrize("seed", range(12))
# RELIABILITY.md: A provider 1
def test_random_programs(daemon, seed):
    Program(daemon, seed).run(60)
