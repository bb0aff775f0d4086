"""Every command of the documentation is one that the command line takes."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from dsal.cli.main import app
from dsal.cli.shared_options import combine, read_options
from dsal.methods import METHODS

from .pages import PAGES, ROOT, name, prose, shell_lines

GROUP: Any = typer.main.get_command(app)
COMMAND = re.compile(r"^(?:[\w=]+=\S+ )*(?:ExecStart=)?(?:(?:srun )?torchrun .*-m dsal|\S*/dsal|dsal) (.+)$")
METHOD_NAMES = {*METHODS.names(), "nearest-median"}  # the last is the plugin that docs/plugins.md builds


def commands(page: Path) -> list[str]:
    """The commands in the blocks of a page, from the word behind ``dsal`` on."""
    found = [COMMAND.match(line) for line in shell_lines(page)]
    return [match[1] for match in found if match]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_in_blocks_are_parsed(page: Path) -> None:
    for text in commands(page):
        words = shlex.split(text)
        if words[0].startswith("-"):
            GROUP.make_context("dsal", words, resilient_parsing=True)
            continue
        assert words[0] in GROUP.commands, f"{name(page)}: dsal {text}"
        words = [word for word in words if word != "..." and word != "--help"]
        try:
            context = GROUP.commands[words[0]].make_context(words[0], words[1:])
        except Exception as error:
            pytest.fail(f"{name(page)}: dsal {text}: {error or type(error).__name__}")
        methods = [context.params.get("method"), *(context.params.get("methods") or ())]
        assert {method for method in methods if method} <= METHOD_NAMES, f"{name(page)}: dsal {text}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    for code in re.findall(r"`dsal ([^`]+)`", prose(page)):
        words = [word for word in code.replace("[", " ").replace("]", " ").split() if not word.isupper()]
        if not words or words[0].startswith("-"):
            assert words in ([], ["--version"], ["--help"]), f"{name(page)}: `dsal {code}`"
            continue
        assert words[0] in GROUP.commands, f"{name(page)}: `dsal {code}`"
        known = {"--help"} | {text for p in GROUP.commands[words[0]].params for text in (*p.opts, *p.secondary_opts)}
        unknown = [word for word in words[1:] if word.startswith("--") and word.partition("=")[0] not in known]
        assert not unknown, f"{name(page)}: `dsal {code}`"


def test_the_configuration_on_the_page_is_taken(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^    dataset = .*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "config.toml").write_text(inspect.cleandoc(block), encoding="utf-8")
    experiment, _ = combine({}, read_options(tmp_path / "config.toml"))
    assert (experiment.method, experiment.phases, experiment.seeds) == ("fecam", 25, (0, 1, 2))
    assert experiment.options == {"power": 0.5, "diagonal": 2.0}


def test_the_check_can_fail() -> None:
    assert COMMAND.match("torchrun --nproc-per-node 8 -m dsal run --paper")
    with pytest.raises(Exception, match="--papper"):
        GROUP.commands["run"].make_context("run", ["--papper"])
