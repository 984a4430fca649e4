"""docs/OPERATIONS.md and the source: every warning and error that a program may log is explained, and no line that none
logs; the reasons that it has are there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## What the log says\n")[1].split("\n## ")[0]
# A program: its sources, and where its table begins.
PROGRAMS = {"daemon": ("daemon", "| level | event |"), "gateway": ("client/gateway", "The gateway's (`journalctl"),
            "peer": ("client/peer", "The peer's (`journalctl")}
SOURCES = {program: sorted((ROOT / folder).rglob("*.c")) for program, (folder, _) in PROGRAMS.items()}


def calls(text):
    """The arguments of each gb_log(…), as text."""
    for found in re.finditer(r"\bgb_(?:peer_)?log(?:_another|_limited|_seldom)?\(", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[found.end(): end - 1]


def logged():
    """{(program, level, event)}"""
    out = set()
    for program, source in ((program, source) for program in SOURCES for source in SOURCES[program]):
        for call in calls(source.read_text(encoding="utf-8")):
            head = re.match(r'([^"]*),\s*"([^"]*)"', call)
            assert head, f"{source.name}: the event is no plain text: gb_log({call})"
            levels = re.findall(r"GB_LOG_(\w+)", head[1])  # one, or one or the other
            out |= {(program, level.lower(), head[2]) for level in levels}
    return out


def explained():
    """{(program, level, event): text}"""
    level, out = "(?:debug|info|warning|error)", {}
    starts = {program: SECTION.index(start) for program, (_, start) in PROGRAMS.items()}
    for program, start in starts.items():
        end = min((other for other in starts.values() if other > start), default=len(SECTION))
        rows = re.findall(rf"^\| ({level}(?:, {level})*) \| (`[^|]+`) \| (.+) \|$", SECTION[start:end], re.M)
        assert rows
        out.update({(program, one, event): text for levels, events, text in rows for one in levels.split(", ")
                    for event in re.findall("`([^`]+)`", events)})
    return out


def test_every_warning_of_the_log_is_explained():
    missing = sorted(line for line in logged() - set(explained()) if line[1] in ("warning", "error"))
    assert missing == [], "add a row to 'What the log says' in docs/OPERATIONS.md"


def test_no_line_is_explained_that_is_not_logged():
    assert sorted(set(explained()) - logged()) == []
    assert [line for line, text in explained().items() if len(text) <= 3] == []


def test_the_reasons_that_sessions_end():
    table = PAGE.split("| why a session ended | meaning |")[1].split("\n\n")[0]
    reasons = re.findall(r"`([^`]+)`", "\n".join(row.split("|")[1] for row in table.split("\n")[2:]))
    source = "".join(one.read_text(encoding="utf-8") for one in SOURCES["daemon"])
    source += "".join(one.read_text(encoding="utf-8") for one in (ROOT / "proto").rglob("*.c"))
    assert len(reasons) >= 8
    assert [reason for reason in reasons if f'"{reason}"' not in source] == []


def test_what_packaged_pages_and_programs_name_is_packaged():
    packaged = {line for file in (ROOT / "debian").glob("*.docs") for line in file.read_text().split()}
    assert all((ROOT / page).exists() for page in packaged)
    named = {f"docs/{page}" for page in ("OPERATIONS.md", "EVENTS.md", "HTTP.md", "METRICS.md")}
    for page in sorted(named):
        links = re.findall(r"\]\(([^)#:]+\.md)", (ROOT / page).read_text(encoding="utf-8"))
        named |= {(ROOT / "docs" / link).resolve().relative_to(ROOT).as_posix() for link in links}
    for source in (ROOT / "daemon").rglob("*.c"):
        named |= set(re.findall(r"\bdocs/[A-Z-]+\.md", source.read_text(encoding="utf-8")))
    named -= {page for page in named if page.startswith("docs/decisions/")}  # history, for those who have the source
    assert named <= packaged, sorted(named - packaged)
