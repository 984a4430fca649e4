"""gpubufd/rapids against @rapidsai/cuda and @rapidsai/cudf: their JavaScript, and their declarations.

npm has 22.12.1. Later versions are in images alone, and here if $GPUBUF_RAPIDS_NODE is a checkout of
https://github.com/rapidsai/node. Their parts in C++ want a GPU and are not built: rapids_node.mjs stands for these.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build"))
PACKAGES = ("@rapidsai/cudf@22.12.1", "@rapidsai/cuda@22.12.1", "typescript@5.9.3", "@types/node@20.19.9")
MODULES = ("core", "cuda", "rmm", "cudf")
NO_WAY = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENOTCACHED")

USES = """
import * as cuda from '@rapidsai/cuda'
import * as cudf from '@rapidsai/cudf'
type Place = cuda.DeviceMemory
export const views = (place: Place) => [
  new cuda.Int8Buffer(place, 0, 1), new cuda.Int16Buffer(place, 0, 1), new cuda.Int32Buffer(place, 0, 1),
  new cuda.Int64Buffer(place, 0, 1), new cuda.Uint8Buffer(place, 0, 1), new cuda.Uint16Buffer(place, 0, 1),
  new cuda.Uint32Buffer(place, 0, 1), new cuda.Uint64Buffer(place, 0, 1), new cuda.Float32Buffer(place, 0, 1),
  new cuda.Float64Buffer(place, 0, 1)]
export const back = (place: Place, view: cuda.Float64Buffer): [number, number, number] => {
  new cuda.Float64Buffer(place).copyFrom(view)
  return [new view.TypedArray(0).length, view.length, view.buffer.device]
}
export const types = [new cudf.Int8(), new cudf.Int16(), new cudf.Int32(), new cudf.Int64(), new cudf.Uint8(),
  new cudf.Uint16(), new cudf.Uint32(), new cudf.Uint64(), new cudf.Float32(), new cudf.Float64(), new cudf.Bool8(),
  new cudf.TimestampDay(), new cudf.TimestampSecond(), new cudf.TimestampMillisecond(),
  new cudf.TimestampMicrosecond(), new cudf.TimestampNanosecond()]
export const frame = (data: Place, nullMask: Place | undefined, nullCount: number | undefined) => {
  const props = { offset: 1, length: 2, nullMask, nullCount }
  const starts = new cudf.Column({ type: new cudf.Int32(), length: 4, data })
  const text = new cudf.Column({ ...props, type: new cudf.Utf8String(), data, children: [starts] })
  const codes = new cudf.Column({ ...props, type: new cudf.Int8(), data }).cast(new cudf.Categorical(text.type).indices)
  const kinds = new cudf.Column({ length: 2, nullMask: codes.mask, nullCount: codes.nullCount,
    type: new cudf.Categorical(text.type), children: [codes, text] })
  const empty = cudf.Series.new([''])
  const count: number = empty._col.numChildren + kinds.length
  empty.dispose()
  const made = new cudf.DataFrame({ a: cudf.Series.new(new cudf.Column({ ...props, type: new cudf.Int32(), data })), b: cudf.Series.new(text) })
  return [made.toArrow(), count]
}
"""


def tsc(place, *words):
    """Their TypeScript's output: nothing, if it is content."""
    done = subprocess.run(["node", place / "node_modules/typescript/bin/tsc", *words], cwd=place, text=True,
                          stdout=subprocess.PIPE, check=False)
    return done.stdout


@pytest.fixture(scope="module")
def npm():
    """A folder with the packages of npm, which is kept."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    home = BUILD / "interop" / "npm-rapids"
    told = "\n".join(PACKAGES)
    if not (home / "complete").exists() or (home / "complete").read_text() != told:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true}')
        done = subprocess.run(
            ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES], cwd=home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if any(words in done.stdout for words in NO_WAY):
            pytest.skip("the registry of npm cannot be reached")
        assert done.returncode == 0, done.stdout
        (home / "complete").write_text(told)
    return home


@pytest.fixture(scope="module")
def checkout(npm):
    """A folder with the packages as the checkout's TypeScript compiles to, and what they need of npm's; it is kept."""
    if "GPUBUF_RAPIDS_NODE" not in os.environ:
        pytest.skip("GPUBUF_RAPIDS_NODE names no checkout of rapidsai/node")
    sources = [pathlib.Path(os.environ["GPUBUF_RAPIDS_NODE"], "modules", name) for name in MODULES]
    files = sorted(path for source in sources for path in (source / "src").rglob("*.ts"))
    told = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    home = BUILD / "interop" / "checkout-rapids"
    if not (home / "complete").exists() or (home / "complete").read_text() != told:
        shutil.rmtree(home, ignore_errors=True)
        (home / "node_modules" / "@rapidsai").mkdir(parents=True)
        for needed in (npm / "node_modules").iterdir():
            if needed.name != "@rapidsai":
                (home / "node_modules" / needed.name).symlink_to(needed)
        for source in sources:
            made = home / "node_modules" / "@rapidsai" / source.name
            shutil.copytree(source, made, ignore=shutil.ignore_patterns("*pp", "*.cu*", "test"))
            assert tsc(home, "-p", made) == ""
        (home / "complete").write_text(told)
    return home


@pytest.fixture(scope="module", params=["npm", "checkout"])
def place(request):
    return request.getfixturevalue(request.param)


def test_declarations(place):
    """Every class and member that is used exists, with the parameters that it is given."""
    (place / "uses.ts").write_text(USES)
    options = "--noEmit --strict --skipLibCheck --target es2022 --module commonjs --moduleResolution node --types node"
    assert tsc(place, *options.split(), "uses.ts") == ""


def test_their_javascript(place):
    """The test of the package for Node that has stand-ins, with the real classes in their place."""
    package = pathlib.Path(os.environ.get("GPUBUF_NODE_PACKAGE", ROOT / "build" / "node" / "gpubufd"))
    if not package.exists():
        pytest.skip("the package for Node is not built: make node")
    tests = place / "tests"
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "node", tests)
    shutil.copy(HERE / "rapids_node.mjs", tests / "rapids.mjs")
    env = dict(os.environ, GPUBUF_ROOT=str(ROOT), GPUBUF_BUILD=str(BUILD), GPUBUF_NODE_PACKAGE=str(package),
               GPUBUF_RAPIDS=str(place))
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", "--test-name-pattern=classes of @rapidsai", "cuda.test.mjs"],
        cwd=tests, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0 and "\n# pass 1\n" in done.stdout, done.stdout
