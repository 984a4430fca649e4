"""The documentation as a site: `make site`. Sphinx reads the repository's own pages where they lie; `contents` is the site's
navigation, references come from docstrings, gpubuf.h and the types for Node. docs/decisions/0031-site.md says why Sphinx.
"""

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import references  # noqa: E402
from pygments.lexers import TextLexer  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = os.environ.get("REPOSITORY", "")  # links to folders of the source lead there

contents = {
    "Using it": ["docs/PYTHON", "docs/PYTHON-TYPES", "docs/PYTHON-GPU", "docs/PYTHON-CLUSTER", "docs/NODE", "client/rust/README",
                 "docs/WEIGHTS", "docs/VLLM", "docs/LMCACHE", "docs/STREAMS", "docs/GPU", "docs/AMD", "docs/MIGRATING", "docs/INTEROP",
                 "docs/BESIDE"],
    "Reference": ["docs/site/python", "docs/site/c", "docs/site/node", "docs/PROTOCOL", "docs/PROTOCOL-METHODS",
                  "docs/PROTOCOL-SPACE"],
    "Running it": ["docs/OPERATIONS", "docs/CLUSTER", "SECURITY", "docs/RELIABILITY", "docs/HTTP", "docs/METRICS", "docs/EVENTS",
                   "docs/PERFORMANCE"],
    "Changing it": ["docs/CONTRIBUTING", "docs/ARCHITECTURE", "docs/ADDING", "docs/TESTING", "docs/RELEASING",
                    "docs/decisions/README", "CHANGELOG"],
}

# Pages that are mostly made of other files.
MADE = {"docs/site/c": ["include/gpubuf.h"],
        "docs/site/node": [f"client/node/lib/{name}.d.cts" for name in ("index", "cluster", "dask", "rapids")]}

project = "gpubufd"
version = release = re.search(r'GPUBUF_VERSION "(.*)"', (ROOT / "include/gpubuf.h").read_text())[1]
copyright = "the gpubufd authors, Apache-2.0"  # noqa: A001  (Sphinx's name)
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["*.md", "docs/**.md", "client/*/README.md", "examples/**.md", "tests/**/README.md", "client/*/*/README.md"]
exclude_patterns = ["build", ".git", "**/node_modules", "**/target"]
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]  # pages that other pages link to; "…" in JSON
default_role = "code"
c_id_attributes = ["GPUBUF_API"]

autodoc_mock_imports = ["numpy", "torch", "jax", "ray", "dask", "distributed", "pandas", "pyarrow", "fsspec", "zarr", "transformers", "rmm",
                        "safetensors", "vllm"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
pygments_style = "tango"
pygments_dark_style = "native"
html_title = f"gpubufd {version}"
html_copy_source = False
html_show_sphinx = False
templates_path = []


def read(app, page, source):
    """Adds what a page gets from elsewhere, before it is parsed."""
    if page == root_doc:
        for caption, pages in contents.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(f"/{one}" for one in pages) + "\n```\n"
    elif page == "docs/decisions/README":
        pages = sorted(path.stem for path in (ROOT / "docs/decisions").glob("0*.md"))
        source[0] += "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```\n"
    elif page in MADE:
        for file in MADE[page]:
            app.env.note_dependency(str(ROOT / file))
            source[0] += references.of(ROOT / file)
    source[0] = re.sub(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)", lambda link: found(page, link), source[0])


def found(page, link):
    """A link as it is if it leads to a page or a file; to a folder: to the repository, or its text alone."""
    path = (ROOT / page).parent / link[2]
    if not path.is_dir():
        return link[0]
    place = path.resolve().relative_to(ROOT).as_posix()
    return f"[{link[1]}]({REPOSITORY}/tree/main/{place})" if REPOSITORY else link[1]


def skipped(app, what, name, thing, skip, options):
    """NumPy's own methods, which arrays and columns have as to_numpy() has them."""
    return True if re.fullmatch(r"NumPy's \w+ of to_numpy\(\)\. Host only\.", thing.__doc__ or "") else None


def index(app, exception):
    if not exception:
        (Path(app.outdir) / "index.html").write_text(
            '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">gpubufd</a>\n')


def setup(app):
    app.add_lexer("exchange", TextLexer)  # PROTOCOL's examples, which tests play
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", references.as_restructured_text)
    app.connect("autodoc-skip-member", skipped)
    app.connect("build-finished", index)
