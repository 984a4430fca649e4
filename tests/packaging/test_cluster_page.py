"""docs/CLUSTER.md and the source: what the headings of "When something is wrong" quote is what the programs print."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "CLUSTER.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## When something is wrong\n")[1].split("\n## ")[0]
SOURCES = [source for folder in ("client", "daemon") for source in sorted((ROOT / folder).rglob("*.c"))]

# Quoted in a heading, but no sentence of the project's: commands, kinds of errors, and the word
# that libcurl and OpenSSL have in each of theirs.
NO_SENTENCES = {"gpubufctl where NAME", "etcdctl member list", "unavailable", "timeout", "…certificate…"}
BELOW = ["did not appear within …", "its provider, gpubufd-peer (pid …): no machine of the cluster has …", "it does not answer",
                        "was asked … ms ago", "and has not answered",
                        "its certificate: …", "no TLS connection: …", "UCX cannot be loaded: …", "UCX cannot be used: …",
                        "nothing comes that way", "UCX sends nothing", "this machine has no such lane"]


def sentences():
    """The string literals of the sources, those that stand side by side as one."""
    literal = r'"((?:[^"\\\n]|\\.)*)"'
    for source in SOURCES:
        for found in re.finditer(rf"(?:{literal}\s*(?:PRI\w+\s*)?)+", source.read_text(encoding="utf-8")):
            yield "".join(re.findall(literal, found[0])).replace('\\"', '"')


SAID = "\n".join(sentences())


def quoted():
    headings = re.findall(r"^#### (.+)$", SECTION, re.M)
    return [quote for heading in headings for quote in re.findall(r"`([^`]+)`", heading) if quote not in NO_SENTENCES]


@pytest.mark.parametrize("quote", quoted() + BELOW)
def test_it_is_said_so(quote):
    assert quote in SECTION
    pieces = re.split(r'…|: |\w+=|"|gpubufd-peer|NAME|NODE|HOST|PORT|\b8 s\b', quote)
    pieces = [piece.strip(" ():") for piece in pieces if re.search(r"[a-z]{2}", piece)]
    assert pieces and [piece for piece in pieces if piece not in SAID] == []


def test_there_are_enough():
    """The section is still found, and its quotes are."""
    assert len(quoted()) >= 15


def test_etcd_is_told_a_directory_of_its_own():
    """Debian's etcd has started by then, and its data are of a cluster of one machine."""
    assert re.search(r"^ETCD_DATA_DIR=(?!/var/lib/etcd/default)/var/lib/etcd/\w+$", PAGE, re.M)
