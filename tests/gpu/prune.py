"""Blanks the machine code for other GPUs in a shared library, which then packs to a fraction: prune.py LIBRARY... --keep 90

A CUDA library has each of its kernels compiled for a dozen architectures. They lie in the section .nv_fatbin, a row of
containers; a container has an entry for each architecture. The driver loads the one that fits the GPU, and the payload of the
others, and of PTX, becomes zeros here. Nothing moves, so all that points into the file stays right.
"""

import argparse
import pathlib
import struct

# Little endian, as the compiler writes them: nvcc's fatbinary.
CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, bytes of this header, bytes of the payload; architecture
MAGIC = 0xBA55ED50
MACHINE_CODE = 2  # the other kind is PTX
# ELF, of 64 bits: where a file's header tells of its sections, and what it tells of each.
SECTIONS_AT, SECTION_COUNTS = struct.Struct("<40xQ"), struct.Struct("<58xHHH")
SECTION = struct.Struct("<I12x8xQQ")  # name; place in the file, bytes


def sections(data):
    """(name, begin, end) of each section of an ELF file."""
    table, = SECTIONS_AT.unpack_from(data)
    size, count, names_at = SECTION_COUNTS.unpack_from(data)
    found = [SECTION.unpack_from(data, table + i * size) for i in range(count)]
    names = found[names_at][1] if count else 0
    for name, begin, length in found:
        end = data.index(b"\0", names + name)
        yield bytes(data[names + name:end]).decode(), begin, begin + length


def entries(data, begin, end):
    """(kind, architecture, begin, end of the payload) of each entry of a section of containers."""
    magic = struct.pack("<I", MAGIC)
    while (begin := data.find(magic, begin, end)) >= 0:
        _, _, header, length = CONTAINER.unpack_from(data, begin)
        entry, begin = begin + header, begin + header + length
        if begin > end:
            raise ValueError(f"a container at {entry - header:#x} does not lie in its section")
        while entry + ENTRY.size <= begin:
            kind, _, header, size, architecture = ENTRY.unpack_from(data, entry)
            if header < ENTRY.size or entry + header + size > begin:
                raise ValueError(f"an entry at {entry:#x} does not lie in its container")
            yield kind, architecture, entry + header, entry + header + size
            entry += header + size


def prune(path, keep):
    """(bytes kept, bytes blanked) of a library, which is changed in place. `keep`: architectures, 90 for sm_90."""
    data, kept, blanked = bytearray(path.read_bytes()), 0, 0
    if data[:5] != b"\x7fELF\x02":
        return 0, 0
    for name, begin, end in sections(data):
        if name != ".nv_fatbin":
            continue
        for kind, architecture, payload, last in entries(data, begin, end):
            if kind == MACHINE_CODE and architecture in keep:
                kept += last - payload
            else:
                data[payload:last] = bytes(last - payload)
                blanked += last - payload
    if blanked and not kept:
        raise ValueError(f"{path} has no code for {', '.join(f'sm_{one}' for one in keep)}")
    if blanked:
        path.write_bytes(data)
    return kept, blanked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=pathlib.Path)
    parser.add_argument("--keep", type=int, nargs="+", required=True)
    options = parser.parse_args()
    for path in options.libraries:
        kept, blanked = prune(path, set(options.keep))
        print(f"{path}: {kept} bytes of machine code kept, {blanked} blanked")


if __name__ == "__main__":
    main()
