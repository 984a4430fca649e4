"""README.md: its session on the command line is played, its C program compiled and run. Of all documents the
links lead somewhere, and the commands that they show are there, with their options."""

import itertools
import os
import re
import shutil
import subprocess
import sys

import pytest

from device import BUILD, ROOT
from peer import DEADLINE

TEXT = (ROOT / "README.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.M | re.S)


def run(daemon, command, **options):
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE,
                          check=False, env={**os.environ, "GPUBUFD_SOCKET": daemon.path}, **options)


def test_session(tmp_path):
    """As it is when pasted, in one go, into a shell: its daemon included."""
    (block,) = blocks("console")
    block = block.replace("/tmp/gpubufd-demo.sock", str(tmp_path / "s"))
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    output = [line + "\n" for line in block.splitlines() if not line.startswith("$ ")]
    assert len(commands) == 6 and str(tmp_path) in commands[0]
    afterwards = re.findall("Later `([^`]+)`.* `(kill %1)`", (ROOT / "README.md").read_text())[0]
    done = subprocess.run(["bash"], input="\n".join([*commands, *afterwards, "wait"]), cwd=ROOT, text=True,
                          capture_output=True, timeout=DEADLINE, check=False,
                          env={**os.environ, "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"})
    assert (done.stdout, done.stderr, done.returncode) == ("".join(output), "", 0)


def test_program(daemon, tmp_path):
    (program,) = blocks("c")
    (tmp_path / "sum.c").write_text(program)
    flags = (BUILD / "flags").read_text().split()
    compiler = itertools.takewhile(lambda word: not word.startswith("-"), flags)  # ccache gcc
    sanitizers = [flag for flag in flags if flag.startswith("-fsanitize=")]
    built = subprocess.run(
        [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", *sanitizers, f"-I{ROOT}/include",
         "sum.c", "-o", "sum", f"-L{BUILD}/lib", "-lgpubuf", f"-Wl,-rpath,{BUILD}/lib"],
        cwd=tmp_path, text=True, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr
    missing = run(daemon, [str(tmp_path / "sum")])
    assert missing.returncode == 1
    assert "movies" in missing.stderr
    put = run(daemon, [str(BUILD / "bin/gpubufctl"), "put", "movies", "examples/data/movies.csv"])
    assert put.returncode == 0, put.stderr
    done = run(daemon, [str(tmp_path / "sum")])
    (said,) = re.findall(r'printf\("%lld\\n".*/\* (\d+) \*/', program)
    assert (done.stdout, done.stderr, done.returncode) == (said + "\n", "", 0)
    run(daemon, [str(BUILD / "bin/gpubufctl"), "rm", "movies"])


def test_example_that_publishes(daemon):
    done = run(daemon, [str(BUILD / "bin/examples/publish"), "weather"])
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "Linz: 21.50\nunknown: 19.00\nGraz: not measured\n"
    seen = run(daemon, [str(BUILD / "bin/gpubufctl"), "get", "weather", "--format", "csv"])
    assert seen.stdout == "city,degrees\nLinz,21.5\n,19.0\nGraz,\n"
    run(daemon, [str(BUILD / "bin/gpubufctl"), "rm", "weather"])


DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [
    *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("client/*/README.md")])


@pytest.mark.parametrize("path", DOCUMENTS)
def test_links(path):
    text = (ROOT / path).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / path).parent / name if name else ROOT / path
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                     for heading in headings]
            assert anchor in slugs, target


