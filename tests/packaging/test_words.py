"""scripts/lint-words finds the wording that it is for, in each language, and nothing in what is well said."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BAD = "What a client sent is read."
GOOD = 'Reads it. "What now?" Knows which end it is, and of what kind.'
PLACES = {
    "comment.c": "/* {} */\nint a;\n",
    "several_lines.h": "/* Reads the line.\n * {}\n */\n",
    "line.c": "int a; // {}\n",
    "module.py": '"""{}"""\n',
    "function.py": 'def f():\n    """Reads it. {}\n    More."""\n',
    "comment.py": "a = 1\n# {}\n",
    "stub.pyi": "# {}\n",
    "comment.cjs": "// {}\nmodule.exports = 1\n",
    "several_lines.mjs": "/**\n * {}\n */\n",
    "types.d.ts": "/** {} */\nexport const a: number\n",
    "page.md": "# A page\n\n{}\n\n- {}\n\n| a |\n|---|\n| {} |\n",
    "page.scd": "{}\n\n*--option*\n\t{}\n",
    "python": "#!/usr/bin/env python3\n# {}\n",
    "shell": "#!/bin/sh\n# {}\n",
}


def lint(path):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "lint-words", path],
                          capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    assert done.returncode == (1 if done.stdout else 0)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PLACES)
def test_each_language(tmp_path, name):
    path = tmp_path / name
    path.write_text(PLACES[name].replace("{}", GOOD), encoding="utf-8")
    assert lint(path) == []
    path.write_text(PLACES[name].replace("{}", BAD), encoding="utf-8")
    found = lint(path)
    assert len(found) == PLACES[name].count("{}")
    assert all("begin with the noun" in line for line in found)


def test_words(tmp_path):
    path = tmp_path / "words.py"
    path.write_text("# Waits for so many bytes.\n# Files of which one is new.\n", encoding="utf-8")
    assert len(lint(path)) == 2
    path.write_text('a = "What is this?"  # as many as there are\n', encoding="utf-8")
    assert lint(path) == []


WORDS = "W" + " ".join(["ord"] + ["word"] * 34)


@pytest.mark.parametrize("name", ["page.md", "page.scd"])
@pytest.mark.parametrize("text,found", [
    (f"Two {WORDS}.", "36 words, at most 35"), (f"{WORDS}.", ""), (f"{WORDS}. {WORDS}.", ""), (f"{WORDS} (an {WORDS}).", ""),
    (f"| a | b |\n|---|---|\n| Two {WORDS} | c |", "36 words, at most 35"), ("It goes on.", "continues"), ("Nothing leaves in vain.", "say what fails"),
    ("It fails. Likewise.", "say it again, or make a table")], ids=range(8))
def test_documents(tmp_path, name, text, found):
    """Long sentences and private words, which comments of source may have."""
    path = tmp_path / name
    path.write_text(f"# A page\n\n{text}\n", encoding="utf-8")
    said = lint(path)
    assert len(said) == bool(found) and found in "".join(said), said
    path = tmp_path / "source.c"
    path.write_text(f"/* {text} */\n", encoding="utf-8")
    assert not any("words" in line or "continues" in line for line in lint(path))


def test_code_and_names_are_no_words(tmp_path):
    code, names = " ".join(["`two words`"] * 40), " ".join(["_a_name_", "*other*"] * 20)
    (tmp_path / "code.md").write_text(f"It has {code}.\n", encoding="utf-8")
    (tmp_path / "names.scd").write_text(f"It has {names}.\n", encoding="utf-8")
    assert lint(tmp_path / "code.md") == lint(tmp_path / "names.scd") == []


def test_wide_lines_of_c(tmp_path):
    path = tmp_path / "wide.c"
    path.write_text(f"int {'a' * 100};\n", encoding="utf-8")
    (found,) = lint(path)
    assert "105 columns, at most 100" in found
