"""A stream under every order of steps and deaths, by Spin: its frames, their work on a GPU, and who sleeps.

Each step that the argument needs is left out once, and Spin then finds what goes wrong.
"""

import pathlib
import shutil
import subprocess

import pytest

MODELS = pathlib.Path(__file__).parent

pytestmark = [
    pytest.mark.hunt,
    pytest.mark.skipif(not shutil.which("spin"), reason="the model checker Spin is not installed (Debian: spin)"),
]

NEWEST, EACH, BOTH = "-DREADERS=1", "-DREADERS=2", "-DREADERS=3"


def check(tmp_path, *defines, model="stream"):
    """How many errors there are, and how many states were looked at."""
    subprocess.run(["spin", "-a", *defines, MODELS / f"{model}.pml"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    compile_ = ["gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"]
    subprocess.run(compile_, cwd=tmp_path, check=True)
    said = subprocess.run(["./pan", "-m200000", "-E"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "depth reached" in said and "max search depth too small" not in said, said
    errors = int(said.split("errors: ")[1].split()[0])
    states = int(said.split(" states, stored")[0].split()[-1])
    return errors, states


@pytest.mark.parametrize("readers", [NEWEST, EACH])
def test_every_order(tmp_path, readers):
    errors, states = check(tmp_path, readers, "-DFRAMES=3")
    assert errors == 0
    assert states > 50_000


def test_both_readers(tmp_path):
    errors, states = check(tmp_path, BOTH, "-DFRAMES=2", "-DREADS=1")
    assert errors == 0
    assert states > 1_000_000


@pytest.mark.parametrize(
    "readers, step",
    [
        (NEWEST, "NO_READER_FENCE"),
        (NEWEST, "NO_WRITER_FENCE"),
        (NEWEST, "NO_LOOK"),
        (NEWEST, "NO_WRITER_CHECK"),
        (NEWEST, "FORGOTTEN"),
        (EACH, "NO_WAIT"),
    ],
)
def test_no_step_is_needless(tmp_path, readers, step):
    errors, _ = check(tmp_path, readers, f"-D{step}")
    assert errors == 1


@pytest.mark.parametrize(
    "who, step",
    [
        ("READER", "ALL"),
        ("READER", "NO_WAKER_FENCE"),
        ("READER", "NO_SLEEPER_FENCE"),
        ("READER", "HEAD_BEFORE_BELL"),
        ("READER", "COMPARED_FIRST"),
        ("MOVED", "ALL"),
        ("MOVED", "NO_WAKER_FENCE"),
        ("MOVED", "NO_SLEEPER_FENCE"),
    ],
)
def test_who_sleeps_is_woken(tmp_path, who, step):
    errors, _ = check(tmp_path, f"-D{who}", f"-D{step}", model="stream_waits")
    assert errors == (step != "ALL")


@pytest.mark.parametrize("step", ["ALL", "MARK_IN_PLACE", "OUT_IS_OVER", "NO_END_WAITS"])
def test_work_on_a_gpu(tmp_path, step):
    errors, _ = check(tmp_path, f"-D{step}", model="stream_work")
    assert errors == (step != "ALL")
