"""Completion in bash, zsh and fish: every command, option and name, asked of the shells themselves."""

import functools
import json
import re
import subprocess

import pytest

from conftest import BUILD, ROOT
from ctl import GPUBUFCTL, OK
from peer import DEADLINE
from test_gpubufctl import COMMANDS

PROTOCOL = json.loads((ROOT / "proto" / "protocol.json").read_text())
# They need descriptors, or a session that lives on.
NOT_TO_BE_CALLED = {"create", "seal", "settle", "open", "cache", "join", "register", "unmap", "watch", "unwatch", "provide",
                    "decline"}


def run(ctl, words, lines):
    """Output of a shell that is given these lines, with our gpubufctl before all others. LeakSanitizer looks elsewhere."""
    env = {**ctl.env, "PATH": f"{BUILD / 'bin'}:{ctl.env['PATH']}", "HOME": str(ctl.directory),
           "ASAN_OPTIONS": ctl.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    done = subprocess.run([*words, lines], env=env, cwd=ctl.directory, capture_output=True,
                          text=True, timeout=DEADLINE)
    assert done.returncode == OK and done.stderr == "", done
    return done.stdout.splitlines()


@functools.cache
def options(*command):
    """The long ones, as --help tells them."""
    told = subprocess.run([GPUBUFCTL, *command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-., |    )(--[a-z-]+)", told, re.MULTILINE))


@pytest.fixture
def named(ctl):
    for name in ("some thing", "some:one", "ns::lib"):
        ctl("put", name, "-", input=b"x")
    return ctl


def test_bash(named):
    script = named.file("completion", named("completion", "bash"))
    named("put", "it's", "-", input=b"x")

    def complete(*words):
        # compopt outside of a real completion is the only thing that may complain; it is silenced.
        return run(named, ["bash", "--norc", "-c"], f"""
            source {script}
            COMP_WORDS=(gpubufctl {' '.join(words)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
            COMP_LINE="${{COMP_WORDS[*]}}"; COMP_LINE=${{COMP_LINE// : /:}}; COMP_LINE=${{COMP_LINE/% :/:}}
            COMP_LINE=${{COMP_LINE// :: /::}}; COMP_LINE=${{COMP_LINE/% ::/::}}
            COMP_POINT=${{#COMP_LINE}}
            _gpubufctl; printf '%s\\n' "${{COMPREPLY[@]}}"
        """)

    assert complete("''") == list(COMMANDS)
    assert complete("st") == ["stat", "stats", "stop"]
    assert options() <= set(complete("--"))
    for command in COMMANDS:
        assert options(command) <= set(complete(command, "--")), command
    assert complete("put", "--ev") == ["--evict"]
    assert complete("put", "--evict", "''") == ["spill", "drop", "keep"]
    assert complete("show", "so") == ["some\\ thing", "some:one"]
    assert complete("show", r"'some\ '") == ["some\\ thing"]
    assert complete("show", "some", ":") == complete("show", "some", ":", "o") == ["one"]  # as bash cuts it
    assert complete("show", "ns", "::") == complete("show", "ns", "::", "l") == ["lib"]
    assert complete("show", r"\'some\ t") == complete("show", r"\"some\ t") == ["some thing"]  # open quotes
    assert complete("show", r"\'some:o") == ["some:one"]
    assert complete("show", r"\'it") == [""] and complete("show", "it") == [r"it\'s"]
    assert complete("put", "x", "comp") == ["completion"]
    assert complete("completion", "''") == ["bash", "zsh", "fish"]
    arrays = {dtype["name"] for dtype in PROTOCOL["dtypes"] if dtype["array"]}
    assert set(complete("put", "--dtype", "''")) == arrays == set(complete("create", "-d", "''"))
    assert complete("put", "-e", "drop", "some", ":") == ["one"]
    assert complete("put", "some", ":", "one", "comp") == ["completion"]
    methods = {method["name"] for method in PROTOCOL["methods"]}
    assert complete("call", "''") == sorted(methods - NOT_TO_BE_CALLED)


def test_zsh(named):
    """The lines that zsh's own functions are given, which would need a terminal."""
    script = named.file("_gpubufctl", named("completion", "zsh"))
    run(named, ["zsh", "-f", "-n"], script)

    def complete(*words):
        lines = run(named, ["zsh", "-f", "-c"], f"""
            compdef() {{ }}
            compset() {{ print -r -- "$@" }}
            _files() {{ print files }}
            _describe() {{ print -rl -- $found }}
            source {script}
            words=(gpubufctl {' '.join(words)}); CURRENT=$#words
            _gpubufctl
        """)
        return [re.split(r"(?<!\\):", line)[0] for line in lines]

    assert complete("''") == list(COMMANDS) == complete("help", "''")
    assert set(complete("--")) == options()
    for command in COMMANDS:
        assert set(complete(command, "--")) == options(command), command
    assert complete("put", "--evict", "''") == ["spill", "drop", "keep"]
    assert complete("put", "--evict=") == [f"--evict={word}" for word in ("spill", "drop", "keep")]
    assert complete("put", "x", "''")[0] == "-P --*=" and "files" in complete("get", "x", "a")
    assert complete("show", "''") == [r"ns\:\:lib", "some thing", r"some\:one"]
    assert complete("-S", f"{named.path}.other", "show", "''") == [""]


def test_fish(named):
    script = named.file("gpubufctl.fish", named("completion", "fish"))
    run(named, ["fish", "--no-config", "-n"], script)

    def complete(line):
        lines = run(named, ["fish", "--no-config", "-c"], f"source {script}; complete -C '{line}'")
        return [line.partition("\t")[0] for line in lines]

    assert complete("gpubufctl ") == sorted(COMMANDS) == complete("gpubufctl help ")
    assert set(complete("gpubufctl --")) == options()
    for command in COMMANDS:
        assert set(complete(f"gpubufctl {command} --")) == options(command), command
    assert complete("gpubufctl put --evict ") == ["drop", "keep", "spill"]
    assert complete("gpubufctl completion ") == ["bash", "fish", "zsh"]
    assert complete("gpubufctl show so") == ["some thing", "some:one"]
    assert complete("gpubufctl put x gpubufctl.f") == ["gpubufctl.fish"]
    elsewhere = named.path + ".other"
    assert complete(f"gpubufctl --socket {elsewhere} show so") == []
    assert complete(f"gpubufctl -S {named.path} show so") == ["some thing", "some:one"]
