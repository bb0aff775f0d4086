"""The site is built without a warning, needs nothing from elsewhere, and every link in it leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from .pages import ROOT


class Links(HTMLParser):
    """Ids, links and loaded resources of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids, self.links, self.loaded = set[str](), list[str](), list[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given["href"])


@pytest.mark.slow
def test_it_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement of the theme, as in the Makefile
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {page: Links(page) for page in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    for page, found in pages.items():
        for link in [*found.links, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                assert link not in found.loaded or parts.scheme == "data", f"{page.name} loads {link}"
                continue
            if page.name == "404.html":
                continue  # written for the root of a server
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), f"{page.relative_to(tmp_path)} links to {link}"
            if parts.fragment and target.suffix == ".html" and not parts.fragment.startswith("__tabbed"):
                assert unquote(parts.fragment) in pages[target].ids, f"{page.relative_to(tmp_path)} links to {link}"
    styles = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css"))
    assert not re.findall(r"url\(\s*['\"]?https?:", styles)
