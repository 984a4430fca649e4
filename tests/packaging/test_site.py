"""`make site`: it builds without a warning, its links lead somewhere, and the search knows what the references name."""

import pathlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.hunt  # it installs Sphinx


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.add(value)
            elif name in ("id", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{path: Page} of the site, built anew."""
    pin = re.search(r"^sphinx-basic-ng==\S+", (ROOT / "docs/site/requirements.txt").read_text(), re.M)[0]
    place = tmp_path_factory.mktemp("pip")
    reached = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, pin], check=False,
                             capture_output=True)
    if reached.returncode:
        pytest.skip("PyPI cannot be reached")
    done = subprocess.run(["make", "site", f"PYTHON={sys.executable}", f"SITE={place}/site"], cwd=ROOT, text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    html = place / "site" / "html"
    return {path.relative_to(html).as_posix(): (path, Page(path.read_text(encoding="utf-8"))) for path in html.rglob("*.html")}


def test_links(pages):
    html = pages["index.html"][0].parent
    for file, page in pages.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.exists(), f"{file.name}: {link}"
            if parts.fragment and target.suffix == ".html":
                anchors = pages[target.relative_to(html).as_posix()][1].anchors
                assert unquote(parts.fragment) in anchors, f"{file.name}: {link}"


def test_references(pages):
    html = pages["index.html"][0].parent
    assert {"gpubufd.Client.put", "gpubufd.connect", "gpubufd.torch.load_file"} <= pages["docs/site/python.html"][1].anchors
    assert {"c.gpubuf_open", "c.gpubuf_seal"} <= pages["docs/site/c.html"][1].anchors
    assert {"client", "gpubufd-dask"} <= pages["docs/site/node.html"][1].anchors
    assert all(word in (html / "searchindex.js").read_text() for word in ("gpubuf_open", "put_bundle", "connectoptions"))
