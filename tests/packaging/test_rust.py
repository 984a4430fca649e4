"""The crate for Rust: its bindings are of this header, and it works beside a daemon."""

import pathlib
import re
import shutil
import subprocess

import pytest

from outside import ENVIRONMENT, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATE = ROOT / "client" / "rust"
BUILD = ROOT / "build"
SYS = (CRATE / "src" / "sys.rs").read_text()
SIZES = {"bool": 1, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "usize": 8, "::std::os::raw::c_int": 4,
         "::std::os::raw::c_uint": 4, "gpubuf_kind": 4, "gpubuf_evict": 4, "gpubuf_scope": 4, "ArrowDeviceType": 4}
structs = {name: re.findall(r"^    pub (\w+): ([^\n]*?)(?:,|<)?$", body, re.M)
           for name, body in re.findall(r"pub struct (\w+) \{\n(.*?)\n\}", SYS, re.S) if "_unused" not in body}


def extent(kind):
    """The size and the alignment of a type of the bindings."""
    if array := re.fullmatch(r"\[(.*); (\d+)usize\]", kind):
        size, alignment = (1, 1) if array[1].endswith("c_char") else extent(array[1])
        return size * int(array[2]), alignment
    if kind in structs:
        offsets, size, alignment = placed(kind)
        return size, alignment
    size = SIZES.get(kind, 8 if kind.startswith(("*", "::core::option::Option")) else None)
    assert size, f"the size of {kind} is not known here"
    return size, size


def placed(name):
    """Where the members of a struct lie, by C's rule, which repr(C) follows."""
    end, widest, offsets = 0, 1, {}
    for member, kind in structs[name]:
        size, alignment = extent(kind)
        end = -(-end // alignment) * alignment
        offsets[member.rstrip("_")] = end
        end, widest = end + size, max(widest, alignment)
    return offsets, -(-end // widest) * widest, widest


def test_the_bindings_are_of_this_header(tmp_path):
    """Every function, every member where it is, and the numbers of enums."""
    header = (ROOT / "include" / "gpubuf.h").read_text()
    functions = set(re.findall(r"^GPUBUF_API [^;]*?\b(gpubuf_\w+)\(", header, re.M))
    bound = set(re.findall(r"pub fn (gpubuf_\w+)\(", SYS))
    assert len(functions) > 90 and functions == bound, "make rust-bindings writes client/rust/src/sys.rs anew"
    asserts = [f'_Static_assert(offsetof(struct {name}, {member}) == {offset}, "{name}.{member}");'
               for name in structs for member, offset in placed(name)[0].items()]
    asserts += [f'_Static_assert({name} == {number}, "{name}");'
                for name, number in re.findall(r"pub const (GPUBUF_\w+): [^=&]* = (-?\d+);", SYS)]
    assert len(asserts) > 150
    source = tmp_path / "check.c"
    source.write_text("#include <gpubuf.h>\n" + "\n".join(asserts) + "\n")
    subprocess.run(["cc", "-std=c11", "-I", ROOT / "include", "-fsyntax-only", source], check=True)


@pytest.fixture(scope="module")
def cargo():
    if not shutil.which("cargo"):
        pytest.skip("needs cargo, of the package of that name")
    lib = str(BUILD / "lib")
    environment = {**ENVIRONMENT, "GPUBUF_BUILD": str(BUILD), "GPUBUF_LIB_DIR": lib, "LD_LIBRARY_PATH": lib,
                   "CARGO_TARGET_DIR": str(BUILD / "rust")}

    def cargo(*words):
        done = run("cargo", *words, cwd=CRATE, env=environment)
        return done.stdout + done.stderr

    return cargo


def test_the_crate_works_beside_a_daemon(cargo):
    said = cargo("test", "--offline", "--all-targets")
    assert int(re.search(r"test result: ok\. ([1-9]\d*) passed; 0 failed", said)[1]) >= 8, said
    assert "warning" not in said, said


def test_the_page_and_the_package(cargo):
    assert "3 passed" in cargo("test", "--offline", "--doc")
    packed = cargo("package", "--offline", "--allow-dirty", "--no-verify", "--list").split()
    assert {"Cargo.toml", "README.md", "build.rs", "src/lib.rs", "src/sys.rs"} <= set(packed)


def test_a_crate_of_one_s_own_links_with_what_make_install_left(tmp_path, cargo):
    """Outside of the tree, by pkg-config alone, as client/rust/README.md says."""
    prefix, crate = tmp_path / "prefix", tmp_path / "crate"
    run("make", "install", f"PREFIX={prefix}", cwd=ROOT)
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text(
        f'[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ngpubuf = {{ path = "{CRATE}" }}\n')
    (crate / "src" / "main.rs").write_text(
        'fn main() { println!("{:?}", gpubuf::Client::connect().err().map(|e| e.kind())); }\n')
    environment = {key: value for key, value in ENVIRONMENT.items() if key not in ("GPUBUF_LIB_DIR", "LD_LIBRARY_PATH")}
    environment.update(PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"), CARGO_TARGET_DIR=str(tmp_path / "target"))
    run("cargo", "build", "--offline", cwd=crate, env=environment)
    said = run(tmp_path / "target/debug/own", env={**environment, "LD_LIBRARY_PATH": str(prefix / "lib"),
                                                       "GPUBUFD_SOCKET": "/nonexistent/socket"})
    assert said.stdout == "Some(Connect)\n"
