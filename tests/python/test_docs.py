"""The guide's code works, and so do the examples."""

import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT, environment, standing


@pytest.fixture
def env(daemon):
    return environment(GPUBUFD_SOCKET=daemon.path)


def run(env, *arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], env=env, capture_output=True,
                          text=True, timeout=300, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def patient(code):
    """The code with longer timeouts of its loops over events: a busy machine may tell none in a tenth of a second."""
    return re.sub(r"timeout=0\.[12]\)", "timeout=3)", code)


def test_guide(client, env, np, pd):
    text = (ROOT / "docs" / "PYTHON.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) >= 7
    out = run(env, "-c", patient("\n".join(blocks)))
    assert "gpubufd.Table 'prices': 5 rows × 3 columns" in out and "synced None" in out


@pytest.mark.parametrize("page", ["PYTHON-TYPES", "STREAMS"])
def test_one_example(client, env, np, page):
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.M | re.S)
    run(env, "-c", block)


def test_readme(client, env, pd):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(blocks) == 3  # two terminals; and pandas
    for block in blocks:
        said = re.findall(r"print\(.*\)\s+# ([^:\n]*)", block)
        assert run(env, "-c", block) == "".join(line + "\n" for line in said)


def test_migrating(client, env, np):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "MIGRATING.md").read_text(), re.M | re.S)
    assert len(blocks) == 4
    run(env, "-W", "error", "-c", "\n".join(blocks))


def test_weights(client, env, np):
    text = (ROOT / "docs" / "WEIGHTS.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 2
    run(env, "-c", "\n".join(blocks))
    assert {"step", "copy"} < set(client.keys())


def test_publish_and_read(client, env):
    examples = ROOT / "examples" / "python"
    assert "3,201 rows" in run(env, examples / "publish.py")
    out = run(env, examples / "read.py")
    assert out.startswith("3201 rows of 16 columns: Title") and "995 values, 5 nulls" in out
    assert "rows 10 to 20: 10 values" in run(env, examples / "read.py", "movies", "Title", 10, 20)


EXAMPLES = ROOT / "examples" / "python"


def timed_both_ways(out, place, rows):
    """Both ways were timed, and gave the same result, which the script sees to itself."""
    assert f"{rows:,} rows" in out and f"on {place}" in out
    times = [float(text) for text in re.findall(r"([\d.]+) ms", out)]
    return len(times) == 3 and all(time > 0 for time in times) and "times as fast" in out


def test_notebook(client, env, np):
    out = run(env, EXAMPLES / "notebook.py", "--rows", 200000)
    assert timed_both_ways(out, "the host", 200000), out


def test_tour(client, env, np, pd):
    """Its cells, one after the other; what each shows is shown."""
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    codes = [patient("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) == 10 and all(not cell.get("outputs") for cell in cells)
    play = "import ast\nfor code in %r:\n    body = ast.parse(code).body\n    if isinstance(body[-1], ast.Expr):\n" \
           "        body[-1] = ast.parse('print(repr(%%s))' %% ast.unparse(body[-1])).body[0]\n" \
           "    exec(compile(ast.Module(body, []), 'cell', 'exec'))\n" % codes
    out = run(env, "-c", play)
    assert "gpubufd.Table 'tour/prices': 5 rows × 3 columns" in out and "synced None\nsealed tour/new" in out
    assert '{"day": 1, "price": null, "city": "b"}' in out and "84.0" in out
    assert client.list() == []


def test_notebook_on_a_gpu(gpu, env, np):
    env.update(gpu.client_env, GPUBUFD_SOCKET=gpu.path)
    out = run(env, EXAMPLES / "notebook.py", "--rows", 200000)
    assert timed_both_ways(out, "the GPU", 200000), out


def test_cupy_to_torch(client, env):
    assert "mean square" in run(env, EXAMPLES / "cupy_to_torch.py")


def test_trainer_and_rollouts(client, env, np):
    out = run(env, EXAMPLES / "trainer_and_rollouts.py", "--steps", 30, "--workers", 2)
    seen = re.search(r"30 steps were published; the workers saw (\d+), (\d+) of them, 0 mixed of two", out)
    assert seen and all(1 <= int(count) <= 30 for count in seen.groups()), out
    assert "left at the end: step-29 and step-28" in out
    assert client.list(versions=True) == []


def test_column_cache(client, env, np, tmp_path):
    """Four processes read all columns, and each column is loaded once."""
    (tmp_path / "weather.csv").write_bytes((ROOT / "examples" / "data" / "weather.csv").read_bytes())
    columns = len((tmp_path / "weather.csv").read_text().split("\n", 1)[0].split(",")) + 2
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.arange(1000.0))
    (tmp_path / "notes.txt").write_text("not read")
    out = run(env, EXAMPLES / "column_cache.py", tmp_path)
    assert f"4 processes: {columns} columns of 3 files" in out, out
    assert f"{columns} loads of {columns} columns, at most 1 of one" in out, out
    client.delete(*client.keys())


def test_two_models(env, np, tmp_path):
    """In room for one, with a tier for the other."""
    with standing("--tier", f"disk:256M:{tmp_path}") as place:
        out = run({**env, "GPUBUFD_SOCKET": place.path}, EXAMPLES / "two_models.py", "--mib", 40)
        assert out.count("models/chat works") == out.count("models/code works") == 2
        place.stop()


def test_eight_workers(client, env, np, pd):
    out = run(env, EXAMPLES / "eight_workers.py", "--rows", 400000, "--workers", 3)
    assert "3 workers" in out and "mean by zone" in out
    grown = float(re.search(r"grew by ([\d.]+) MiB", out)[1])
    assert grown < 2  # of the 3 MiB of the column that all of them read
    assert client.list() == []


def test_camera(client, env, np):
    out = run(env, EXAMPLES / "camera.py", "--frames", 40, "--rate", 200)
    assert "the square was in 36 of 40 pictures" in out and "pictures skipped" in out, out
    assert client.list() == []


def test_two_stages(client, env):
    pytest.importorskip("torch")
    assert "20 frames" in run(env, EXAMPLES / "two_stages.py")
    assert client.list() == []
