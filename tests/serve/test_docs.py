"""What docs/serve.md shows works as shown."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .live import Server

DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


def test_the_examples_run(
    tmp_path: Path, weights: Path, album: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCS.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for kind, label in (("mug", "char 0"), ("glass", "char 37")):
        for number in (1, 2, 3):
            shutil.copy(album / "first" / label / f"{number}.png", f"{kind}{number}.png")
    with Server(tmp_path / "models", weights) as server:
        url = server.url.rstrip("/")
        (shell,) = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        if shutil.which("curl"):
            subprocess.run(["sh", "-ec", shell], env={"URL": url, "PATH": "/usr/bin:/bin"}, check=True, timeout=60)
            assert Path("cups.dsal").stat().st_size > 10_000
        examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
        assert len(examples) == 2
        for example in examples:
            exec(compile(example, DOCS, "exec"), {"URL": url})
        assert capsys.readouterr().out.count("\n") == 2


def test_every_local_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^):]+)\)", DOCS.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (DOCS.parent / link.partition("#")[0]).exists()] == []
