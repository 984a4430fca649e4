"""Certificates of gpubufd-peer: wrong ones, and new ones while it runs."""

import signal

import pytest

from certificates import Authority
from cluster import fetched
from test_peer import refused, share


@pytest.mark.host_only("about links, not about memory")
@pytest.mark.parametrize("how, sentence", [
    ("expired", "certificate has expired"),
    ("foreign", "unable to get local issuer certificate"),
])
# RELIABILITY.md: Other machines 20
def test_a_wrong_certificate(cluster, authority, tmp_path, how, sentence):
    """Of the machine that has the name: neither is it believed, nor may it read here."""
    wrong = {
        "expired": lambda: authority.sign("a", days=-1, stem="expired"),
        "foreign": lambda: Authority(tmp_path, "foreign").sign("a"),
    }[how]()
    a, b = cluster.start("a", "b", certificates={"a": wrong})
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        share(there, "y", b"1")
        assert sentence in refused(there, "x", "unavailable")
        refused(here, "y", "unavailable")
        assert here.names() == ["x"] and there.names() == ["y"]


@pytest.mark.host_only("about links, not about memory")
# RELIABILITY.md: Other machines 20
def test_the_certificate_of_another_machine(cluster):
    """Where a should be, by etcd."""
    z, b = cluster.start("z", "b")
    cluster.play("a", z.lane.port, "x")
    with z.connect() as here, b.connect() as there:
        share(here, "x", b"1", scope="local")
        assert "its certificate is that of z" in refused(there, "x", "unavailable")
        assert there.names() == []


@pytest.mark.host_only("about links, not about memory")
def test_new_certificates(cluster, authority):
    """SIGHUP reads them anew; connections that there are stay."""
    a, b = cluster.start("a", "b")
    certificate, key = authority.sign("a", stem="a")
    a.peer.process.send_signal(signal.SIGHUP)
    a.peer.wait_for("certificates reloaded")
    with open(certificate, "w") as file:
        file.write("no certificate")
    a.peer.process.send_signal(signal.SIGHUP)
    a.peer.wait_for("certificates not reloaded why=.*a.pem")
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        assert fetched(there, "x") == b"1"
