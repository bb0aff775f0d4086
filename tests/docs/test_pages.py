"""Python code of the documentation runs, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dsal

from .pages import FENCED, PAGES, ROOT, name, prose, python_blocks

ELSEWHERE = {"README.md": "tests/test_readme.py", "docs/serve.md": "tests/serve/test_docs.py"}
ELSEWHERE["docs/plugins.md"] = "tests/cli/test_plugins.py"
ELSEWHERE |= {
    f"docs/integrations/{name}.md": f"tests/integrations/test_{name}.py"
    for name in ("river", "avalanche", "capymoa", "mlflow")
}
LINK = re.compile(r"\]\(([^)\s:#]*)(?:#([^)\s]*))?\)")


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page) and name(page) not in ELSEWHERE], ids=name
)
def test_python_blocks_run(page: Path) -> None:
    code = "\n".join(python_blocks(page))
    if "ImageModel()" in code:
        pytest.importorskip("efficientnet_lite_pytorch")
    exec(compile(code, page, "exec"), {})


def test_pages_that_are_run_elsewhere_are() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(prose(page)):
        target = page if not path else (page.parent / path).resolve()
        generated = ROOT / "docs/reference/commands.md"
        assert target == generated or target.is_file(), f"{name(page)} links to {path}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name(page)} links to {path}#{anchor}, a heading that is not there"


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    errors = {name for name in dsal.__all__ if name.endswith("Error")}  # all of dsal.errors is on the page
    assert "::: dsal.errors" in page
    assert [name for name in dsal.__all__ if name not in errors and not re.search(rf"\b{name}\b", page)] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [name(page).removeprefix("docs/") for page in PAGES if name(page).startswith("docs/")]
    assert [page for page in pages if not re.search(rf"(?:: |- ){re.escape(page)}$", navigation, re.MULTILINE)] == []


def test_every_promise_has_its_tests() -> None:
    rows = re.findall(r"^\| (.+) \| (.*) \|$", (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8"), re.M)
    promises = [(promise, tests) for promise, tests in rows if promise != "promise"]
    assert len(promises) > 15
    for promise, tests in promises:
        named = re.findall(r"\[(test_\w+)\]\(\.\./\.\./(tests/[\w/]+\.py)\)", tests)
        assert named, f"no test: {promise}"
        for test, file in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_numbered_lists_do_not_begin_anew(page: Path) -> None:
    """What stands between two items is indented by four columns; otherwise the site numbers both with 1."""
    markdown = pytest.importorskip("markdown")
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    begun = len(re.findall(r"^1\. ", text, re.MULTILINE))
    assert markdown.markdown(text, extensions=["tables", "md_in_html"]).count("<ol") == begun