def shown(text):
    """The words of each command in a document's blocks for a shell, and in its inline code."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in re.sub(r"\\\\\n", " ", block).splitlines()]
    lines += re.findall(r"`((?:gpubufctl|gpubufd|gpubufd-gateway|make|scripts/[a-z-]+) [^`]*)`",
                        re.sub(r"```.*?```", "", text, flags=re.S))
    for line in lines:
        for part in re.split(r"\|\|?|&&?|;|\$\(|(?:^|\s)#\s.*", line.removeprefix("$ ").removeprefix("# ")):
            words = [word.strip("()\"'") for word in (part or "").split()]
            while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] in ("sudo", "nice", "exec", "ExecStart=")):
                words.pop(0)
            if words:
                yield words


def options_of(*command):
    done = subprocess.run([BUILD / "bin" / command[0], *command[1:], "--help"], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, (command, done.stderr)
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def test_commands_are_found():
    """The next test looks at something."""
    programs = [words[0] for words in shown((ROOT / "docs/OPERATIONS.md").read_text())]
    assert programs.count("gpubufctl") > 10 and programs.count("gpubufd") > 3


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != "CHANGELOG.md"])  # it has what went, too
def test_commands(path):
    """As far as a look at the words can tell: programs' commands and options, make's targets, files of ours."""
    makefile = "".join(path.read_text() for path in [ROOT / "Makefile", *ROOT.glob("*/*.mk"), *ROOT.glob("client/*/*.mk")])
    targets = set(re.findall(r"^([a-z][a-z-]*(?: [a-z][a-z-]*)*):", makefile, re.M))
    targets = {word for line in targets for word in line.split()}
    general = subprocess.run([BUILD / "bin/gpubufctl", "--help"], text=True, capture_output=True, check=True).stdout
    commands = set(re.findall(r"^  ([a-z]+)(?: |$)", general, re.M))
    for program, *words in shown((ROOT / path).read_text()):
        program = program.removeprefix("build/bin/").removeprefix("./")
        given = {word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word)}
        if program == "gpubufctl":
            (command, *_) = [word for word in words if not word.startswith("-")] or [None]
            if command and re.fullmatch("[a-z]+", command):
                assert command in commands, (path, words)
                assert given <= options_of("gpubufctl", command), (path, words)
        elif program in ("gpubufd", "gpubufd-gateway"):
            assert given <= options_of(program), (path, words)
        elif program == "make":
            for word in words:
                if re.fullmatch("[a-z][a-z-]*", word):
                    assert word in targets, (path, words)
        elif re.match("(scripts|tests|examples|client)/", program):
            assert (ROOT / program).exists(), (path, program)


def test_decisions():
    """Each page has its parts, and the next number."""
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    for place, page in enumerate(pages, 1):
        text = page.read_text()
        assert re.findall(r"^## (.*)$", text, re.M) == [
            "Context", "Choice", "Cost"], page.name
        (number,) = re.match(r"# (\d+)\. .*\n", text).groups()
        assert int(number) == int(page.name[:4]) == place, page.name
    assert len(pages) > 30


def test_the_figures_are_those_of_the_pages(tmp_path):
    """Each is a row of the page that it links to; scripts/bench-table --readme writes them."""
    for path in ("README.md", "docs/PERFORMANCE.md", "docs/GPU.md", "scripts/bench-table", "tests/bench/report.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    subprocess.run([sys.executable, tmp_path / "scripts/bench-table", "--readme"], check=True, timeout=DEADLINE)
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_install_does_without_the_tool_for_manual_pages():
    """After scripts/demo, which does not install it."""
    def would(*variables):
        return subprocess.run(["make", "-n", "install", "PREFIX=/nowhere", *variables], cwd=ROOT, text=True,
                              capture_output=True, timeout=DEADLINE, check=True).stdout

    without = would("SCDOC=no-such-program")
    assert "no-such-program" not in without.replace("they need the package", "") and "the manual pages are left out" in without
    assert "no-such-program" in would("SCDOC=no-such-program", "DESTDIR=/nowhere")  # a package has to have them


def test_the_matrix_names_each_pinned_version():
    """INTEROP.md has what environments.toml pins: `make interop RECORD=1` writes it anew."""
    tomllib = pytest.importorskip("tomllib")
    known = tomllib.loads((ROOT / "tests" / "interop" / "environments.toml").read_text())
    rows = {line.split("|")[1].strip(): line for line in (ROOT / "docs" / "INTEROP.md").read_text().splitlines()
            if line.startswith("| ")}
    del known["common"], known["gpu"]
    assert known.keys() <= rows.keys()
    for name, told in known.items():
        for package in told["packages"] + told.get("bare", []):
            assert package.replace("==", " ") in rows[name], (name, package)
