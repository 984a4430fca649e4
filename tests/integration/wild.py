"""Objects of random layouts for readers of another user: their content is right, or it leads astray. Needs Python and
nothing else.

    wild.py SOCKET UID     for programs in other languages: each line [SEED, NAME] of its input publishes a wild object
"""

import fcntl
import json
import math
import os
import random
import struct
import sys

from layouts import TEXT, a_layout
from peer import Peer, RpcError, column, table

OFFSETS = {"utf8": "i", "binary": "i", "list": "i", "map": "i", "large_utf8": "q", "large_binary": "q", "large_list": "q"}
CODES = dict(zip(("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"), "bBhHiIqQ"))


def without_counts(layout):
    """The layout with as many nulls as there are."""
    if isinstance(layout, list):
        return [without_counts(one) for one in layout]
    if not isinstance(layout, dict):
        return layout
    counted = {key: without_counts(one) for key, one in layout.items() if key != "null_count"}
    return {**counted, "null_count": -1} if "dtype" in layout and "length" in layout else counted


class Filler:
    """Writes the content of one object. `right`: whether nothing in it leads astray, as far as it was written."""

    def __init__(self, peer, chance, wild):
        self.peer, self.chance, self.wild, self.right = peer, chance, wild, True

    def write(self, buffer, data):
        if buffer["bytes"]:
            self.peer.write(buffer, data[: buffer["bytes"]])

    def astray(self, letter, limit):
        """A number that is wrong, or might be."""
        bits = 8 * struct.calcsize(letter)
        low, high = (0, 2**bits) if letter.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        found = self.chance.choice([-1, 0, limit, limit + 1, low, high - 1, high // 2, 4000, 1 << 20, self.chance.randint(low, high - 1)])
        return min(max(found, low), high - 1)

    def lead(self, numbers, letter, limit):
        """Has one of the numbers go astray, or all."""
        if not self.wild or not numbers or self.chance.random() < 0.3:
            return
        self.right = False
        every = self.chance.random() < 0.3
        for i in range(len(numbers)) if every else [self.chance.randrange(len(numbers))]:
            numbers[i] = self.astray(letter, limit)

    def offsets(self, told, count, limit):
        numbers = sorted(self.chance.randint(0, limit) for _ in range(count + 1))
        letter = OFFSETS[told["dtype"]]
        self.lead(numbers, letter, limit)
        self.write(told["offsets"], struct.pack(f"<{count + 1}{letter}", *numbers))

    def codes(self, told, count, values, valid):
        """Those of nulls are anything."""
        bits = self.bits(told, count, valid if values else 0)
        letter = CODES[told["dtype"]]
        most = min(values, 2 ** (8 * struct.calcsize(letter) - letter.islower()))
        numbers = [self.chance.randrange(most) if most and valid else self.astray(letter, values) for valid in bits]
        self.right &= bool(values) or not any(bits)
        self.lead(numbers, letter, values)
        self.write(told["data"], struct.pack(f"<{count}{letter}", *numbers))

    def bits(self, told, count, valid):
        """Writes a mask if there is one: each bit is 1 with the chance `valid`. Returns the bits."""
        if "mask" not in told:
            return [1] * count
        bits = [int(self.chance.random() < valid) for _ in range(count)]
        data = bytearray((count + 7) // 8)
        for i, one in enumerate(bits):
            data[i // 8] |= one << i % 8
        self.write(told["mask"], data)
        return bits

    def fill(self, told, valid=0.7):
        dtype, children = told["dtype"], told.get("children", [])
        count = told.get("offset", 0) + (told["length"] if "length" in told else math.prod(told["shape"]))
        if dtype == "dictionary":
            self.codes(children[0], children[0].get("offset", 0) + children[0]["length"], children[1]["length"], valid)
            self.fill(children[1])
            return
        self.bits(told, count, valid)
        if dtype in OFFSETS:
            self.offsets(told, count, told["data"]["bytes"] if dtype in TEXT else children[0]["length"])
        if "data" in told:
            size = told["data"]["bytes"]
            self.write(told["data"], bytes(self.chance.choices(b"abcdefgh \xff\x80" if self.wild else b"abcdefgh", k=size)))
        if dtype == "map":
            self.map(children[0])
        else:
            for child in children:
                self.fill(child)

    def map(self, entries):
        """Entries and keys have no nulls."""
        solid = 0.7 if self.wild and self.chance.random() < 0.3 else 1
        self.bits(entries, entries.get("offset", 0) + entries["length"], solid)
        for child, valid in zip(entries["children"], (solid, 0.7)):
            self.fill(child, valid)
        key = entries["children"][0]
        self.right &= key["dtype"] != "null" and (key["dtype"] != "dictionary" or key["children"][1]["length"] > 0)


def seal(peer, made, final):
    for segment in made["segments"] if final else []:
        given = peer.segments[segment["id"], "rw"]
        given.unmap()
        fcntl.fcntl(given.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    peer.call("seal", lease=made["lease"], release=True)


def publish(peer, chance, name, wild):
    """Publishes a random object, which all may read; whether its content is right. None: it was refused."""
    layout = without_counts(a_layout(chance))
    if layout["kind"] == "bundle" or chance.random() < 0.8 and not layout.get("length"):
        return None
    final = chance.random() < 0.25
    try:
        made = peer.create(name, layout, mode="0644", replace=True, final=final)
    except RpcError as error:
        assert error.kind in ("invalid", "limit"), error
        return None
    filler = Filler(peer, chance, wild)
    told = made["object"]["layout"]
    for one in told["columns"] if told["kind"] == "table" else [told]:
        if told["kind"] in ("table", "column", "array"):
            filler.fill(one)
    seal(peer, made, final)
    return filler.right


def text_table(peer, name, offsets, data=b"abcdefgh" * 5, **params):
    """A table with one column u of utf8, as wide as it must be; what create() answers. It is not sealed."""
    count = len(offsets) - 1
    return peer.create(name, table(count, u={"dtype": "utf8", "data": {"bytes": len(data)}}), {
        "columns[0].data": data, "columns[0].offsets": struct.pack(f"<{count + 1}i", *offsets)}, mode="0644", **params)


def categories(peer, name, codes, values=("a", "b", "c"), **params):
    """A column of int32 codes of texts; what create() answers. It is not sealed."""
    layout = column("dictionary", len(codes), children=[
        {"dtype": "int32", "length": len(codes)},
        {"dtype": "utf8", "length": len(values), "data": {"bytes": len(values)}}])
    return peer.create(name, layout, {
        "children[0].data": struct.pack(f"<{len(codes)}i", *codes), "children[1].data": "".join(values).encode(),
        "children[1].offsets": struct.pack(f"<{len(values) + 1}i", *range(len(values) + 1))}, mode="0644", **params)


def main(path, uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    with Peer(path) as peer:
        for line in sys.stdin:
            seed, name = json.loads(line)
            chance = random.Random(seed)
            while publish(peer, chance, name, True) is None:
                pass
            print("true", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
