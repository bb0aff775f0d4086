"""What MkDocs does not do by itself: pages made from the repository, and links out of ``docs/``.

- README, CHANGELOG and their like become pages; the page of the commands is generated from the commands.
- A file outside of ``docs/`` that a page links to is copied into the site.
- A name such as ``dsal.analytic.ridge:Ridge.update`` in code quotes becomes a link to the line that defines it.
- Sphinx roles of docstrings, such as ``:meth:``, are not shown.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))
import commands  # noqa: E402  (a neighbour of this file)

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "GOVERNANCE.md": "governance.md",
    "MAINTAINERS.md": "maintainers.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
}
"""Files of the repository that are pages of the site."""

LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
NAME = re.compile(r"`(dsal(?:\.\w+)*):([\w.]+)`")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):(?=<code>)")
FENCE = re.compile(r"^```.*?^```|^(?: {4}[^\n]*\n)+", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the source of every module that a page points into, and what is linked outside docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, "reference/commands.md", content=commands.page()))
    texts = {_origin(file): file.content_string for file in files.documentation_pages()}
    for module in sorted({_home(*found) for text in texts.values() for found in NAME.findall(text)}):
        source = inspect.getsource(import_module(module))
        text = f"---\nsearch: {{exclude: true}}\n---\n# {module}\n\n````{{.python linenums=1}}\n{source}````\n"
        files.append(File.generated(config, f"source/{module}.md", content=text))
    outside = {_target(origin, link[1]) for origin, text in texts.items() for link in LINK.findall(text)}
    for path in sorted(outside - set(PAGES)):
        if not path.startswith(("docs/", "../")) and (ROOT / path).is_file():
            files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links of the repository at the pages of the site, and names in the code at their lines."""
    here, origin = PurePosixPath(page.file.src_uri).parent, _origin(page.file)

    def link(found: re.Match[str]) -> str:
        place = _place(_target(origin, found[2]))
        return f"{found[1]}{os.path.relpath(place, here)}{found[3] or ''}{found[4]}"

    def name(found: re.Match[str]) -> str:
        line = inspect.getsourcelines(_object(found[1], found[2]))[1]
        target = os.path.relpath(f"source/{_home(found[1], found[2])}.html", here)
        return f'<a href="{target}#__codelineno-0-{max(line, 1)}"><code>{found[1]}.{found[2]}</code></a>'

    def prose(text: str) -> str:
        return NAME.sub(name, LINK.sub(link, text))

    if page.file.src_uri.startswith("source/"):
        return markdown
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [prose(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, prose(markdown[end:])])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave only the code of Sphinx roles such as ``:meth:`fit```."""
    return html if page.file.src_uri.startswith("source/") else ROLE.sub("", html)


def _object(module: str, name: str) -> Any:
    value = attrgetter(name)(import_module(module))
    return value.fget if isinstance(value, property) else value


def _home(module: str, name: str) -> str:
    """The module that defines a name, which may be offered by another one."""
    return getattr(_object(module, name), "__module__", module)


def _origin(file: File) -> str:
    """The path of a page in the repository."""
    for name, page in PAGES.items():
        if file.src_uri == page:
            return name
    return f"docs/{file.src_uri}"


def _target(origin: str, link: str) -> str:
    """What a relative link of a page leads to, as a path in the repository."""
    return os.path.normpath(os.path.join(os.path.dirname(origin), link))  # noqa: PTH118, PTH120  (of a URL)


def _place(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
